//! What all requests of a trace came to.

use std::time::Duration;

use crate::{Answer, Outcome};

/// What a request has to keep to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slo {
    /// Time to its first token.
    pub ttft: Duration,
    /// Time per output token.
    pub tpot: Duration,
}

impl Slo {
    /// Nothing is asked.
    pub const ANY: Self = Self {
        ttft: Duration::MAX,
        tpot: Duration::MAX,
    };

    /// Whether a request kept it.
    #[must_use]
    pub fn attained(&self, answer: &Answer) -> bool {
        answer.ttft <= self.ttft && answer.tpot() <= self.tpot
    }
}

/// The median, and what 90 and 99 of 100 do not exceed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quantiles {
    /// Median.
    pub p50: Duration,
    /// Of ninety in a hundred.
    pub p90: Duration,
    /// Of ninety-nine in a hundred.
    pub p99: Duration,
}

/// Figures of one simulated run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Requests.
    pub requests: usize,
    /// Those that were answered and kept the SLO.
    pub attained: usize,
    /// Those that were answered, but too late.
    pub late: usize,
    /// Those that were turned away.
    pub rejected: usize,
    /// Share of all requests that kept the SLO; 1 where there are none.
    pub attainment: f64,
    /// Requests a second that kept it, from the trace's first request to its last token.
    pub goodput: f64,
    /// To the first token, of those that were answered.
    pub ttft: Quantiles,
    /// Per output token, of answers with two at least.
    pub tpot: Quantiles,
    /// The longest gap of each answer.
    pub longest_gap: Quantiles,
    /// In the gateway's queue.
    pub queued: Quantiles,
    /// What transfers added.
    pub exposed: Quantiles,
    /// Share of prompts' tokens that were found in a cache.
    pub cached_share: f64,
    /// Answers whose decode worker computed the prompt.
    pub local: usize,
}

impl Summary {
    /// Of these outcomes.
    #[must_use]
    pub fn of(outcomes: &[Outcome], slo: &Slo) -> Self {
        let answers: Vec<&Answer> = outcomes.iter().filter_map(Outcome::answer).collect();
        let attained = answers.iter().filter(|a| slo.attained(a)).count();
        let ended = answers.iter().map(|a| a.ended).max().unwrap_or_default();
        let begins = answers.iter().map(|a| a.ended - a.decoding - a.ttft);
        let span = ended - begins.min().unwrap_or_default();
        let of = |time: fn(&Answer) -> Duration| quantiles(answers.iter().map(|a| time(a)));
        let many = answers.iter().filter(|a| a.tokens > 1);
        let (cached, prompts) = answers.iter().fold((0, 0), |(cached, all), a| {
            (cached + u64::from(a.cached), all + u64::from(a.prompt))
        });
        Self {
            requests: outcomes.len(),
            attained,
            late: answers.len() - attained,
            rejected: outcomes.len() - answers.len(),
            attainment: share(attained, outcomes.len()).unwrap_or(1.0),
            goodput: match span.is_zero() {
                true => 0.0,
                false => attained as f64 / span.as_secs_f64(),
            },
            ttft: of(|a| a.ttft),
            tpot: quantiles(many.map(|a| a.tpot())),
            longest_gap: of(|a| a.longest_gap),
            queued: of(|a| a.queued),
            exposed: of(|a| a.exposed),
            cached_share: share(cached as usize, prompts as usize).unwrap_or(0.0),
            local: answers.iter().filter(|a| a.local).count(),
        }
    }

    /// Tokens a second of one answer after its first, at the median; 0 where no answer has two.
    #[must_use]
    pub fn tokens_per_second(&self) -> f64 {
        match self.tpot.p50.is_zero() {
            true => 0.0,
            false => 1.0 / self.tpot.p50.as_secs_f64(),
        }
    }
}

/// A share of so many; `None` of none.
pub(crate) fn share(part: usize, all: usize) -> Option<f64> {
    (all > 0).then(|| part as f64 / all as f64)
}

fn quantiles(times: impl Iterator<Item = Duration>) -> Quantiles {
    let mut times: Vec<Duration> = times.collect();
    times.sort_unstable();
    // Nearest rank.
    let at = |share: f64| {
        let rank = (share * times.len() as f64).ceil() as usize;
        times.get(rank.max(1) - 1).copied().unwrap_or_default()
    };
    Quantiles {
        p50: at(0.5),
        p90: at(0.9),
        p99: at(0.99),
    }
}

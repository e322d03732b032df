//! What all requests of a trace came to.

use std::time::Duration;

use crate::Outcome;

/// What a request has to keep to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slo {
    /// Time to its first token.
    pub ttft: Duration,
    /// Time per output token.
    pub tpot: Duration,
}

impl Slo {
    /// Whether a request kept it.
    #[must_use]
    pub fn attained(&self, outcome: &Outcome) -> bool {
        outcome.ttft <= self.ttft && outcome.tpot() <= self.tpot
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
    /// Requests, all of which were served.
    pub requests: usize,
    /// Share of those that kept the SLO; 1 where there are none.
    pub attainment: f64,
    /// Requests a second that kept it, from the trace's start to its last token.
    pub goodput: f64,
    /// To the first token.
    pub ttft: Quantiles,
    /// Per output token, of requests with two at least.
    pub tpot: Quantiles,
    /// The longest gap of each request.
    pub longest_gap: Quantiles,
    /// In the gateway's queue.
    pub queued: Quantiles,
}

impl Summary {
    /// Of these outcomes.
    #[must_use]
    pub fn of(outcomes: &[Outcome], slo: &Slo) -> Self {
        let attained = outcomes.iter().filter(|o| slo.attained(o)).count();
        let span = outcomes.iter().map(|o| o.ended).max().unwrap_or_default();
        let many = outcomes.iter().filter(|o| o.tokens > 1);
        let of = |time: fn(&Outcome) -> Duration| quantiles(outcomes.iter().map(time).collect());
        Self {
            requests: outcomes.len(),
            attainment: match outcomes.len() {
                0 => 1.0,
                all => attained as f64 / all as f64,
            },
            goodput: match span.is_zero() {
                true => 0.0,
                false => attained as f64 / span.as_secs_f64(),
            },
            ttft: of(|o| o.ttft),
            tpot: quantiles(many.map(Outcome::tpot).collect()),
            longest_gap: of(|o| o.longest_gap),
            queued: of(|o| o.queued),
        }
    }
}

fn quantiles(mut times: Vec<Duration>) -> Quantiles {
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

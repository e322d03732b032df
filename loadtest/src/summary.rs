//! The figures of one phase of a run. They add up over repeats, processes and hosts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::distribution::Distribution;
use crate::record::{FailureKind, Outcome, Phase, Record};
use crate::stream::{AnswerTimes, TokenSource};

/// What is measured of every answered request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Scheduled send to first token, microseconds.
    Ttft,
    /// Time for an output token, on average over a request, microseconds.
    Tpot,
    /// Time for each single token, microseconds.
    Itl,
    /// Time between two events with tokens, microseconds.
    Gap,
    /// Scheduled send to the end, microseconds.
    E2e,
    /// Tokens of prompts.
    InputTokens,
    /// Tokens of answers.
    OutputTokens,
}

impl Metric {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Ttft,
        Self::Tpot,
        Self::Itl,
        Self::Gap,
        Self::E2e,
        Self::InputTokens,
        Self::OutputTokens,
    ];

    /// As in results and assertions.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ttft => "ttft",
            Self::Tpot => "tpot",
            Self::Itl => "itl",
            Self::Gap => "gap",
            Self::E2e => "e2e",
            Self::InputTokens => "input_tokens",
            Self::OutputTokens => "output_tokens",
        }
    }

    /// Whether it is a time in microseconds.
    #[must_use]
    pub const fn is_time(self) -> bool {
        !matches!(self, Self::InputTokens | Self::OutputTokens)
    }
}

/// How many requests came to what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Answered, within the SLO where there is one.
    pub attained: u64,
    /// Answered, but not within it.
    pub late: u64,
    /// Turned away: 429 or 503.
    pub rejected: u64,
    /// Without a whole answer.
    pub failed: u64,
    /// Not sent, for as many were under way as may be.
    pub unsent: u64,
}

impl Counts {
    /// All of them.
    #[must_use]
    pub const fn all(&self) -> u64 {
        self.attained + self.late + self.rejected + self.failed + self.unsent
    }

    /// Those with a whole answer.
    #[must_use]
    pub const fn answered(&self) -> u64 {
        self.attained + self.late
    }

    fn of(&mut self, outcome: Outcome) -> &mut u64 {
        match outcome {
            Outcome::Attained => &mut self.attained,
            Outcome::Late => &mut self.late,
            Outcome::Rejected => &mut self.rejected,
            Outcome::Failed => &mut self.failed,
            Outcome::Unsent => &mut self.unsent,
        }
    }

    fn add(&mut self, other: &Self) {
        self.attained += other.attained;
        self.late += other.late;
        self.rejected += other.rejected;
        self.failed += other.failed;
        self.unsent += other.unsent;
    }
}

/// Failures of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failures {
    /// How many there were.
    pub count: u64,
    /// The first one, in words.
    pub example: String,
}

/// Requests that are counted together.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Group {
    /// What they came to.
    pub counts: Counts,
    /// Distributions of the answered ones.
    pub metrics: BTreeMap<Metric, Distribution>,
}

/// The requests of one phase.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Summary {
    /// All of them.
    #[serde(flatten)]
    pub all: Group,
    /// Each class by itself.
    pub classes: BTreeMap<String, Group>,
    /// What went wrong.
    pub failures: BTreeMap<FailureKind, Failures>,
    /// Where the answered ones' token counts come from.
    pub token_sources: BTreeMap<TokenSource, u64>,
    /// Prompt tokens of the answered ones, by usage.
    pub input_tokens: u64,
    /// Those of them that the server had in its cache.
    pub cached_tokens: u64,
    /// Tokens of their answers.
    pub output_tokens: u64,
    /// Events with tokens.
    pub events: u64,
    /// Requests that were shortened to fit the model's context.
    pub clipped: u64,
    /// First scheduled send, microseconds from the test's start.
    pub first_us: Option<u64>,
    /// Last end, the same.
    pub last_us: Option<u64>,
}

impl Group {
    fn count(&mut self, record: &Record, times: Option<&AnswerTimes>) {
        *self.counts.of(record.outcome) += 1;
        let Some(times) = times else { return };
        let mut add = |metric, value, n| self.metric(metric).record_n(value, n);
        add(Metric::Ttft, times.ttft_us, 1);
        add(Metric::E2e, record.e2e_us, 1);
        add(Metric::OutputTokens, times.output_tokens, 1);
        if let Some(tpot) = times.tpot_us {
            add(Metric::Tpot, tpot.round() as u64, 1);
        }
        if let Some(tokens) = times.input_tokens {
            add(Metric::InputTokens, tokens, 1);
        }
        for (itl, tokens) in &times.itl_us {
            add(Metric::Itl, *itl, u64::from(*tokens));
        }
        for gap in &times.gaps_us {
            add(Metric::Gap, *gap, 1);
        }
    }

    fn metric(&mut self, metric: Metric) -> &mut Distribution {
        self.metrics.entry(metric).or_default()
    }

    fn add(&mut self, other: &Self) {
        self.counts.add(&other.counts);
        for (metric, distribution) in &other.metrics {
            self.metric(*metric).add(distribution);
        }
    }
}

impl Summary {
    /// Counts a request.
    pub(crate) fn count(&mut self, record: &Record, times: Option<&AnswerTimes>) {
        self.all.count(record, times);
        // One class is all.
        if let Some(class) = self.classes.get_mut(&record.class) {
            class.count(record, times);
        }
        if let Some(failure) = &record.failure {
            let known = self.failures.entry(failure.kind);
            let first = || Failures {
                count: 0,
                example: failure.message.clone(),
            };
            known.or_insert_with(first).count += 1;
        }
        if let Some(source) = record.token_source {
            *self.token_sources.entry(source).or_default() += 1;
            self.input_tokens += record.input_tokens.unwrap_or(0);
            self.cached_tokens += record.cached_tokens.unwrap_or(0);
            self.output_tokens += record.output_tokens;
            self.events += record.events;
        }
        self.clipped += u64::from(record.clipped);
        let end = record.scheduled_us + record.e2e_us;
        self.widen(Some(record.scheduled_us), Some(end));
    }

    /// Adds another one's requests.
    pub fn add(&mut self, other: &Self) {
        self.all.add(&other.all);
        for (class, group) in &other.classes {
            self.classes.entry(class.clone()).or_default().add(group);
        }
        for (kind, failures) in &other.failures {
            let known = self.failures.entry(*kind);
            let none = || Failures {
                count: 0,
                ..failures.clone()
            };
            known.or_insert_with(none).count += failures.count;
        }
        for (source, count) in &other.token_sources {
            *self.token_sources.entry(*source).or_default() += count;
        }
        self.input_tokens += other.input_tokens;
        self.cached_tokens += other.cached_tokens;
        self.output_tokens += other.output_tokens;
        self.events += other.events;
        self.clipped += other.clipped;
        self.widen(other.first_us, other.last_us);
    }

    /// Seconds from the first scheduled send to the last end.
    #[must_use]
    pub fn span_s(&self) -> f64 {
        match (self.first_us, self.last_us) {
            (Some(first), Some(last)) => last.saturating_sub(first) as f64 / 1e6,
            _ => 0.0,
        }
    }

    fn widen(&mut self, first: Option<u64>, last: Option<u64>) {
        self.first_us = self.first_us.into_iter().chain(first).min();
        self.last_us = self.last_us.max(last);
    }
}

/// The phases of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Phases {
    /// Before the figures count.
    pub warm_up: Summary,
    /// What the figures are of.
    pub measured: Summary,
    /// After that.
    pub cool_down: Summary,
}

impl Phases {
    /// With a group for each class, where there are several.
    #[must_use]
    pub fn of_classes(classes: &[String]) -> Self {
        let mut phases = Self::default();
        if classes.len() > 1 {
            let groups = classes.iter().map(|name| (name.clone(), Group::default()));
            phases.measured.classes = groups.collect();
        }
        phases
    }

    pub(crate) fn count(&mut self, record: &Record, times: Option<&AnswerTimes>) {
        let summary = match record.phase {
            Phase::WarmUp => &mut self.warm_up,
            Phase::Measured => &mut self.measured,
            Phase::CoolDown => &mut self.cool_down,
        };
        summary.count(record, times);
    }

    /// Adds another run's requests.
    pub fn add(&mut self, other: &Self) {
        self.warm_up.add(&other.warm_up);
        self.measured.add(&other.measured);
        self.cool_down.add(&other.cool_down);
    }

    /// All requests, whatever their phase.
    #[must_use]
    pub fn requests(&self) -> u64 {
        [&self.warm_up, &self.measured, &self.cool_down]
            .iter()
            .map(|summary| summary.all.counts.all())
            .sum()
    }

    /// All events with tokens.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.warm_up.events + self.measured.events + self.cool_down.events
    }
}

#[cfg(test)]
mod tests;

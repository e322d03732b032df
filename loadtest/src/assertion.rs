//! What a run must come to: `p99_ttft<500ms`, `chat:p90_tpot<=50ms`, `error_rate<1%`, `goodput>5`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::distribution::{Distribution, SHOWN};
use crate::results::Run;
use crate::summary::Metric;
use crate::units::{UnitError, duration, micros, share};

/// Which figure of a distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Statistic {
    Quantile(f64),
    Mean,
    Max,
}

/// Which figure of a run.
#[derive(Clone, Debug, PartialEq)]
enum Subject {
    Of {
        class: Option<String>,
        statistic: Statistic,
        metric: Metric,
    },
    ErrorRate,
    RejectedRate,
    Attainment,
    CachedShare,
    Goodput,
    Answered,
    OutputTokens,
    InputTokens,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Less,
    LessOrEqual,
    More,
    MoreOrEqual,
}

/// One assertion.
#[derive(Clone, Debug, PartialEq)]
pub struct Assertion {
    text: String,
    subject: Subject,
    order: Order,
    bound: f64,
}

/// What came of an assertion in one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The assertion, as it was written.
    pub assertion: String,
    /// The run's load.
    pub load: String,
    /// What was found, in the unit that the figure has in results.
    pub found: Option<f64>,
    /// That unit.
    pub unit: Unit,
    /// Whether it holds. A figure that the run does not have holds nothing.
    pub holds: bool,
}

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Microseconds.
    Us,
    /// From 0 to 1.
    Share,
    /// Tokens.
    Tokens,
    /// In each second.
    PerSecond,
}

const ASSERTION: &str = "an assertion such as p99_ttft<500ms (p50, p90, p95, p99, p99.9, mean or max of ttft, tpot, \
     itl, gap, e2e, input_tokens or output_tokens; chat:p99_ttft for one class), or one of error_rate, \
     rejected_rate, attainment, cached_share (as 1%), goodput, answered_per_s, output_tokens_per_s and \
     input_tokens_per_s (as 5)";

const RATES: [(&str, Subject); 8] = [
    ("error_rate", Subject::ErrorRate),
    ("rejected_rate", Subject::RejectedRate),
    ("attainment", Subject::Attainment),
    ("cached_share", Subject::CachedShare),
    ("goodput", Subject::Goodput),
    ("answered_per_s", Subject::Answered),
    ("output_tokens_per_s", Subject::OutputTokens),
    ("input_tokens_per_s", Subject::InputTokens),
];

impl Subject {
    fn parse(name: &str) -> Option<Self> {
        if let Some((_, rate)) = RATES.into_iter().find(|(known, _)| *known == name) {
            return Some(rate);
        }
        let (class, name) = match name.split_once(':') {
            Some((class, name)) => (Some(class.to_owned()), name),
            None => (None, name),
        };
        let (statistic, metric) = name.split_once('_')?;
        let quantile = SHOWN.into_iter().find(|(known, _)| *known == statistic);
        let statistic = match (quantile, statistic) {
            (Some((_, q)), _) => Statistic::Quantile(q),
            (None, "mean") => Statistic::Mean,
            (None, "max") => Statistic::Max,
            _ => return None,
        };
        let metric = Metric::ALL
            .into_iter()
            .find(|known| known.name() == metric)?;
        Some(Self::Of {
            class,
            statistic,
            metric,
        })
    }

    const fn unit(&self) -> Unit {
        match self {
            Self::Of { metric, .. } if metric.is_time() => Unit::Us,
            Self::Of { .. } => Unit::Tokens,
            Self::ErrorRate | Self::RejectedRate | Self::Attainment | Self::CachedShare => {
                Unit::Share
            }
            Self::Goodput | Self::Answered | Self::OutputTokens | Self::InputTokens => {
                Unit::PerSecond
            }
        }
    }

    /// In the unit that the figure has in results.
    fn bound(&self, text: &str) -> Option<f64> {
        match self.unit() {
            Unit::Us => Some(micros(duration(text).ok()?) as f64),
            Unit::Share => share(text).ok(),
            Unit::Tokens | Unit::PerSecond => {
                text.parse().ok().filter(|bound: &f64| bound.is_finite())
            }
        }
    }

    fn of(&self, run: &Run) -> Option<f64> {
        let figures = &run.figures;
        let measured = &run.phases.measured;
        Some(match self {
            Self::Of {
                class,
                statistic,
                metric,
            } => {
                let group = match class {
                    Some(class) => measured.classes.get(class)?,
                    None => &measured.all,
                };
                statistic.of(group.metrics.get(metric)?)?
            }
            Self::ErrorRate => figures.error_rate,
            Self::RejectedRate => figures.rejected_rate,
            Self::Attainment => figures.attainment,
            Self::CachedShare => figures.cached_share,
            Self::Goodput => figures.goodput_per_s,
            Self::Answered => figures.answered_per_s,
            Self::OutputTokens => figures.output_tokens_per_s,
            Self::InputTokens => figures.input_tokens_per_s,
        })
    }
}

impl Statistic {
    fn of(self, distribution: &Distribution) -> Option<f64> {
        match self {
            Self::Quantile(q) => distribution.quantile(q).map(|value| value as f64),
            Self::Mean => distribution.mean(),
            Self::Max => distribution.max().map(|value| value as f64),
        }
    }
}

impl Assertion {
    /// Whether it is about failed requests, and so replaces the rule that there must be none.
    #[must_use]
    pub const fn is_about_errors(&self) -> bool {
        matches!(self.subject, Subject::ErrorRate | Subject::RejectedRate)
    }

    /// The class that it is about, where it is about one.
    #[must_use]
    pub fn class(&self) -> Option<&str> {
        match &self.subject {
            Subject::Of { class, .. } => class.as_deref(),
            _ => None,
        }
    }

    /// Holds it against a run.
    #[must_use]
    pub fn check(&self, run: &Run) -> Verdict {
        let found = self.subject.of(run);
        Verdict {
            assertion: self.text.clone(),
            load: run.place().to_string(),
            found,
            unit: self.subject.unit(),
            holds: found.is_some_and(|found| match self.order {
                Order::Less => found < self.bound,
                Order::LessOrEqual => found <= self.bound,
                Order::More => found > self.bound,
                Order::MoreOrEqual => found >= self.bound,
            }),
        }
    }
}

impl FromStr for Assertion {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let wrong = || UnitError::new(text, ASSERTION);
        let at = text.find(['<', '>']).ok_or_else(wrong)?;
        let (name, rest) = text.split_at(at);
        let (order, bound) = match (rest.as_bytes()[0], rest[1..].strip_prefix('=')) {
            (b'<', None) => (Order::Less, &rest[1..]),
            (b'<', Some(bound)) => (Order::LessOrEqual, bound),
            (_, None) => (Order::More, &rest[1..]),
            (_, Some(bound)) => (Order::MoreOrEqual, bound),
        };
        let subject = Subject::parse(name.trim()).ok_or_else(wrong)?;
        let bound = subject.bound(bound.trim()).ok_or_else(wrong)?;
        Ok(Self {
            text: text.to_owned(),
            subject,
            order,
            bound,
        })
    }
}

impl fmt::Display for Assertion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests;

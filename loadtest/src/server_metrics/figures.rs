//! What a server's metrics came to over a run, as it stands in the results.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::exposition::{Kind, Labels};

/// One server's metrics over a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerMetrics {
    /// Where they were read.
    pub url: String,
    /// Seconds from the first reading to the last.
    pub span_s: f64,
    /// Readings: before the run, each second of it, and after it.
    pub scrapes: u64,
    /// Those that failed.
    pub failed: u64,
    /// Why the first of those failed.
    pub problem: Option<String>,
    /// How often a counter began anew: the server, or a part of it, was started again.
    pub resets: u64,
    /// Series beyond what is kept.
    pub left_out: u64,
    /// By name.
    pub families: BTreeMap<String, Family>,
}

/// All series of one name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Family {
    /// What kind of figure it is.
    pub kind: Kind,
    /// Whether it is one of those that a summary shows.
    pub shown: bool,
    /// By their labels.
    pub series: Vec<Series>,
}

/// One series.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// What tells it from the others of its name.
    pub labels: Labels,
    /// What it came to.
    #[serde(flatten)]
    pub figures: SeriesFigures,
}

/// What a series came to over a run, in the unit that the server has it in.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum SeriesFigures {
    /// A counter.
    Counter {
        /// By how much it grew.
        difference: f64,
        /// The same for each second.
        per_s: f64,
    },
    /// A gauge.
    Gauge {
        /// The least that was read.
        min: f64,
        /// The mean of all readings.
        mean: f64,
        /// The greatest that was read.
        max: f64,
        /// What was read at the end.
        last: f64,
    },
    /// A histogram, or a summary (which has no percentiles): the values of the run alone.
    Histogram {
        /// How many values came.
        count: f64,
        /// The same for each second.
        per_s: f64,
        /// Their mean.
        mean: Option<f64>,
        /// Percentiles, as far as the server's buckets tell: within one, values are taken to be spread evenly.
        p50: Option<f64>,
        /// The same.
        p90: Option<f64>,
        /// The same.
        p95: Option<f64>,
        /// The same.
        p99: Option<f64>,
    },
}

impl SeriesFigures {
    /// Whether anything happened; a gauge that stayed as it was says how the server is set, mostly.
    #[must_use]
    pub fn moved(&self) -> bool {
        match self {
            Self::Counter { difference, .. } => *difference != 0.0,
            Self::Gauge { min, max, .. } => min != max,
            Self::Histogram { count, .. } => *count != 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gauge_that_stayed_as_it_was_has_not_moved() {
        let gauge = |min, max| SeriesFigures::Gauge {
            min,
            mean: min,
            max,
            last: max,
        };
        assert!(gauge(0.0, 1.0).moved() && gauge(-1.0, 0.0).moved());
        assert!(!gauge(0.0, 0.0).moved() && !gauge(4.0, 4.0).moved());
        let counter = |difference| SeriesFigures::Counter {
            difference,
            per_s: 0.0,
        };
        assert!(counter(1.0).moved() && !counter(0.0).moved());
    }
}

//! What a test found, in a form that others can read, merge and compare: `docs/LOADTEST.md` describes it.

mod figures;
mod merge;
mod places;

pub use figures::{Figures, Interval, over_repeats};
pub(crate) use merge::OWN_SETTINGS;
pub use merge::{MergeError, merge};
pub use places::{Place, places};

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::assertion::Verdict;
use crate::distribution::Distribution;
use crate::record::Record;
use crate::search::Found;
use crate::server_metrics::ServerMetrics;
use crate::slo::Slos;
use crate::summary::{Group, Phases};

/// Name and version of the form. It changes where a field's meaning does.
pub const FORMAT: &str = "tandem-loadtest/1";

/// A whole test: one run, or those of a sweep, of repeats or of a search.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Results {
    /// [`FORMAT`].
    pub format: String,
    /// Version of the program that wrote it.
    pub version: String,
    /// The server's address.
    pub url: String,
    /// The model that was asked for.
    pub model: String,
    /// What was asked for, by the names of the command line.
    pub settings: BTreeMap<String, String>,
    /// The limits that make an answer late.
    pub slos: Slos,
    /// All runs, in the order in which they were.
    pub runs: Vec<Run>,
    /// What a search found.
    pub search: Option<Found>,
    /// What was asserted.
    pub assertions: Vec<Verdict>,
}

impl Results {
    /// How many assertions were missed, in words; `None`: all hold.
    #[must_use]
    pub fn missed(&self) -> Option<String> {
        let missed = self.assertions.iter().filter(|verdict| !verdict.holds);
        match (missed.count(), self.assertions.len()) {
            (0, _) => None,
            (missed, all) => Some(format!("{missed} of {all} assertions missed")),
        }
    }
}

/// How hard a run pressed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoadPoint {
    /// Requests (or sessions) per second on average, sent whether or not earlier ones were answered.
    Rate(f64),
    /// Requests (or sessions) at a time, each sent when another was answered.
    Concurrency(u32),
    /// A trace's own times, so many times as fast.
    TraceSpeed(f64),
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunEnd {
    /// All requests were made and had their end.
    Complete,
    /// Somebody stopped it: the figures are of what had its end until then.
    Interrupted,
    /// The server was gone: connection after connection failed.
    ServerGone,
}

/// Which share of a test's requests a process sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// From 1.
    pub number: u32,
    /// How many there are.
    pub of: u32,
}

/// One run at one load.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    /// How hard it pressed.
    pub load: LoadPoint,
    /// What the server was made for it, as `NAME=VALUE`, in a sweep over that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setting: Option<String>,
    /// Which of the repeats at this load it was, from 1.
    pub repeat: u32,
    /// The seed that its arrivals and requests come from.
    pub seed: u64,
    /// The parts of the test that are in it.
    pub parts: Vec<Part>,
    /// When it started, milliseconds since 1970.
    pub started_unix_ms: u64,
    /// Seconds of the schedule that the measured requests come from; `None` for a fixed concurrency.
    pub window_s: Option<f64>,
    /// How it ended.
    pub ended: RunEnd,
    /// Requests under way when it was stopped: they are in no figure.
    pub cut: u64,
    /// Why its figures are not to be trusted; empty: they are.
    pub invalid: Vec<String>,
    /// What else has to be known of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The figures that follow from the phases.
    pub figures: Figures,
    /// What it cost the client, and how well that kept up.
    pub client: ClientFigures,
    /// All requests.
    #[serde(flatten)]
    pub phases: Phases,
    /// Second by second.
    pub timeline: Vec<Second>,
    /// The measured requests that took longest, the longest first, at most [`crate::record::SLOWEST`] of them.
    #[serde(default)]
    pub slowest: Vec<Record>,
    /// What servers said of themselves, where they were asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub server: Vec<ServerMetrics>,
}

/// The client's own side of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ClientFigures {
    /// Cores that it may use.
    pub cores: u32,
    /// Seconds of the run.
    pub wall_s: f64,
    /// CPU seconds that it used.
    pub cpu_s: f64,
    /// Share of its cores.
    pub cpu_share: f64,
    /// CPU microseconds for a request.
    pub cpu_us_per_request: Option<f64>,
    /// CPU microseconds for an event with tokens.
    pub cpu_us_per_event: Option<f64>,
    /// How much later than scheduled requests were begun, microseconds.
    pub lateness: Distribution,
    /// How much later than its time a timer was served, microseconds: what comes is seen that much later.
    pub loop_delay: Distribution,
    /// Most requests under way at a time.
    pub peak_in_flight: u64,
}

/// One second of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Second {
    /// Requests scheduled in it.
    pub scheduled: u64,
    /// Whole answers that ended in it.
    pub answered: u64,
    /// Requests that ended in it otherwise.
    pub failed: u64,
    /// Events with tokens that came in it.
    pub events: u64,
    /// Tokens that came in it.
    pub tokens: u64,
}

impl Run {
    /// Requests of one group within the SLO, per second of what goodput counts by.
    #[must_use]
    pub fn goodput_per_s(&self, group: &Group) -> f64 {
        let seconds = self.window_s.unwrap_or(self.figures.span_s);
        match seconds > 0.0 {
            true => group.counts.attained as f64 / seconds,
            false => 0.0,
        }
    }
}

impl ClientFigures {
    /// CPU time by request and by event.
    pub(crate) fn per(&mut self, requests: u64, events: u64) {
        let cpu_us = self.cpu_s * 1e6;
        let per = |n: u64| (n > 0).then(|| cpu_us / n as f64);
        self.cpu_us_per_request = per(requests);
        self.cpu_us_per_event = per(events);
    }
}

impl std::fmt::Display for LoadPoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Rate(rate) => write!(f, "{} requests/s", rounded(*rate)),
            Self::Concurrency(at_a_time) => write!(f, "{at_a_time} at a time"),
            Self::TraceSpeed(speed) => write!(f, "trace, speed {}", rounded(*speed)),
        }
    }
}

/// With as many digits as anybody reads.
fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

impl std::str::FromStr for Part {
    type Err = crate::units::UnitError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = text.split_once('/').and_then(|(number, of)| {
            let (number, of) = (number.parse().ok()?, of.parse().ok()?);
            (1 <= number && number <= of && of <= 1024).then_some(Self { number, of })
        });
        parts.ok_or_else(|| {
            crate::units::UnitError::new(text, "a part such as 1/3, the first of three")
        })
    }
}

//! What one run is to do.

use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::arrivals::{Process, RateCurve};
use crate::body::Asking;
use crate::results::{LoadPoint, Part};
use crate::slo::Slos;
use crate::units::{UnitError, duration, share};
use crate::workload::Workload;

/// When requests are sent.
#[derive(Clone, Debug)]
pub enum Load {
    /// By a rate, whatever comes back.
    Open {
        /// The rate over time.
        curve: RateCurve,
        /// How arrivals scatter around it.
        process: Process,
    },
    /// At a trace's own times, so many times as fast.
    Trace {
        /// 2 is twice as fast.
        speed: f64,
    },
    /// So many at a time, each sent when another has its end.
    Closed {
        /// How many.
        concurrency: u32,
        /// In what time they begin, one after the other.
        ramp: Duration,
    },
}

/// How much of a run's beginning or end is kept apart.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Margin {
    /// Nothing.
    #[default]
    None,
    /// So long.
    Time(Duration),
    /// So many requests.
    Requests(u64),
    /// This share of all requests.
    Share(f64),
}

impl FromStr for Margin {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let wrong = || {
            UnitError::new(
                text,
                "a time such as 10s, a number of requests or a share such as 5%",
            )
        };
        if text.ends_with('%') {
            return Ok(Self::Share(share(text)?));
        }
        match text.parse() {
            Ok(requests) => Ok(Self::Requests(requests)),
            Err(_) => duration(text).map(Self::Time).map_err(|_| wrong()),
        }
    }
}

/// Beyond these a run's figures are not to be trusted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// Of the 99th percentile of lateness, and of the runtime's delay.
    pub lateness: Duration,
    /// Of the client's share of its cores.
    pub cpu_share: f64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            lateness: Duration::from_millis(10),
            cpu_share: 0.8,
        }
    }
}

/// One run.
#[derive(Clone, Debug)]
pub struct RunPlan {
    /// When requests are sent.
    pub load: Load,
    /// How the results call that.
    pub point: LoadPoint,
    /// What the server was made for it, as `NAME=VALUE`, in a sweep over that.
    pub setting: Option<String>,
    /// Which of the repeats it is, from 1.
    pub repeat: u32,
    /// What the requests are.
    pub workload: Arc<Workload>,
    /// What they have in common.
    pub asking: Asking,
    /// A header that carries the request's class.
    pub class_header: Option<http::HeaderName>,
    /// A header that carries what the request's session goes by.
    pub session_header: Option<http::HeaderName>,
    /// When an answer is late.
    pub slos: Slos,
    /// No more requests (or sessions) than this.
    pub requests: Option<u64>,
    /// None is scheduled after this.
    pub duration: Option<Duration>,
    /// Not in the figures, at the beginning.
    pub warm_up: Margin,
    /// Not in the figures, at the end.
    pub cool_down: Margin,
    /// A request has its end after this, from its scheduled send.
    pub timeout: Duration,
    /// Most requests (or sessions) under way at a time in an open loop.
    pub max_in_flight: u32,
    /// Which share of the requests is sent from here.
    pub part: Part,
    /// When to start; at once where it is past.
    pub start_at: Option<SystemTime>,
    /// When the figures are not to be trusted.
    pub bounds: Bounds,
}

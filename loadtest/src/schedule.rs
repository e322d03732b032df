//! A plan, resolved: when each request is to be sent, and to which phase it belongs. Pure.

use std::time::Duration;

use crate::arrivals::Arrivals;
use crate::plan::{Load, Margin, RunPlan};
use crate::record::Phase;
use crate::workload::Source;

/// Requests of one run, at most: their times are kept in memory.
pub const MOST_REQUESTS: u64 = 20_000_000;

/// Requests of a shorter time have come at once.
const SHORTEST_WINDOW: Duration = Duration::from_millis(10);

/// Why a plan cannot be carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// It has no end.
    #[error("the run has no end: give --requests or --duration")]
    Endless,
    /// It has too many requests.
    #[error(
        "the run has more than {MOST_REQUESTS} requests: give a smaller --requests, --duration or rate"
    )]
    TooMany,
    /// It has none.
    #[error(
        "the run has no requests: none is scheduled before its end; give a longer --duration, a higher rate or --requests"
    )]
    Empty,
    /// A share of an unknown number.
    #[error(
        "{0} as a number or a share of requests needs --requests where a fixed concurrency is tested"
    )]
    Unknown(&'static str),
    /// A replay without times.
    #[error("a replay at a speed needs --trace")]
    NoTrace,
    /// Nothing is left to measure.
    #[error("--warmup and --cooldown leave nothing to measure")]
    NothingMeasured,
}

/// When a run's requests are sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    /// The time of each, from the start; `None` where each follows another's end.
    pub times: Option<Vec<Duration>>,
    /// How many there are at most.
    pub requests: Option<u64>,
    /// The schedule's length; `None` for a fixed concurrency that ends by a number of requests.
    pub length: Option<Duration>,
    bounds: PhaseBounds,
}

/// Which requests are measured: these numbers, scheduled at these times.
#[derive(Clone, Debug, PartialEq)]
struct PhaseBounds {
    first: u64,
    behind: u64,
    from: Duration,
    to: Duration,
}

impl Schedule {
    /// Resolves a plan.
    ///
    /// # Errors
    ///
    /// [`ScheduleError`].
    pub fn of(plan: &RunPlan) -> Result<Self, ScheduleError> {
        let (times, length) = match &plan.load {
            Load::Closed { .. } => (None, plan.duration),
            Load::Open { .. } | Load::Trace { .. } => {
                let (times, length) = times(plan)?;
                (Some(times), Some(length))
            }
        };
        let known = [plan.requests, plan.workload.len()];
        let requests = match &times {
            Some(times) => Some(times.len() as u64),
            None => known.into_iter().flatten().min(),
        };
        if requests == Some(0) {
            return Err(ScheduleError::Empty);
        }
        if requests.is_none() && length.is_none() {
            return Err(ScheduleError::Endless);
        }
        let bounds = PhaseBounds::of(plan, requests, length)?;
        Ok(Self {
            times,
            requests,
            length,
            bounds,
        })
    }

    /// To which phase a request belongs that was scheduled at this time.
    #[must_use]
    pub fn phase(&self, index: u64, at: Duration) -> Phase {
        let PhaseBounds {
            first,
            behind,
            from,
            to,
        } = self.bounds;
        if index < first || at < from {
            Phase::WarmUp
        } else if index >= behind || at >= to {
            Phase::CoolDown
        } else {
            Phase::Measured
        }
    }

    /// Seconds of the schedule whose requests are measured; `None` where requests follow each other, or all
    /// come at once: such a schedule has no rate.
    #[must_use]
    pub fn window(&self) -> Option<Duration> {
        let times = self.times.as_ref()?;
        let at = |index: u64| times.get(index as usize).copied();
        let from = match self.bounds.first {
            0 => self.bounds.from,
            first => at(first).unwrap_or_default().max(self.bounds.from),
        };
        let to = at(self.bounds.behind).or(self.length).unwrap_or_default();
        let window = to.min(self.bounds.to).saturating_sub(from);
        (window >= SHORTEST_WINDOW).then_some(window)
    }
}

impl PhaseBounds {
    fn of(
        plan: &RunPlan,
        requests: Option<u64>,
        length: Option<Duration>,
    ) -> Result<Self, ScheduleError> {
        let count = |margin: Margin, name: &'static str| match (margin, requests) {
            (Margin::None | Margin::Time(_), _) => Ok(0),
            (Margin::Requests(count), Some(_)) => Ok(count),
            (Margin::Share(share), Some(requests)) => Ok((share * requests as f64).round() as u64),
            (_, None) => Err(ScheduleError::Unknown(name)),
        };
        let time = |margin: Margin| match margin {
            Margin::Time(time) => time,
            _ => Duration::ZERO,
        };
        let (warm, cool) = (plan.warm_up, plan.cool_down);
        if matches!(cool, Margin::Time(_)) && length.is_none() {
            return Err(ScheduleError::Unknown("--cooldown"));
        }
        let bounds = Self {
            first: count(warm, "--warmup")?,
            behind: requests
                .map_or(u64::MAX, |all| all)
                .saturating_sub(count(cool, "--cooldown")?),
            from: time(warm),
            to: length.map_or(Duration::MAX, |length| match cool {
                Margin::Time(cool) => length.saturating_sub(cool),
                _ => Duration::MAX,
            }),
        };
        if bounds.first >= bounds.behind || bounds.from >= bounds.to {
            return Err(ScheduleError::NothingMeasured);
        }
        Ok(bounds)
    }
}

fn times(plan: &RunPlan) -> Result<(Vec<Duration>, Duration), ScheduleError> {
    let most = [plan.requests, plan.workload.len()]
        .into_iter()
        .flatten()
        .min();
    let limit = plan.duration.unwrap_or(Duration::MAX);
    let (all, end): (Box<dyn Iterator<Item = Duration>>, _) = match &plan.load {
        Load::Open { curve, process } => {
            if most.is_none() && plan.duration.is_none() && curve.length().is_none() {
                return Err(ScheduleError::Endless);
            }
            let arrivals = Arrivals::new(curve.clone(), *process, plan.workload.seed);
            let by_count = most.and_then(|most| curve.time_of(most as f64));
            (Box::new(arrivals), curve.length().or(by_count))
        }
        Load::Trace { speed } => {
            let Source::Trace(trace) = &*plan.workload.source else {
                return Err(ScheduleError::NoTrace);
            };
            (
                Box::new(trace.rows.iter().map(|row| row.at.div_f64(*speed))),
                None,
            )
        }
        Load::Closed { .. } => return Ok((Vec::new(), Duration::ZERO)),
    };
    let most = most.unwrap_or(u64::MAX);
    let taken = usize::try_from(most.min(MOST_REQUESTS + 1)).unwrap_or(usize::MAX);
    let times: Vec<Duration> = all.take(taken).take_while(|at| *at < limit).collect();
    if times.len() as u64 > MOST_REQUESTS {
        return Err(ScheduleError::TooMany);
    }
    let last = times.last().copied().ok_or(ScheduleError::Empty)?;
    // Cut by a time, it lasts that long; else until the next request would have come.
    let cut = (times.len() as u64) < most;
    let length = match (plan.duration, end) {
        (Some(limit), Some(end)) if cut => limit.min(end),
        (Some(limit), None) if cut => limit,
        (_, Some(end)) => end.min(limit).max(last),
        (_, None) => last.mul_f64(times.len() as f64 / (times.len() as f64 - 1.0).max(1.0)),
    };
    // A request that is scheduled last is measured too.
    Ok((times, length.max(last + Duration::from_micros(1))))
}

#[cfg(test)]
mod tests;

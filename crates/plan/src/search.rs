//! Which numbers of prefill and decode workers serve the most.
//!
//! As DistServe's search does: for each split of the workers, the highest rate at which enough requests
//! keep the SLO, found by doubling and bisection; the best rate for each GPU wins.

use crate::{FleetPlan, PlanError, Pool, Request, Slo, Summary, simulate};

/// How a rate is searched.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal {
    /// What requests have to keep.
    pub slo: Slo,
    /// And how many of them, from 0 to 1.
    pub attainment: f64,
}

/// The highest rate that was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Best {
    /// How many times as fast as the trace; 0 where not even the slowest try kept the goal.
    pub speed: f64,
    /// Requests a second at that speed.
    pub rate: f64,
    /// What came of it; `None` where nothing kept the goal.
    pub summary: Option<Summary>,
}

/// One split of the workers.
#[derive(Clone, Debug, PartialEq)]
pub struct Split {
    /// Prefill workers.
    pub prefill: u32,
    /// Decode workers.
    pub decode: u32,
    /// What they serve.
    pub best: Best,
    /// Requests a second for each GPU.
    pub rate_per_gpu: f64,
}

/// The slowest and the fastest speed that is tried.
const SPEEDS: (f64, f64) = (1.0 / 1024.0, 1024.0);
/// Bisection ends when the ends differ by less than this share.
const PRECISION: f64 = 0.02;

/// The highest rate of this trace at which a fleet keeps the goal. What a fleet keeps at one rate it is
/// taken to keep at lower ones.
pub fn highest_rate(plan: &FleetPlan, trace: &[Request], goal: &Goal) -> Result<Best, PlanError> {
    let attempt = |speed: f64| {
        let outcomes = simulate(plan, &faster(trace, speed))?;
        let summary = Summary::of(&outcomes, &goal.slo);
        Ok((summary.attainment >= goal.attainment).then_some(summary))
    };
    let mut kept = None;
    let mut speed = 1.0;
    let mut failed = None;
    while (SPEEDS.0..=SPEEDS.1).contains(&speed) && (kept.is_none() || failed.is_none()) {
        match attempt(speed)? {
            Some(summary) => {
                kept = Some((speed, summary));
                speed *= 2.0;
            }
            None => {
                failed = Some(speed);
                speed /= 2.0;
            }
        }
    }
    if let (Some((mut low, mut summary)), Some(mut high)) = (kept, failed) {
        while high / low > 1.0 + PRECISION {
            let middle = (low * high).sqrt();
            match attempt(middle)? {
                Some(better) => (low, summary) = (middle, better),
                None => high = middle,
            }
        }
        kept = Some((low, summary));
    }
    let (speed, summary) = kept.unzip();
    let speed = speed.unwrap_or(0.0);
    let rate = rate(trace) * speed;
    Ok(Best {
        speed,
        rate,
        summary,
    })
}

/// All splits of `workers` workers, the best first. `prefill` and `decode` say what one of each is.
pub fn search(
    prefill: &Pool,
    decode: &Pool,
    workers: u32,
    trace: &[Request],
    goal: &Goal,
) -> Result<Vec<Split>, PlanError> {
    let mut splits = Vec::new();
    for count in 1..workers {
        let pool = |pool: &Pool, workers| Pool {
            workers,
            ..pool.clone()
        };
        let plan = FleetPlan::apart(pool(prefill, count), pool(decode, workers - count));
        let best = highest_rate(&plan, trace, goal)?;
        splits.push(Split {
            prefill: count,
            decode: workers - count,
            rate_per_gpu: best.rate / f64::from(plan.gpus()),
            best,
        });
    }
    splits.sort_by(|a, b| b.rate_per_gpu.total_cmp(&a.rate_per_gpu));
    Ok(splits)
}

/// The same requests, so many times as fast.
fn faster(trace: &[Request], speed: f64) -> Vec<Request> {
    let sooner = |asked: &Request| Request {
        at: asked.at.div_f64(speed),
        ..*asked
    };
    trace.iter().map(sooner).collect()
}

/// Requests a second: those after the first, in the time that they take to come.
fn rate(trace: &[Request]) -> f64 {
    let times = trace.iter().map(|asked| asked.at);
    let (first, last) = (times.clone().min(), times.max());
    let span = last.unwrap_or_default() - first.unwrap_or_default();
    match span.is_zero() {
        true => 0.0,
        false => (trace.len() - 1) as f64 / span.as_secs_f64(),
    }
}

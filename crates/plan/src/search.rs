//! Which numbers of workers serve the most.
//!
//! As DistServe's search does: for each split of the workers, and for workers that do both, the highest rate at which
//! enough requests keep the SLO, found by doubling and bisection; the best rate for each GPU wins.

mod why;

pub use why::{Neighbour, Saturates, Why, why};

use std::time::Duration;

use tandem_policies::PolicySettings;

use crate::run::simulate_until;
use crate::summary::share;
use crate::{FleetPlan, Outcome, PlanError, Pool, Request, Slo, Summary, Usage, simulate};

/// What is asked of a fleet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal {
    /// What requests have to keep.
    pub slo: Slo,
    /// And how many of them, from 0 to 1.
    pub attainment: f64,
}

/// When a simulation is given up: with more requests late than the goal allows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Abandon {
    pub(crate) slo: Slo,
    pub(crate) most_late: usize,
}

/// The highest rate that was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Best {
    /// How many times as fast as the trace; 0 where not even the slowest try kept the goal.
    pub speed: f64,
    /// Requests a second at that speed.
    pub rate: f64,
    /// What came of it; `None` where nothing kept the goal.
    pub kept: Option<Kept>,
}

/// What came of a trace at a rate at which the goal was kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kept {
    /// Of the requests.
    pub summary: Summary,
    /// Of prefill workers, where there are any.
    pub prefill: Option<Usage>,
    /// Of decode workers, or those that do both.
    pub decode: Usage,
}

/// A fleet that was tried.
#[derive(Clone, Debug, PartialEq)]
pub struct Tried {
    /// Prefill workers; 0 where all do both.
    pub prefill: u32,
    /// Decode workers, or those that do both.
    pub decode: u32,
    /// Its policy's place among those of the search.
    pub policy: usize,
    /// GPUs of all workers.
    pub gpus: u32,
    /// What it serves.
    pub best: Best,
}

impl Tried {
    /// Requests a second that keep the SLO at the highest rate.
    #[must_use]
    pub fn goodput(&self) -> f64 {
        let kept = self.best.kept.as_ref();
        self.best.rate * kept.map_or(0.0, |kept| kept.summary.attainment)
    }

    /// Requests a second for each GPU.
    #[must_use]
    pub fn rate_per_gpu(&self) -> f64 {
        self.best.rate / f64::from(self.gpus.max(1))
    }
}

/// Fleets among which to choose.
#[derive(Clone, Debug)]
pub struct Space<'a> {
    /// What one prefill worker is.
    pub prefill: &'a Pool,
    /// What one decode worker is, and one that does both.
    pub decode: &'a Pool,
    /// How many workers there are, of both kinds together.
    pub workers: u32,
    /// How a gateway may choose among them.
    pub policies: &'a [PolicySettings],
    /// Whether workers that do both are tried too.
    pub mixed: bool,
}

/// The slowest and the fastest speed that is tried.
const SPEEDS: (f64, f64) = (1.0 / 4096.0, 4096.0);
/// Bisection ends when the ends differ by less than this share.
const PRECISION: f64 = 0.02;

/// The highest rate of this trace at which a fleet keeps the goal. What a fleet keeps at one rate it is
/// taken to keep at lower ones.
///
/// # Errors
/// Where the fleet cannot be simulated.
pub fn highest_rate(plan: &FleetPlan, trace: &[Request], goal: &Goal) -> Result<Best, PlanError> {
    highest_near(plan, trace, goal, 1.0)
}

/// The same, where the answer is expected near a speed.
fn highest_near(
    plan: &FleetPlan,
    trace: &[Request],
    goal: &Goal,
    near: f64,
) -> Result<Best, PlanError> {
    let mut kept = None;
    let mut failed = None;
    let mut speed = near;
    while (SPEEDS.0..=SPEEDS.1).contains(&speed) && (kept.is_none() || failed.is_none()) {
        match attempt(plan, trace, goal, speed)? {
            Some(good) => {
                kept = Some((speed, good));
                speed *= 2.0;
            }
            None => {
                failed = Some(speed);
                speed /= 2.0;
            }
        }
    }
    if let (Some((mut low, mut best)), Some(mut high)) = (kept, failed) {
        while high / low > 1.0 + PRECISION {
            let middle = (low * high).sqrt();
            match attempt(plan, trace, goal, middle)? {
                Some(better) => (low, best) = (middle, better),
                None => high = middle,
            }
        }
        kept = Some((low, best));
    }
    let (speed, kept) = kept.unzip();
    let speed = speed.unwrap_or(0.0);
    Ok(Best {
        speed,
        rate: rate(trace) * speed,
        kept,
    })
}

fn attempt(
    plan: &FleetPlan,
    trace: &[Request],
    goal: &Goal,
    speed: f64,
) -> Result<Option<Kept>, PlanError> {
    let abandon = Abandon {
        slo: goal.slo,
        most_late: most_late(trace.len(), goal),
    };
    let done = simulate_until(plan, &faster(trace, speed), Some(abandon))?;
    Ok(done.and_then(|done| {
        let summary = Summary::of(&done.outcomes, &goal.slo);
        (summary.attainment >= goal.attainment).then_some(Kept {
            summary,
            prefill: done.prefill,
            decode: done.decode,
        })
    }))
}

/// How many of so many requests may be late, by the very share that decides: `(1 - 0.9) * 10` is a little below 1.
pub(crate) fn most_late(all: usize, goal: &Goal) -> usize {
    let about = (1.0 - goal.attainment) * all as f64;
    let keeps = |late: &usize| {
        let in_time = share(all.saturating_sub(*late), all);
        in_time.is_none_or(|share| share >= goal.attainment)
    };
    let candidates = 0..=about.ceil() as usize;
    candidates.rev().find(keeps).unwrap_or(0)
}

impl Space<'_> {
    /// How many fleets there are under all policies.
    #[must_use]
    pub fn fleets(&self) -> usize {
        self.splits().count() * self.policies.len()
    }

    /// Prefill workers of each split.
    fn splits(&self) -> std::ops::Range<u32> {
        u32::from(!self.mixed)..self.workers.max(1)
    }

    /// The fleet of so many prefill and decode workers; of workers that do both for 0 prefill workers.
    #[must_use]
    pub fn fleet(&self, prefill: u32, decode: u32, policy: usize) -> FleetPlan {
        let plan = match prefill {
            0 => FleetPlan::mixed(self.decode.of(decode)),
            prefill => FleetPlan::apart(self.prefill.of(prefill), self.decode.of(decode)),
        };
        plan.under(&self.policies[policy])
    }
}

/// All splits of the workers under all policies, the best first: by requests a second for each GPU. `tried` hears of
/// each.
///
/// # Errors
/// Where a fleet cannot be simulated.
pub fn search(
    space: &Space<'_>,
    trace: &[Request],
    goal: &Goal,
    mut tried: impl FnMut(&Tried),
) -> Result<Vec<Tried>, PlanError> {
    let mut all: Vec<Tried> = Vec::new();
    for policy in 0..space.policies.len() {
        let mut near = 1.0;
        for prefill in space.splits() {
            let plan = space.fleet(prefill, space.workers - prefill, policy);
            let best = highest_near(&plan, trace, goal, near)?;
            near = if best.speed > 0.0 { best.speed } else { 1.0 };
            let this = Tried {
                prefill,
                decode: space.workers - prefill,
                policy,
                gpus: plan.gpus(),
                best,
            };
            tried(&this);
            all.push(this);
        }
    }
    all.sort_by(|a, b| b.rate_per_gpu().total_cmp(&a.rate_per_gpu()));
    Ok(all)
}

/// What requests get that are each by themselves on a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alone {
    /// The earliest first token of any of them.
    pub ttft: Duration,
    /// The shortest time per output token of any of them.
    pub tpot: Duration,
    /// How many of them do not keep the SLO even so.
    pub missed: usize,
}

/// What a trace's requests get where nothing else runs; `None` for a trace without any.
///
/// # Errors
/// Where the fleet cannot be simulated.
pub fn alone(plan: &FleetPlan, trace: &[Request], slo: &Slo) -> Result<Option<Alone>, PlanError> {
    let mut all: Option<Alone> = None;
    for request in trace {
        // A token's time shows from the second on.
        let single = Request::new(Duration::ZERO, request.prompt, request.answer.max(2));
        let done = simulate(plan, &[single])?;
        let answer = done.outcomes.first().and_then(Outcome::answer);
        let (ttft, tpot) = answer.map_or((Duration::MAX, Duration::MAX), |a| (a.ttft, a.tpot()));
        let all = all.get_or_insert(Alone {
            ttft,
            tpot,
            missed: 0,
        });
        all.ttft = all.ttft.min(ttft);
        all.tpot = all.tpot.min(tpot);
        all.missed += usize::from(!answer.is_some_and(|answer| slo.attained(answer)));
    }
    Ok(all)
}

/// The same requests, so many times as fast.
#[must_use]
pub fn faster(trace: &[Request], speed: f64) -> Vec<Request> {
    let sooner = |asked: &Request| Request {
        at: asked.at.div_f64(speed),
        ..asked.clone()
    };
    trace.iter().map(sooner).collect()
}

/// Requests a second: those after the first, in the time that they take to come.
#[must_use]
pub fn rate(trace: &[Request]) -> f64 {
    let times = trace.iter().map(|asked| asked.at);
    let (first, last) = (times.clone().min(), times.max());
    let span = last.unwrap_or_default() - first.unwrap_or_default();
    match span.is_zero() {
        true => 0.0,
        false => (trace.len() - 1) as f64 / span.as_secs_f64(),
    }
}

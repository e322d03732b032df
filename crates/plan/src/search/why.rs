//! Why a fleet is the best one: what gives way first, and what one worker more or less would change.

use super::{Goal, PlanError, Space, Tried, faster, highest_near};
use crate::{Request, simulate};

/// What gives way first when a fleet gets more than it serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saturates {
    /// Prompts wait for prefill workers.
    Prefill,
    /// Decode workers' steps are too slow.
    DecodeSteps,
    /// Requests wait for room in decode workers' pages.
    DecodeRoom,
    /// Nothing does: the goal is kept at this rate too.
    Nothing,
}

/// A fleet with a worker more or less.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Neighbour {
    /// Prefill workers.
    pub prefill: u32,
    /// Decode workers.
    pub decode: u32,
    /// Requests a second at which it keeps the goal.
    pub rate: f64,
    /// The same for each GPU.
    pub rate_per_gpu: f64,
}

/// Why a fleet serves no more.
#[derive(Clone, Debug, PartialEq)]
pub struct Why {
    /// What gives way first.
    pub saturates: Saturates,
    /// At this rate, which is too high, the other shares were found.
    pub rate: f64,
    /// Share of requests whose first token was late.
    pub late_ttft: f64,
    /// Share of requests whose tokens were late.
    pub late_tpot: f64,
    /// Share of requests that waited in the gateway for most of the time that their first token may take.
    pub waited: f64,
    /// With a worker of one kind more or less.
    pub neighbours: Vec<Neighbour>,
}

/// By how much the rate is raised to see what gives way.
const PAST: f64 = 1.25;

/// Looks at a fleet that was found.
///
/// # Errors
/// Where a fleet cannot be simulated.
pub fn why(
    space: &Space<'_>,
    found: &Tried,
    trace: &[Request],
    goal: &Goal,
) -> Result<Why, PlanError> {
    let speed = found.best.speed * PAST;
    let plan = space.fleet(found.prefill, found.decode, found.policy);
    let outcomes = simulate(&plan, &faster(trace, speed))?.outcomes;
    let of = |is: &dyn Fn(&crate::Answer) -> bool| {
        let answers = outcomes.iter().filter_map(crate::Outcome::answer);
        answers.filter(|answer| is(answer)).count() as f64 / outcomes.len().max(1) as f64
    };
    let late_ttft = of(&|answer| answer.ttft > goal.slo.ttft);
    let late_tpot = of(&|answer| answer.tpot() > goal.slo.tpot);
    let waited = of(&|answer| answer.ttft > goal.slo.ttft && answer.queued * 2 > answer.ttft);
    let any = of(&|answer| !goal.slo.attained(answer));
    let saturates = match () {
        () if 1.0 - any >= goal.attainment => Saturates::Nothing,
        () if late_tpot >= late_ttft => Saturates::DecodeSteps,
        () if waited * 2.0 >= late_ttft => Saturates::DecodeRoom,
        () => Saturates::Prefill,
    };
    Ok(Why {
        saturates,
        rate: found.best.rate * PAST,
        late_ttft,
        late_tpot,
        waited,
        neighbours: neighbours(space, found, trace, goal)?,
    })
}

fn neighbours(
    space: &Space<'_>,
    found: &Tried,
    trace: &[Request],
    goal: &Goal,
) -> Result<Vec<Neighbour>, PlanError> {
    let (p, d) = (found.prefill, found.decode);
    let around = match p {
        0 => vec![(0, d + 1), (0, d.saturating_sub(1))],
        p => vec![(p + 1, d), (p - 1, d), (p, d + 1), (p, d - 1)],
    };
    // Without prefill workers it would be another kind of fleet.
    let around = around
        .into_iter()
        .filter(|(prefill, decode)| *decode > 0 && (*prefill > 0) == (p > 0));
    let look = |(prefill, decode)| {
        let plan = space.fleet(prefill, decode, found.policy);
        let best = highest_near(&plan, trace, goal, found.best.speed.max(f64::MIN_POSITIVE))?;
        Ok(Neighbour {
            prefill,
            decode,
            rate: best.rate,
            rate_per_gpu: best.rate / f64::from(plan.gpus().max(1)),
        })
    };
    around.map(look).collect()
}

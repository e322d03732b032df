//! A run, carried out: who sends what when, and who counts it.
//!
//! | task or thread | does | waits for |
//! | --- | --- | --- |
//! | the caller's thread | hands each request to the runtime at its moment (open loop) | the clock; never an answer |
//! | a thread of its own | makes requests ready ahead of time | room for them ([`prepared::AHEAD`]) |
//! | `loadtest-collect` | counts records, writes the file of requests | records |
//! | `loadtest-clock` | wakes tasks at their times | the next one |
//! | one task for each request, session or user | sends, reads, times | the server, with a deadline |
//!
//! What must hold: a request's time begins when it was scheduled, not when it was sent. Nobody who sends
//! waits for somebody who counts, but for a full queue.

mod client_side;
mod closed;
mod collector;
mod exchange;
#[cfg(test)]
mod held_up;
mod live;
mod notes;
mod open;
mod prepared;
mod recent;
mod session;

pub use live::{Glance, Live};
pub use recent::Lately;

pub(crate) use client_side::keeps_up;
pub(crate) use exchange::error_message;

use std::io::{self, Write};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use http::{HeaderName, HeaderValue};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::clock::{Clock, block_until};
use crate::endpoint::Endpoint;
use crate::harness::{TooFewDescriptors, allow_connections};
use crate::plan::{Load, RunPlan};
use crate::results::{Figures, Run, RunEnd};
use crate::schedule::{Schedule, ScheduleError};
use crate::slo::Slo;
use crate::units::UnitError;
use client_side::Watch;
use collector::{Collected, Sample, collect};

/// Why a run did not come to be.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The plan has no schedule.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// A search came to a load that cannot be.
    #[error(transparent)]
    Load(#[from] UnitError),
    /// A class cannot be a header's value.
    #[error("class {0:?} cannot be the value of the --class-header")]
    ClassHeader(String),
    /// As many connections as the plan needs cannot be.
    #[error(transparent)]
    Descriptors(#[from] TooFewDescriptors),
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}

/// What all tasks of a run share.
struct Context {
    endpoint: Arc<Endpoint>,
    plan: RunPlan,
    schedule: Schedule,
    classes: Vec<String>,
    slos: Vec<Option<Slo>>,
    class_header: Option<(HeaderName, Vec<HeaderValue>)>,
    start: Instant,
    clock: Clock,
    live: Arc<Live>,
    samples: mpsc::Sender<Sample>,
}

impl Context {
    async fn collect(&self, sample: Sample) {
        // The collector ends after everybody who could send to it.
        let _ = self.samples.send(sample).await;
    }
}

/// Carries out a plan; blocks until its end. `requests` gets a line of JSON for each request.
pub(crate) fn run(
    runtime: &Handle,
    endpoint: &Arc<Endpoint>,
    plan: &RunPlan,
    live: &Arc<Live>,
    requests: Option<&mut (dyn Write + Send)>,
) -> Result<Run, RunError> {
    let schedule = Schedule::of(plan)?;
    allow_connections(match plan.load {
        Load::Closed { concurrency, .. } => concurrency.into(),
        Load::Open { .. } | Load::Trace { .. } => plan.max_in_flight.into(),
    })?;
    let classes = plan.workload.class_names();
    let (samples, received) = mpsc::channel(collector::WAITING);
    let class_header = class_header(plan, &classes)?;
    let clock = Clock::start().map_err(RunError::Thread)?;
    wait_for_start(plan, Duration::ZERO, live);
    let started_at = SystemTime::now();
    let context = Arc::new(Context {
        endpoint: Arc::clone(endpoint),
        plan: plan.clone(),
        slos: classes
            .iter()
            .map(|class| plan.slos.of(class).copied())
            .collect(),
        class_header,
        start: live.start(),
        clock,
        live: Arc::clone(live),
        samples,
        schedule,
        classes: classes.clone(),
    });
    let watch = Watch::start(runtime, &context.clock);
    let window_s = context.schedule.window().map(|window| window.as_secs_f64());
    let collected = thread::scope(|threads| {
        let named = |name: &str| thread::Builder::new().name(name.to_owned());
        let collector = named("loadtest-collect")
            .spawn_scoped(threads, || collect(received, &classes, requests))
            .map_err(RunError::Thread)?;
        match plan.load {
            Load::Closed { concurrency, ramp } => {
                closed::drive(runtime, &context, concurrency, ramp)
            }
            Load::Open { .. } | Load::Trace { .. } => open::drive(runtime, &context),
        }
        // The last sender: the collector ends.
        drop(context);
        Ok::<_, RunError>(
            collector
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
        )
    });
    Ok(finish(
        plan,
        live,
        collected?,
        (window_s, started_at, watch),
    ))
}

fn class_header(
    plan: &RunPlan,
    classes: &[String],
) -> Result<Option<(HeaderName, Vec<HeaderValue>)>, RunError> {
    let Some(name) = &plan.class_header else {
        return Ok(None);
    };
    let value = |class: &String| {
        HeaderValue::from_str(class).map_err(|_| RunError::ClassHeader(class.clone()))
    };
    let values = classes.iter().map(value).collect::<Result<_, _>>()?;
    Ok(Some((name.clone(), values)))
}

/// Parts of one test on several hosts begin together; waits until so long before that.
pub(crate) fn wait_for_start(plan: &RunPlan, early: Duration, live: &Live) {
    let left = plan
        .start_at
        .and_then(|at| at.duration_since(SystemTime::now() + early).ok());
    if let Some(left) = left {
        block_until(Instant::now() + left, || live.stopped().is_some());
    }
}

fn finish(
    plan: &RunPlan,
    live: &Live,
    collected: Collected,
    (window_s, started_at, watch): (Option<f64>, SystemTime, Watch),
) -> Run {
    let glance = live.glance();
    let mut client = watch.finish(collected.lateness, live);
    client.per(collected.phases.requests(), collected.phases.events());
    let started = started_at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut run = Run {
        load: plan.point,
        setting: plan.setting.clone(),
        repeat: plan.repeat,
        seed: plan.workload.seed,
        parts: vec![plan.part],
        started_unix_ms: u64::try_from(started.as_millis()).unwrap_or(u64::MAX),
        window_s,
        ended: live.stopped().unwrap_or(RunEnd::Complete),
        cut: glance.sent.saturating_sub(glance.answered + glance.failed),
        invalid: Vec::new(),
        notes: notes::notes(&collected.phases.measured, &plan.workload),
        figures: Figures::of(&collected.phases.measured, window_s),
        client,
        phases: collected.phases,
        timeline: collected.timeline,
        slowest: collected.slowest,
        server: Vec::new(),
    };
    run.invalid = client_side::doubts(&run, &plan.bounds);
    if let Some(error) = collected.unwritten {
        // The figures are whole; who reads the file has to know.
        run.invalid
            .push(format!("the file of requests ends early: {error}"));
    }
    run
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn a_start_is_waited_for_and_what_comes_before_it_begins_earlier() {
        let load = Load::Closed {
            concurrency: 1,
            ramp: Duration::ZERO,
        };
        let starting = |after: Duration| RunPlan {
            start_at: Some(SystemTime::now() + after),
            ..testing::plan(load.clone())
        };
        let soon = starting(Duration::from_millis(50));
        wait_for_start(&soon, Duration::ZERO, &Live::default());
        assert!(Some(SystemTime::now()) >= soon.start_at);
        let later = starting(Duration::from_secs(5));
        wait_for_start(&later, Duration::from_secs(5), &Live::default());
        assert!(Some(SystemTime::now()) < later.start_at);
    }
}

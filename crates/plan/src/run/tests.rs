//! What workers report while a trace goes on: policies see nothing else of them.

use std::path::Path;

use tandem_config::{PROFILES, parse_profile};
use tandem_core::fleet::WorkerLoad;

use super::*;
use crate::Pool;

fn pool() -> Pool {
    let (_, text) = PROFILES
        .iter()
        .find(|(name, _)| *name == "deepseek-r1-tp8-h200")
        .unwrap();
    let profile = parse_profile(text, Path::new("profile")).unwrap();
    Pool::new(profile, 1)
}

/// The loads that the only worker would report, one after each event.
fn loads(trace: &[Request]) -> Vec<(Duration, WorkerLoad)> {
    let plan = FleetPlan::mixed(pool());
    let mut run = Run::new(&plan, trace, None).unwrap();
    let mut loads = Vec::new();
    while let Some(Reverse((now, _, event))) = run.events.pop() {
        run.now = now;
        run.happened(event);
        run.settle();
        if run.events.peek().is_none_or(|Reverse((at, ..))| *at > now) {
            run.begin_steps();
        }
        loads.push((now, run.workers[0].report()));
    }
    loads
}

#[test]
fn a_request_waits_until_its_first_token_and_runs_until_its_last() {
    let trace = [
        Request::new(Duration::ZERO, 2001, 30),
        Request::new(Duration::ZERO, 1001, 30),
    ];
    let loads = loads(&trace);
    let waiting = |load: &WorkerLoad| (load.queued_requests, load.queued_prompt_tokens);
    let most = loads.iter().map(|(_, load)| waiting(load)).max();
    assert_eq!(
        most,
        Some((2, 3000)),
        "all but the last token of each prompt"
    );
    let (_, last) = loads.last().unwrap();
    assert_eq!((waiting(last), last.running), ((0, 0), 0));
    let generating = loads
        .iter()
        .any(|(_, load)| load.queued_requests == 0 && load.running == 2);
    assert!(generating, "who has a token waits no more: {loads:?}");
}

#[test]
fn a_reported_step_is_in_microseconds() {
    let loads = loads(&[Request::new(Duration::ZERO, 101, 50)]);
    let profile = pool().profile;
    let step = profile.step(&tandem_timing::Work::decode(125));
    let (_, last) = loads.last().unwrap();
    let reported = f64::from(last.decode_step_us);
    let share = reported / (step.as_secs_f64() * 1e6);
    assert!((0.9..1.1).contains(&share), "{reported} us of {step:?}");
}

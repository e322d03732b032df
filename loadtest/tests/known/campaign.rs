//! Several runs as one test: what differs from run to run, and what ends a search.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tandem_loadtest::campaign::{Axis, Outcome, Runs, Watcher, carry_out};
use tandem_loadtest::plan::{Bounds, Load, RunPlan};
use tandem_loadtest::results::{LoadPoint, Run};
use tandem_loadtest::search::{Ended, SearchPlan};
use tandem_loadtest::{Harness, Live};

use crate::support::{SCRIPT, Server, closed, plan, synthetic};

/// Notes when each run is to start.
#[derive(Default)]
struct Starts(Vec<Option<SystemTime>>);

impl Watcher for Starts {
    fn begins(&mut self, plan: &RunPlan, _: &Arc<Live>) {
        self.0.push(plan.start_at);
    }
    fn ends(&mut self, _: &Run) {}
    fn is_stopped(&self) -> bool {
        false
    }
}

/// Limits that every client keeps.
const ANY: Bounds = Bounds {
    lateness: Duration::from_secs(5),
    cpu_share: 2.0,
};

fn base(harness: &Harness, requests: u64) -> RunPlan {
    let mut base = RunPlan {
        requests: Some(requests),
        bounds: ANY,
        ..plan(harness, closed(1), synthetic("1", "0s"))
    };
    base.slos.add("ttft=10s").unwrap();
    base
}

fn search(base: &RunPlan, harness: &Harness, plan: SearchPlan) -> Outcome {
    let axis = match plan.whole {
        true => Axis::Concurrency {
            ramp: Duration::ZERO,
        },
        false => Axis::Rate("constant".parse().unwrap()),
    };
    let runs = Runs::Search { axis, plan };
    carry_out(harness, base, &runs, &mut Starts::default(), None).unwrap()
}

const PLAN: SearchPlan = SearchPlan {
    start: 4.0,
    lowest: 1.0,
    highest: 8.0,
    attainment: 0.5,
    tolerance: 0.1,
    most_runs: 9,
    whole: false,
};

#[test]
fn only_the_first_run_waits_for_others_and_each_load_has_its_repeats() {
    let server = Server::answering(|_| SCRIPT);
    let harness = server.harness().unwrap();
    let start_at = Some(SystemTime::now());
    let base = RunPlan {
        start_at,
        ..base(&harness, 2)
    };
    let load =
        |at_a_time| -> (Load, LoadPoint) { (closed(at_a_time), LoadPoint::Concurrency(at_a_time)) };
    let runs = Runs::Each {
        loads: vec![load(1), load(2)],
        repeats: 2,
    };
    let mut starts = Starts::default();
    let outcome = carry_out(&harness, &base, &runs, &mut starts, None).unwrap();
    assert_eq!(starts.0, [start_at, None, None, None]);
    let made: Vec<(LoadPoint, u32, u64)> = outcome
        .runs
        .iter()
        .map(|run| (run.load, run.repeat, run.seed - base.workload.seed))
        .collect();
    let at = LoadPoint::Concurrency;
    assert_eq!(
        made,
        [(at(1), 1, 0), (at(1), 2, 1), (at(2), 1, 2), (at(2), 2, 3)]
    );
    assert_eq!(outcome.not_begun, 0);
}

#[test]
fn a_search_goes_on_where_requests_that_are_alone_meet_the_slo() {
    let server = Server::answering(|_| SCRIPT);
    let harness = server.harness().unwrap();
    // Each takes some 35 ms: at four a second it is alone.
    let outcome = search(&base(&harness, 6), &harness, PLAN);
    let found = outcome.search.unwrap();
    assert_eq!((found.ended, found.best), (Ended::AtHighest, Some(8.0)));
}

#[test]
fn a_load_that_is_tried_again_is_a_repeat_of_it() {
    let server = Server::answering(|_| SCRIPT);
    let harness = server.harness().unwrap();
    let plan = SearchPlan {
        start: 1.0,
        highest: 1.0,
        attainment: 1.0,
        whole: true,
        ..PLAN
    };
    let outcome = search(&base(&harness, 3), &harness, plan);
    let repeats: Vec<u32> = outcome.runs.iter().map(|run| run.repeat).collect();
    assert_eq!(repeats, [1, 2, 3]);
    assert_eq!(outcome.search.unwrap().probes[0].total, 9);
}

#[test]
fn a_client_that_did_not_keep_up_twice_at_a_load_ends_a_search() {
    let server = Server::answering(|_| SCRIPT);
    let harness = server.harness().unwrap();
    let base = RunPlan {
        bounds: Bounds {
            cpu_share: 0.0,
            ..ANY
        },
        ..base(&harness, 3)
    };
    let plan = SearchPlan {
        start: 2.0,
        whole: true,
        ..PLAN
    };
    let outcome = search(&base, &harness, plan);
    assert_eq!(outcome.runs.len(), 2, "once may be by chance");
    let found = outcome.search.unwrap();
    assert_eq!((found.ended, found.best), (Ended::ClientLimit, None));
    assert!(found.probes.is_empty(), "such a run tells nothing");
}

//! A server that goes away in a test of several runs: no other run is begun, and what there is is kept.

use std::sync::Arc;
use std::thread::{self, JoinHandle};

use tandem_loadtest::campaign::{Axis, Outcome, Runs, Watcher, carry_out};
use tandem_loadtest::plan::RunPlan;
use tandem_loadtest::record::FailureKind;
use tandem_loadtest::results::{Run, RunEnd};
use tandem_loadtest::search::{Ended, SearchPlan};
use tandem_loadtest::{Harness, Live};

use crate::support::{SCRIPT, Server, closed, plan, synthetic};

/// Ends the server in the first run, once that has some answers.
struct Killer {
    server: Option<Server>,
    killing: Option<JoinHandle<()>>,
}

const ANSWERS: u64 = 10;

impl Watcher for Killer {
    fn begins(&mut self, _: &RunPlan, live: &Arc<Live>) {
        let live = Arc::clone(live);
        self.killing = self.server.take().map(|server| {
            thread::spawn(move || {
                while live.glance().answered < ANSWERS {
                    thread::yield_now();
                }
                server.runtime.shutdown_background();
                drop(server.known);
            })
        });
    }

    fn ends(&mut self, _: &Run) {
        if let Some(killing) = self.killing.take() {
            killing.join().unwrap();
        }
    }

    fn is_stopped(&self) -> bool {
        false
    }
}

/// A test whose runs have too few requests to tell by their number that nobody is there.
fn carried_out(runs: impl FnOnce(&RunPlan) -> Runs) -> Outcome {
    let server = Server::answering(|_| SCRIPT);
    let harness: Harness = server.harness().unwrap();
    let mut base = RunPlan {
        requests: Some(30),
        ..plan(&harness, closed(1), synthetic("1", "0s"))
    };
    base.slos.add("ttft=10s").unwrap();
    let mut killer = Killer {
        server: Some(server),
        killing: None,
    };
    let runs = runs(&base);
    carry_out(&harness, &base, &runs, &mut killer, None).unwrap()
}

fn assert_kept(outcome: &Outcome) {
    assert_eq!(outcome.runs.len(), 1);
    let run = &outcome.runs[0];
    assert_eq!(run.ended, RunEnd::ServerGone);
    let measured = &run.phases.measured;
    assert!(measured.all.counts.attained >= ANSWERS);
    let refused = measured.failures[&FailureKind::Connect].count;
    assert!((1..64).contains(&refused), "{refused}");
}

#[test]
fn a_sweep_ends_with_the_run_in_which_its_server_went_away() {
    let outcome = carried_out(|base| Runs::Each {
        loads: vec![(base.load.clone(), base.point); 3],
        repeats: 2,
    });
    assert_kept(&outcome);
    assert_eq!(outcome.not_begun, 5);
}

#[test]
fn a_search_ends_with_the_run_in_which_its_server_went_away() {
    let outcome = carried_out(|_| Runs::Search {
        axis: Axis::Concurrency {
            ramp: std::time::Duration::ZERO,
        },
        plan: SearchPlan {
            start: 1.0,
            lowest: 1.0,
            highest: 64.0,
            attainment: 0.5,
            tolerance: 0.1,
            most_runs: 30,
            whole: true,
        },
    });
    assert_kept(&outcome);
    let found = outcome.search.unwrap();
    assert_eq!((found.ended, found.best), (Ended::ServerGone, None));
}

//! The search, end to end, against a server whose capacity is known.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tandem_loadtest::Live;
use tandem_loadtest::campaign::{Axis, Runs, Watcher, carry_out};
use tandem_loadtest::known_server::Script;
use tandem_loadtest::plan::{Bounds, RunPlan};
use tandem_loadtest::results::Run;
use tandem_loadtest::search::{Ended, SearchPlan};

use crate::support::{SCRIPT, Server, open, plan, synthetic};

struct Nobody;

impl Watcher for Nobody {
    fn begins(&mut self, _: &RunPlan, _: &Arc<Live>) {}
    fn ends(&mut self, _: &Run) {}
    fn is_stopped(&self) -> bool {
        false
    }
}

#[test]
fn the_highest_rate_that_a_single_queue_serves_in_time_is_found() {
    // One after the other, 5 ms each: 200 a second, and a queue that grows beyond.
    let free_at = Mutex::new(Duration::ZERO);
    let server = Server::answering(move |asked| {
        let mut free_at = free_at.lock().unwrap();
        *free_at = (*free_at).max(asked.at) + Duration::from_millis(5);
        Script {
            first: *free_at - asked.at,
            tokens: 1,
            ..SCRIPT
        }
    });
    let harness = server.harness().unwrap();
    let mut base = RunPlan {
        requests: Some(150),
        ..plan(&harness, open("1", "constant"), synthetic("1", "0s"))
    };
    base.slos.add("ttft=60ms").unwrap();
    base.bounds = Bounds {
        lateness: Duration::from_secs(5),
        cpu_share: 1.0,
    };
    let runs = Runs::Search {
        axis: Axis::Rate("constant".parse().unwrap()),
        plan: SearchPlan {
            start: 120.0,
            lowest: 10.0,
            highest: 5000.0,
            attainment: 0.9,
            tolerance: 0.1,
            most_runs: 30,
            whole: false,
        },
    };
    let outcome = carry_out(&harness, &base, &runs, &mut Nobody, None).unwrap();
    let found = outcome.search.unwrap();
    assert_eq!(found.ended, Ended::Converged, "{found:?}");
    // With 150 requests the queue reaches 60 ms within 90 % of them from 200 / (1 - 55/675) = 218 a second on.
    let best = found.best.unwrap();
    assert!((150.0..240.0).contains(&best), "{found:?}");
    // No two runs send the same prompts.
    let seeds: std::collections::HashSet<u64> = outcome.runs.iter().map(|run| run.seed).collect();
    assert_eq!(seeds.len(), outcome.runs.len());
}

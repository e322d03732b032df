//! How fast the simulation is: requests for each second of computing, on one core.
//!
//! `cargo run --release -p tandem-plan --example speed`
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "an example that measures"
)]

use std::path::Path;
use std::time::{Duration, Instant};

use tandem_config::{PROFILES, parse_profile};
use tandem_plan::{Blocks, FleetPlan, Pool, Request, simulate};
use tandem_policies::{PolicySettings, Rule};

fn pool(name: &str, workers: u32) -> Pool {
    let (_, text) = PROFILES.iter().find(|(n, _)| *n == name).unwrap();
    Pool::new(parse_profile(text, Path::new(name)).unwrap(), workers)
}

/// Conversations of eight turns, a new one each `1 / rate` seconds, with prompts that grow by 1,024 tokens.
fn trace(rate: f64, count: u64, known: bool) -> Vec<Request> {
    let request = |n: u64| {
        let (conversation, turn) = (n / 8, n % 8 + 1);
        let ids = (0..turn * 2)
            .map(|block| conversation * 100 + block)
            .collect();
        Request {
            blocks: known.then_some(Blocks { tokens: 512, ids }),
            ..Request::new(
                Duration::from_secs_f64(n as f64 / rate),
                turn as u32 * 1024,
                300,
            )
        }
    };
    (0..count).map(request).collect()
}

fn main() {
    let name = "deepseek-r1-tp8-h200";
    let mut policy = PolicySettings::default();
    (policy.prefill.choose, policy.decode.choose) = (Rule::KvCost, Rule::KvCost);
    for (workers, rate) in [((1, 3), 3.0), ((4, 12), 12.0), ((8, 24), 24.0)] {
        for known in [false, true] {
            let trace = trace(rate, 4000, known);
            let plan = FleetPlan::apart(pool(name, workers.0), pool(name, workers.1));
            let plan = plan.under(&policy);
            let began = Instant::now();
            let done = simulate(&plan, &trace).unwrap();
            let took = began.elapsed().as_secs_f64();
            let blocks = if known { "with" } else { "without" };
            println!(
                "{}P {}D, {} requests {blocks} blocks: {:.0} a second",
                workers.0,
                workers.1,
                done.outcomes.len(),
                trace.len() as f64 / took
            );
        }
    }
}

//! DeepSeek-R1 in simulated time: workers that do both beside one prefill worker and three decode workers,
//! at a request a second for each decode worker.
//!
//! `cargo run --release -p tandem-plan --example r1`
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "an example")]

use std::path::Path;
use std::time::Duration;

use tandem_config::{PROFILES, parse_profile};
use tandem_plan::{FleetPlan, Outcome, Pool, Request, Slo, Summary, simulate};

/// Poisson arrivals of a linear congruential generator: the same each time.
fn trace(rate: f64, count: u32, prompt: u32, answer: u32) -> Vec<Request> {
    let mut state = 7u64;
    let mut at = 0.0;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let uniform = ((state >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        at -= uniform.ln() / rate;
        Duration::from_secs_f64(at)
    };
    let mut request = |_| Request {
        at: next(),
        prompt,
        answer,
    };
    (0..count).map(&mut request).collect()
}

const NAME: &str = "deepseek-r1-tp8-h200";

fn main() {
    let pool = |name: &str, workers, chunk_tokens| {
        let (_, text) = PROFILES.iter().find(|(n, _)| *n == name).unwrap();
        let profile = parse_profile(text, Path::new(name)).unwrap();
        Pool {
            kv_tokens: u64::from(profile.kv.tokens),
            profile,
            workers,
            chunk_tokens,
            max_batch: 128,
        }
    };
    let any = Slo {
        ttft: Duration::MAX,
        tpot: Duration::MAX,
    };
    for (prompt, answer) in [(2000, 200), (2000, 500), (4000, 200), (4000, 500)] {
        let trace = trace(3.0, 600, prompt, answer);
        let mixed = FleetPlan::mixed(pool(NAME, 3, 8192));
        let apart = FleetPlan::apart(pool(NAME, 1, 8192), pool(NAME, 3, 8192));
        for (what, plan) in [("mixed", mixed), ("apart", apart)] {
            let outcomes: Vec<Outcome> = simulate(&plan, &trace).unwrap();
            let s = Summary::of(&outcomes, &any);
            println!(
                "{NAME} {prompt}+{answer} {what}: {:.0} tokens/s p50, gap p99 {:?}, ttft p50 {:?} p99 {:?}",
                1.0 / s.tpot.p50.as_secs_f64(),
                s.longest_gap.p99,
                s.ttft.p50,
                s.ttft.p99,
            );
        }
    }
}

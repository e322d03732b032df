//! Seeded runs of larger worlds.
#![allow(
    clippy::print_stdout,
    reason = "figures and traces, for whoever asks for them"
)]

use tandem_sim::simulation::run;
use tandem_sim::{Budget, Config, Fault, Pool, RequestPlan};

/// Several workers of each role with two shards each, room for fewer requests than there are, and
/// everything that can go wrong going wrong a few times.
fn large(requests: u8) -> Config {
    let pool = |workers, pages| Pool {
        workers,
        pages,
        shards: 2,
    };
    let plan = |i: u8| RequestPlan {
        tokens: 2 + u32::from(i % 7),
        new_tokens: 1 + u32::from(i % 3),
        deadline: 20 + 60 * u64::from(i),
    };
    Config {
        prefill: pool(2, 6),
        decode: pool(3, 9),
        requests: (0..requests).map(plan).collect(),
        at_once: false,
        layers: 2,
        context: true,
        slots: 4,
        retries: 2,
        budget: Budget {
            timeouts: 8,
            prefill_crashes: 4,
            decode_crashes: 4,
            restarts: 7,
            dispatch_breaks: 6,
            generate_breaks: 4,
            cancels: 6,
            write_errors: 8,
            post_failures: 4,
            engine_failures: 6,
            arm_failures: 3,
            open_failures: 3,
            inbox_failures: 3,
            outbox_failures: 3,
            strays: 0,
        },
        ..Config::small(0)
    }
}

fn is_long() -> bool {
    std::env::var_os("TANDEM_LONG").is_some()
}

#[test]
fn the_same_seed_gives_the_same_bytes_twice() {
    for seed in 0..5 {
        let (one, two) = (run(large(40), seed), run(large(40), seed));
        assert!(one.trace == two.trace, "seed {seed}");
    }
    assert_ne!(run(large(40), 0).trace, run(large(40), 1).trace);
}

#[test]
fn no_seed_breaks_an_invariant() {
    let seeds = if is_long() { 20_000 } else { 500 };
    let (mut steps, mut answers) = (0, 0);
    for seed in 0..seeds {
        let run = run(large(40), seed);
        assert_eq!(run.violation, None, "{}", run.trace);
        steps += run.steps;
        answers += run.trace.matches("Finish(").count();
    }
    println!("{seeds} seeds, {steps} steps, {answers} answers");
    assert!(
        answers as u64 > 5 * seeds,
        "most requests fail: the runs say little"
    );
}

#[test]
fn some_seed_meets_a_fault() {
    for fault in [
        Fault::FreeOnTimeout,
        Fault::AckBeforeDrain,
        Fault::RegionCloseAsFence,
    ] {
        let config = |seed| {
            let config = Config {
                fault: Some(fault),
                ..large(40)
            };
            run(config, seed)
        };
        let found = (0..200).find(|seed| config(*seed).violation.is_some());
        assert!(found.is_some(), "{fault:?}");
    }
}

use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use tandem_config::{PROFILES, parse_profile};
use tandem_timing::{Profile, Work};

use super::search::{Goal, highest_rate, search};
use super::*;

fn profile(name: &str) -> Profile {
    let (_, text) = PROFILES.iter().find(|(n, _)| *n == name).unwrap();
    parse_profile(text, Path::new(name)).unwrap()
}

fn pool(name: &str, workers: u32) -> Pool {
    let profile = profile(name);
    Pool {
        kv_tokens: u64::from(profile.kv.tokens),
        profile,
        workers,
        chunk_tokens: 8192,
        max_batch: 64,
    }
}

const R1: &str = "deepseek-r1-tp8-h200";

fn apart(prefill: u32, decode: u32) -> FleetPlan {
    FleetPlan::apart(pool(R1, prefill), pool(R1, decode))
}

fn every(gap: Duration, count: u32, prompt: u32, answer: u32) -> Vec<Request> {
    let request = |n| Request {
        at: gap * n,
        prompt,
        answer,
    };
    (0..count).map(request).collect()
}

const ANY: Slo = Slo {
    ttft: Duration::MAX,
    tpot: Duration::MAX,
};

#[test]
fn a_request_by_itself_takes_its_chunks_its_transfer_and_its_steps() {
    let p = profile(R1);
    let trace = every(Duration::ZERO, 1, 20_001, 50);
    let chunk = |start, n| p.step(&Work::chunk(start, n));
    let prompt = chunk(0, 8192) + chunk(8192, 8192) + chunk(16_384, 3616);
    let steps = |from, n| -> Duration { (from..from + n).map(|b| p.step(&Work::decode(b))).sum() };
    let mixed = simulate(&FleetPlan::mixed(pool(R1, 1)), &trace).unwrap()[0];
    assert_eq!(mixed.ttft, prompt + steps(20_000, 1));
    assert_eq!(mixed.decoding, steps(20_001, 49));
    // Apart, each chunk ends when its last layer has passed the link.
    let pushed: Duration = [8192, 8192, 3616].map(|n| p.push(n)).iter().sum();
    let apart = simulate(&apart(1, 1), &trace).unwrap()[0];
    assert_eq!(apart.ttft, mixed.ttft + pushed);
    assert_eq!(apart.decoding, mixed.decoding);
    assert_eq!((apart.queued, apart.tokens), (Duration::ZERO, 50));
}

#[test]
fn prompts_stall_answers_where_one_worker_does_both() {
    let trace = every(Duration::from_millis(700), 40, 4000, 200);
    let gap = |plan: &FleetPlan| {
        let outcomes = simulate(plan, &trace).unwrap();
        Summary::of(&outcomes, &ANY).longest_gap.p50
    };
    let stall = profile(R1).step(&Work::chunk(0, 3999));
    assert!(gap(&FleetPlan::mixed(pool(R1, 1))) > stall);
    assert!(gap(&apart(1, 1)) < stall / 5);
}

#[test]
fn what_cannot_be_served_is_refused_with_the_numbers() {
    let trace = every(Duration::ZERO, 2, 540_000, 2);
    let error = simulate(&apart(1, 1), &trace).unwrap_err();
    let want = "request 0 needs 540001 tokens of KV cache, a worker has 540000";
    assert_eq!(error.to_string(), want);
    assert_eq!(simulate(&apart(0, 1), &[]), Err(PlanError::Empty));
    let none = every(Duration::ZERO, 1, 0, 1);
    assert_eq!(simulate(&apart(1, 1), &none), Err(PlanError::NoTokens(0)));
    assert_eq!(simulate(&apart(1, 1), &[]), Ok(Vec::new()));
}

#[test]
fn a_request_waits_in_the_queue_until_there_is_room_for_it() {
    let mut plan = apart(1, 1);
    plan.decode.kv_tokens = 1099;
    let outcomes = simulate(&plan, &every(Duration::ZERO, 3, 1000, 100)).unwrap();
    // One after the other: each waits for the one before it.
    assert_eq!(outcomes[0].queued, Duration::ZERO);
    assert_eq!(outcomes[1].queued, outcomes[0].ended);
    assert_eq!(outcomes[2].queued, outcomes[1].ended);
}

#[test]
fn more_decode_workers_are_best_for_long_answers_and_more_prefill_workers_for_long_prompts() {
    let goal = Goal {
        slo: Slo {
            ttft: Duration::from_secs(4),
            tpot: Duration::from_millis(25),
        },
        attainment: 0.9,
    };
    let one = pool(R1, 1);
    let best = |prompt, answer| {
        let trace = every(Duration::from_millis(500), 120, prompt, answer);
        search(&one, &one, 4, &trace, &goal).unwrap()
    };
    let (talkers, readers) = (best(200, 1500), best(16_000, 20));
    assert_eq!((talkers[0].prefill, talkers[0].decode), (1, 3));
    assert_eq!((readers[0].prefill, readers[0].decode), (3, 1));
    for splits in [talkers, readers] {
        assert_eq!(splits.len(), 3);
        let summary = splits[0].best.summary.unwrap();
        assert!(summary.attainment >= 0.9 && splits[0].best.rate > 0.0);
    }
}

#[test]
fn a_goal_that_nothing_keeps_has_no_rate() {
    let goal = Goal {
        slo: Slo {
            ttft: Duration::from_millis(1),
            tpot: Duration::from_millis(1),
        },
        attainment: 0.9,
    };
    let trace = every(Duration::from_secs(1), 5, 100, 10);
    let best = highest_rate(&apart(1, 1), &trace, &goal).unwrap();
    assert_eq!((best.speed, best.rate, best.summary), (0.0, 0.0, None));
}

fn trace() -> impl Strategy<Value = Vec<Request>> {
    let request = (0..20_000u64, 1..3000u32, 1..200u32);
    let request = request.prop_map(|(ms, prompt, answer)| Request {
        at: Duration::from_millis(ms),
        prompt,
        answer,
    });
    proptest::collection::vec(request, 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn every_request_is_served_in_no_less_time_than_alone(
        trace in trace(), workers in (1..4u32, 1..4u32), mixed in any::<bool>(), kv in 3200..20_000u64,
    ) {
        let decode = |workers| Pool { kv_tokens: kv, ..pool(R1, workers) };
        let plan = match mixed {
            true => FleetPlan::mixed(decode(workers.0)),
            false => FleetPlan::apart(pool(R1, workers.0), decode(workers.1)),
        };
        let outcomes = simulate(&plan, &trace).unwrap();
        prop_assert_eq!(outcomes.len(), trace.len());
        for (outcome, asked) in outcomes.iter().zip(&trace) {
            let alone = simulate(&plan, &[*asked]).unwrap()[0];
            // Each layer of a step is rounded to a nanosecond.
            let rounding = Duration::from_micros(10);
            prop_assert!(outcome.ttft + rounding >= alone.ttft);
            prop_assert!(outcome.decoding + rounding >= alone.decoding);
            prop_assert!(outcome.ttft >= outcome.queued);
            prop_assert_eq!(outcome.ended, asked.at + outcome.ttft + outcome.decoding);
            prop_assert!(outcome.longest_gap <= outcome.decoding);
        }
        prop_assert_eq!(simulate(&plan, &trace).unwrap(), outcomes);
    }
}

use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use tandem_config::{PROFILES, parse_profile};
use tandem_timing::{Profile, Work};

use tandem_policies::{PolicySettings, Rule};

use super::search::{Goal, Saturates, Space, alone, highest_rate, search, why};
use super::*;

mod caches;
mod searches;
mod summaries;

fn profile(name: &str) -> Profile {
    let (_, text) = PROFILES.iter().find(|(n, _)| *n == name).unwrap();
    parse_profile(text, Path::new(name)).unwrap()
}

fn pool(name: &str, workers: u32) -> Pool {
    Pool {
        max_batch: 64,
        ..Pool::new(profile(name), workers)
    }
}

fn answers(plan: &FleetPlan, trace: &[Request]) -> Vec<Answer> {
    let outcomes = simulate(plan, trace).unwrap().outcomes;
    outcomes.iter().map(|o| *o.answer().unwrap()).collect()
}

const R1: &str = "deepseek-r1-tp8-h200";

fn apart(prefill: u32, decode: u32) -> FleetPlan {
    FleetPlan::apart(pool(R1, prefill), pool(R1, decode))
}

fn every(gap: Duration, count: u32, prompt: u32, answer: u32) -> Vec<Request> {
    let request = |n| Request::new(gap * n, prompt, answer);
    (0..count).map(request).collect()
}

#[test]
fn a_request_by_itself_takes_its_chunks_its_transfer_and_its_steps() {
    let p = profile(R1);
    let trace = every(Duration::ZERO, 1, 20_001, 50);
    let chunk = |start, n| p.step(&Work::chunk(start, n));
    let prompt = chunk(0, 8192) + chunk(8192, 8192) + chunk(16_384, 3616);
    let steps = |from, n| -> Duration { (from..from + n).map(|b| p.step(&Work::decode(b))).sum() };
    let mixed = answers(&FleetPlan::mixed(pool(R1, 1)), &trace)[0];
    assert_eq!(mixed.ttft, prompt + steps(20_000, 1));
    assert_eq!(mixed.decoding, steps(20_001, 49));
    // Apart, each chunk ends when its last layer has passed the link.
    let pushed: Duration = [8192, 8192, 3616].map(|n| p.push(n)).iter().sum();
    let apart = answers(&apart(1, 1), &trace)[0];
    assert_eq!(apart.ttft, mixed.ttft + pushed);
    assert_eq!((apart.exposed, mixed.exposed), (pushed, Duration::ZERO));
    assert_eq!((apart.local, mixed.local), (false, true));
    assert_eq!(apart.decoding, mixed.decoding);
    assert_eq!((apart.queued, apart.tokens), (Duration::ZERO, 50));
}

#[test]
fn prompts_stall_answers_where_one_worker_does_both() {
    let trace = every(Duration::from_millis(700), 40, 4000, 200);
    let gap = |plan: &FleetPlan| {
        let outcomes = simulate(plan, &trace).unwrap().outcomes;
        Summary::of(&outcomes, &Slo::ANY).longest_gap.p50
    };
    let stall = profile(R1).step(&Work::chunk(0, 3999));
    assert!(gap(&FleetPlan::mixed(pool(R1, 1))) > stall);
    assert!(gap(&apart(1, 1)) < stall / 5);
}

#[test]
fn what_cannot_be_served_is_refused_with_the_numbers() {
    let trace = every(Duration::ZERO, 2, 540_000, 2);
    let error = simulate(&apart(1, 1), &trace).unwrap_err();
    let want = "request 0 needs 539999 tokens of KV cache, a worker has 539968";
    assert_eq!(error.to_string(), want);
    assert_eq!(simulate(&apart(0, 1), &[]), Err(PlanError::Empty));
    let none = every(Duration::ZERO, 1, 0, 1);
    assert_eq!(simulate(&apart(1, 1), &none), Err(PlanError::NoTokens(0)));
    assert_eq!(simulate(&apart(1, 1), &[]).unwrap().outcomes, []);
    let unlike = FleetPlan::apart(pool(R1, 1), pool("llama-3-70b-tp8-h100", 1));
    let error = simulate(&unlike, &[]).unwrap_err().to_string();
    assert!(error.contains("profiles do not fit together"), "{error}");
}

#[test]
fn a_request_waits_in_the_queue_until_there_is_room_for_it() {
    let mut plan = apart(1, 1);
    plan.decode.kv_tokens = 1099;
    plan.decode.page_tokens = 1;
    let outcomes = answers(&plan, &every(Duration::ZERO, 3, 1000, 100));
    // One after the other: each waits for the one before it.
    assert_eq!(outcomes[0].queued, Duration::ZERO);
    // The gateway knows by the worker's next report that there is room.
    let report = Duration::from_millis(20);
    assert_eq!(outcomes[1].queued, outcomes[0].ended + report);
    assert_eq!(outcomes[2].queued, outcomes[1].ended + report);
}

fn goal(ttft_ms: u64, tpot_ms: u64) -> Goal {
    Goal {
        slo: Slo {
            ttft: Duration::from_millis(ttft_ms),
            tpot: Duration::from_millis(tpot_ms),
        },
        attainment: 0.9,
    }
}

#[test]
fn more_decode_workers_are_best_for_long_answers_and_more_prefill_workers_for_long_prompts() {
    let goal = goal(4000, 25);
    let one = pool(R1, 1);
    let space = Space {
        prefill: &one,
        decode: &one,
        workers: 4,
        policies: &[PolicySettings::default()],
        mixed: true,
    };
    let best = |count, prompt, answer| {
        let trace = every(Duration::from_millis(500), count, prompt, answer);
        let mut heard = 0;
        let found = search(&space, &trace, &goal, |_| heard += 1).unwrap();
        assert_eq!((heard, found.len()), (4, 4));
        let apart = found
            .iter()
            .find(|tried| tried.prefill > 0)
            .unwrap()
            .clone();
        let why = why(&space, &apart, &trace, &goal).unwrap();
        (apart, why)
    };
    let ((talkers, talk), (readers, read)) = (best(400, 200, 1000), best(80, 16_000, 20));
    assert_eq!((talkers.prefill, talkers.decode), (1, 3));
    assert_eq!((readers.prefill, readers.decode), (3, 1));
    assert_eq!(talk.saturates, Saturates::DecodeSteps);
    assert_eq!(read.saturates, Saturates::Prefill);
    // One more of those that are saturated serves more, one more of the others hardly.
    let rate = |why: &search::Why, prefill, decode| {
        let is = |n: &&search::Neighbour| (n.prefill, n.decode) == (prefill, decode);
        why.neighbours.iter().find(is).unwrap().rate
    };
    assert!(rate(&talk, 1, 4) > talkers.best.rate * 1.15);
    assert!(rate(&talk, 2, 3) < talkers.best.rate * 1.1);
    assert!(rate(&read, 4, 1) > readers.best.rate * 1.15);
    assert!(rate(&read, 3, 2) < readers.best.rate * 1.1);
    for tried in [talkers, readers] {
        let kept = tried.best.kept.unwrap();
        assert!(kept.summary.attainment >= 0.9 && tried.best.rate > 0.0);
    }
}

#[test]
fn a_goal_that_nothing_keeps_has_no_rate_and_the_fastest_request_says_why() {
    let trace = every(Duration::from_secs(1), 5, 100, 10);
    let best = highest_rate(&apart(1, 1), &trace, &goal(1, 1)).unwrap();
    assert_eq!((best.speed, best.rate, best.kept), (0.0, 0.0, None));
    let slo = |ttft_ms| goal(ttft_ms, 1000).slo;
    let found = alone(&apart(1, 1), &trace, &slo(1)).unwrap().unwrap();
    let first = answers(&apart(1, 1), &trace[..1])[0];
    assert_eq!((found.ttft, found.tpot), (first.ttft, first.tpot()));
    assert!(found.ttft > Duration::from_millis(1));
    assert_eq!(found.missed, 5);
    let found = alone(&apart(1, 1), &trace, &slo(1000)).unwrap().unwrap();
    assert_eq!(found.missed, 0);
    assert_eq!(alone(&apart(1, 1), &[], &slo(1)).unwrap(), None);
}

#[test]
fn afterwards_pages_travel_when_the_prompt_is_computed_and_the_worker_goes_on() {
    let p = profile(R1);
    let trace = every(Duration::ZERO, 1, 8193, 2);
    let plan = FleetPlan {
        transfer: Transfer::Afterwards,
        ..apart(1, 1)
    };
    let answer = answers(&plan, &trace)[0];
    let chunk = p.step(&Work::chunk(0, 8192));
    assert_eq!(answer.exposed, p.push_all(8192));
    assert_eq!(
        answer.ttft,
        chunk + p.push_all(8192) + p.step(&Work::decode(8192))
    );
    // Two prompts that are computed in one step travel one after the other.
    let two = every(Duration::ZERO, 2, 4097, 2);
    let answers = answers(&plan, &two);
    let way = p.push_all(4096);
    assert_eq!([answers[0].exposed, answers[1].exposed], [way, way * 2]);
}

#[test]
fn workers_time_and_tokens_are_accounted_for() {
    let trace = every(Duration::from_millis(100), 20, 2001, 50);
    let done = simulate(&apart(1, 2), &trace).unwrap();
    let (prefill, decode) = (done.prefill.unwrap(), done.decode);
    assert_eq!((prefill.workers, decode.workers), (1, 2));
    assert_eq!(
        (prefill.prompt_tokens, prefill.generated_tokens),
        (20 * 2000, 0)
    );
    assert_eq!(
        (decode.prompt_tokens, decode.generated_tokens),
        (0, 20 * 50)
    );
    for usage in [prefill, decode] {
        assert!(usage.busy_share() > 0.0 && usage.busy_share() <= 1.0);
        assert!(usage.mean_pages() <= usage.most_pages && usage.most_pages <= 1.0);
    }
    assert!(decode.mean_batch() >= 1.0 && decode.mean_batch() <= 20.0);
    let summary = Summary::of(&done.outcomes, &Slo::ANY);
    assert_eq!(
        (summary.attained, summary.late, summary.rejected),
        (20, 0, 0)
    );
}

#[test]
fn a_policy_that_rejects_early_has_its_requests_rejected_and_counted() {
    let mut policy = PolicySettings::default();
    (policy.prefill.choose, policy.decode.choose) = (Rule::SloAware, Rule::SloAware);
    policy.slo.ttft = Some(Duration::from_millis(600));
    policy.slo_aware.reject = tandem_policies::Reject::Arrival;
    let trace = every(Duration::from_millis(20), 100, 4000, 5);
    let done = simulate(&apart(1, 1).under(&policy), &trace).unwrap();
    let summary = Summary::of(&done.outcomes, &Slo::ANY);
    assert!(summary.rejected > 20, "{summary:?}");
    assert!(done.outcomes.contains(&Outcome::Rejected("promise")));
    assert_eq!(summary.attained + summary.rejected, 100);
}

fn trace() -> impl Strategy<Value = Vec<Request>> {
    let request = (0..20_000u64, 1..3000u32, 1..200u32);
    let request = request
        .prop_map(|(ms, prompt, answer)| Request::new(Duration::from_millis(ms), prompt, answer));
    proptest::collection::vec(request, 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// That all pages are free at the end, and that every request has ended, is asserted by each simulation.
    #[test]
    fn every_request_is_served_in_no_less_time_than_alone(
        trace in trace(), workers in (1..4u32, 1..4u32), mixed in any::<bool>(), kv in 3300..20_000u64,
        rule in 0..Rule::NAMES.len(), afterwards in any::<bool>(),
    ) {
        let decode = |workers| Pool { kv_tokens: kv, ..pool(R1, workers) };
        let mut policy = PolicySettings::default();
        let rule = Rule::NAMES[rule].1;
        (policy.prefill.choose, policy.decode.choose) = (rule, rule);
        let mut plan = match mixed {
            true => FleetPlan::mixed(decode(workers.0)),
            false => FleetPlan::apart(pool(R1, workers.0), decode(workers.1)),
        };
        if afterwards {
            plan.transfer = Transfer::Afterwards;
        }
        let plan = plan.under(&policy);
        let local = FleetPlan::mixed(decode(1)).under(&policy);
        let done = simulate(&plan, &trace).unwrap();
        prop_assert_eq!(done.outcomes.len(), trace.len());
        for (outcome, asked) in done.outcomes.iter().zip(&trace) {
            let outcome = outcome.answer().unwrap();
            let on = |plan| answers(plan, std::slice::from_ref(asked))[0];
            // A prompt that its decode worker computes, as some policies have it under load, saves the way.
            let (alone, local) = (on(&plan), on(&local));
            // Each layer of a step is rounded to a nanosecond.
            let rounding = Duration::from_micros(10);
            prop_assert!(outcome.ttft + rounding >= alone.ttft.min(local.ttft));
            prop_assert!(outcome.decoding + rounding >= alone.decoding.min(local.decoding));
            prop_assert!(outcome.ttft >= outcome.queued);
            prop_assert_eq!(outcome.ended, asked.at + outcome.ttft + outcome.decoding);
            prop_assert!(outcome.longest_gap <= outcome.decoding);
        }
        prop_assert_eq!(simulate(&plan, &trace).unwrap(), done);
    }
}

//! Prompts that begin alike.

use super::*;

/// A conversation's turns, a block of 512 tokens more each time, a while after one another.
fn turns(conversation: u64, count: u32) -> Vec<Request> {
    let turn = |n: u32| Request {
        blocks: Some(Blocks {
            tokens: 512,
            ids: (0..u64::from(n))
                .map(|block| conversation * 1000 + block)
                .collect(),
        }),
        session: Some(conversation),
        ..Request::new(Duration::from_secs(u64::from(n)), 512 * n, 10)
    };
    (1..=count).map(turn).collect()
}

fn under(rule: Rule, prefill: u32, decode: u32) -> FleetPlan {
    let mut policy = PolicySettings::default();
    (policy.prefill.choose, policy.decode.choose) = (rule, rule);
    apart(prefill, decode).under(&policy)
}

#[test]
fn what_a_worker_has_computed_is_found_again_in_whole_pages() {
    let answers = answers(&apart(1, 1), &turns(1, 6));
    let p = profile(R1);
    for (n, answer) in (1u32..).zip(&answers) {
        // Both sides have all whole pages of the turn before: its prompt but the last token.
        let held = (512 * (n - 1)).saturating_sub(1) / 64 * 64;
        assert_eq!(answer.cached, held);
        let tokens = 512 * n - 1 - held;
        let took = p.step(&Work::chunk(held, tokens)) + p.push(u64::from(tokens));
        let first = p.step(&Work::decode(512 * n - 1));
        assert_eq!(answer.ttft, took + first, "turn {n}");
    }
}

#[test]
fn a_policy_that_asks_for_prefixes_finds_more_of_them() {
    let mut trace: Vec<Request> = (0..12).flat_map(|n| turns(n, 8)).collect();
    trace.sort_by_key(|request| request.at);
    let share = |rule| {
        let outcomes = simulate(&under(rule, 3, 3), &trace).unwrap().outcomes;
        Summary::of(&outcomes, &Slo::ANY).cached_share
    };
    let (by_prefix, by_chance) = (share(Rule::PrefixAware), share(Rule::Random));
    assert!(by_prefix > 0.7, "{by_prefix}");
    assert!(by_prefix > by_chance + 0.1, "{by_prefix} and {by_chance}");
}

#[test]
fn a_prompt_that_its_decode_worker_holds_is_computed_there() {
    let mut plan = under(Rule::PrefixAware, 1, 1);
    plan.policy.local_prefill.max_uncached_tokens = 600;
    let answers = answers(&plan, &turns(1, 5));
    let local: Vec<bool> = answers.iter().map(|answer| answer.local).collect();
    assert_eq!(local, [false, true, true, true, true]);
    assert!(
        answers[1..]
            .iter()
            .all(|a| a.exposed.is_zero() && a.cached > 0)
    );
}

#[test]
fn without_names_of_blocks_nothing_is_found() {
    let trace: Vec<Request> = turns(1, 5)
        .into_iter()
        .map(|request| Request {
            blocks: None,
            ..request
        })
        .collect();
    assert!(answers(&apart(1, 1), &trace).iter().all(|a| a.cached == 0));
}

#[test]
fn only_what_the_decode_worker_does_not_hold_travels_and_what_was_found_is_accounted_for() {
    let mut plan = apart(1, 1);
    plan.transfer = Transfer::Afterwards;
    let trace = turns(1, 3);
    let done = simulate(&plan, &trace).unwrap();
    let p = profile(R1);
    let mut found = 0;
    for (n, outcome) in (1u32..).zip(&done.outcomes) {
        let held = (512 * (n - 1)).saturating_sub(1) / 64 * 64;
        let way = p.push_all(u64::from(512 * n - 1 - held));
        assert_eq!(outcome.answer().unwrap().exposed, way, "turn {n}");
        found += u64::from(held);
    }
    let prefill = done.prefill.unwrap();
    assert_eq!(
        (prefill.cached_tokens, done.decode.cached_tokens),
        (found, 0)
    );
}

//! Prompts that the decode worker computes itself.

use tandem_core::Incarnation;
use tandem_core::pairing::{Local, NoPairReason, Policy, Stage};

use super::made::*;
use crate::{Rule, WhenNoPrefill};

#[test]
fn short_prompts_and_those_held_nearly_whole_stay_on_the_decode_worker() {
    let mut settings = both(Rule::LeastLoaded);
    settings.local_prefill.max_prompt_tokens = 64;
    settings.local_prefill.max_uncached_tokens = 32;
    let local = |settings: &_, holds, queued, blocks| {
        let fleet = fleet([worker("p"), worker("d").holds(holds).queued(queued)]);
        let pair = pair(&mut pairing(settings), &fleet, &request(blocks));
        assert_eq!(pair.local.is_some(), pair.prefill.is_none());
        pair.local
    };
    assert_eq!(local(&settings, 0, 0, 4), Some(Local::ShortPrompt));
    assert_eq!(local(&settings, 0, 0, 5), None);
    assert_eq!(local(&settings, 98, 0, 100), Some(Local::Held));
    assert_eq!(local(&settings, 97, 0, 100), None);
    // Not where prompts wait there already: decoding would suffer.
    assert_eq!(local(&settings, 98, 2048, 100), None);
    settings.local_prefill = Default::default();
    assert_eq!(local(&settings, 100, 0, 100), None);
}

#[test]
fn without_a_prefill_worker_the_policy_says_whether_decode_workers_do() {
    let mut settings = both(Rule::LeastLoaded);
    let mut fleet = fleet([worker("p"), worker("d")]);
    fleet.leave(&name("p"), Incarnation(1));
    let mut policy = pairing(&settings);
    let none = try_pair(&mut policy, &fleet, &request(100)).unwrap_err();
    assert_eq!(none.reason, NoPairReason::NoWorker(Stage::Prefill));
    assert!(!policy.decodes_alone());
    settings.when_no_prefill = WhenNoPrefill::Local;
    let mut policy = pairing(&settings);
    let alone = pair(&mut policy, &fleet, &request(100));
    assert_eq!((alone.prefill, alone.local), (None, Some(Local::NoPrefill)));
    assert!(policy.decodes_alone());
}

#[test]
fn where_every_prefill_worker_failed_a_request_the_decode_worker_computes_it() {
    let mut settings = both(Rule::LeastLoaded);
    let fleet = fleet([worker("p"), worker("d")]);
    let mut failed = request(100);
    failed.avoid = [(Stage::Prefill, name("p"))].into();
    let none = try_pair(&mut pairing(&settings), &fleet, &failed).unwrap_err();
    assert_eq!(none.reason, NoPairReason::NoRoom(Stage::Prefill));
    settings.when_no_prefill = WhenNoPrefill::Local;
    let alone = pair(&mut pairing(&settings), &fleet, &failed);
    assert_eq!((alone.prefill, alone.local), (None, Some(Local::NoPrefill)));
}

#[test]
fn a_worker_that_does_both_takes_no_prefill_worker() {
    let fleet = fleet([worker("x").holds(3), worker("p")]);
    let alone = pair(&mut pairing(&both(Rule::PrefixAware)), &fleet, &request(4));
    assert_eq!((alone.prefill, alone.local), (None, Some(Local::Role)));
    assert_eq!(alone.cached_tokens, 3 * PAGE);
}

//! `[policy]` and its tables.

use super::*;

#[test]
fn a_policy_alone_is_a_preset_and_its_mistakes_are_located() {
    let config = parse("[policy]\nseed = 7\n[policy.prefill]\nchoose = \"random\"\n").unwrap();
    assert_eq!(config.policy.unwrap().seed, Some(7));
    assert_complaint(
        "[policy]\nsed = 7\n",
        "2: unknown key `sed` in [policy]; did you mean `seed`?",
    );
    assert_complaint(
        "[policy.prefill]\nchoose = \"least_laoded\"\n",
        "2: [policy.prefill] choose: want one of \"random\", \"round_robin\", \"power_of_two\", \
         \"least_loaded\", \"consistent_hash\", \"prefix_aware\", \"kvcache_centric\", \"kv_cost\", \
         \"splitwise\", \"slo_aware\", \"scored\", found the text \"least_laoded\"; did you mean \"least_loaded\"?",
    );
    assert_complaint(
        "[policy]\nseed = \"x\"\n",
        "2: [policy] seed: want a whole number from 0 to 9223372036854775807, found the text \"x\"",
    );
}

#[test]
fn all_that_is_wrong_with_a_policy_is_reported_at_once_each_with_its_line() {
    let text = "[policy]\nsed = 7\n[policy.prefill]\nchoose = \"scored\"\n\
                weights = { prefix = 1, qeue = 2 }\n[policy.decode]\ntemperature = 2.5\n\
                weights = { ttft = 1 }\n[policy.kv_cost]\noverlap_score_credit = 1.5\n\
                [policy.local_prefill]\nmax_prompt_tokens = -1\n";
    let expected = [
        "2: unknown key `sed` in [policy]; did you mean `seed`?",
        "5: unknown key `qeue` in [policy.prefill.weights]; did you mean `queue`?",
        "7: [policy.decode] temperature: only `picker = \"softmax\"` has it",
        "8: unknown key `ttft` in [policy.decode.weights]; did you mean `tpot`?",
        "8: [policy.decode] weights: only `choose = \"scored\"` has it, and this is `least_loaded`",
        "9: [policy] kv_cost: neither stage has `choose = \"kv_cost\"`, so nothing here counts",
        "10: [policy.kv_cost] overlap_score_credit: want a number from 0 to 1, found 1.5",
        "12: [policy.local_prefill] max_prompt_tokens: want a whole number from 0 to 16777216, found -1",
    ];
    let expected = expected.map(|line| format!("etc/t.toml:{line}"));
    assert_eq!(complaints(text), expected);
}

#[test]
fn a_policy_that_contradicts_itself_is_refused() {
    assert_complaint(
        "[policy]\nchoose = \"slo_aware\"\n",
        "1: [policy] `choose = \"slo_aware\"` needs something promised: [policy.slo] with ttft_ms or \
         tpot_ms, or one of them for every class of [admission]",
    );
    assert_complaint(
        "[policy]\nchoose = \"kvcache_centric\"\n[policy.kvcache_centric]\nreject = \"arrival\"\n",
        "3: [policy] kvcache_centric: `reject` needs something promised: [policy.slo] with ttft_ms or \
         tpot_ms, or one of them for every class of [admission]",
    );
    assert_complaint(
        "[policy.prefill]\nchoose = \"scored\"\n",
        "1: [policy.prefill] `choose = \"scored\"` needs `weights`: scorers and how much each counts",
    );
    let one = "[policy.pair]\ncandidates = 1\n";
    assert!(complaints(one)[0].contains("each stage chooses alone"));
    let decode_ms = "[policy]\nchoose = \"kvcache_centric\"\n[policy.kvcache_centric]\n\
                     predicted_decode_ms = 5\n";
    assert!(complaints(decode_ms)[0].contains("only `reject = \"predicted\"` has it"));
}

#[test]
fn every_key_of_a_policy_is_read() {
    let text = "[policy]\nchoose = \"kv_cost\"\nwhen_no_prefill = \"local\"\n[policy.decode]\n\
                choose = \"scored\"\npicker = \"softmax\"\ntemperature = 0.25\n\
                weights = { pages = 1, session = 0.5 }\nlabels = { pool = \"a\" }\n\
                [policy.kv_cost]\nrouter_temperature = 0.5\n[policy.pair]\ntopology = 2\n\
                [policy.topology]\nlevels = [\"host\", \"rack\"]\n[policy.index]\nmax_blocks = 4096\n\
                [policy.slo]\nttft_ms = 500\n";
    let policy = parse(text).unwrap().policy.unwrap();
    use tandem_policies::{Picker, Rule, Scorer, WhenNoPrefill};
    assert_eq!(policy.prefill.choose, Rule::KvCost);
    assert_eq!(policy.decode.choose, Rule::Scored);
    assert_eq!(policy.decode.picker, Picker::Softmax { temperature: 0.25 });
    let mut weights = policy.decode.weights.clone();
    weights.sort_by_key(|(scorer, _)| scorer.as_str());
    assert_eq!(weights, [(Scorer::Pages, 1.0), (Scorer::Session, 0.5)]);
    assert_eq!(policy.decode.labels, [("pool".into(), "a".into())]);
    assert_eq!(policy.when_no_prefill, WhenNoPrefill::Local);
    assert_eq!((policy.pair.candidates, policy.pair.topology), (4, 2.0));
    assert_eq!(policy.topology.levels, ["host", "rack"]);
    assert_eq!(
        (policy.index.max_blocks, policy.kv_cost.router_temperature),
        (4096, 0.5)
    );
    assert_eq!(policy.slo.ttft, Some(std::time::Duration::from_millis(500)));
}

#[test]
fn a_gateway_uses_the_policy_of_its_file() {
    let config = parse(&format!("{GATEWAY}[policy]\nseed = 7\n")).unwrap();
    assert_eq!(config.gateway.unwrap().policy.seed, Some(7));
}

#[test]
fn what_every_class_promises_is_promised() {
    let policy = "[policy]\nchoose = \"slo_aware\"\n";
    let class = |rest: &str| format!("{policy}[admission.class.default]\n{rest}");
    assert!(parse(&class("ttft_ms = 5\n")).is_ok());
    assert!(parse(&class("tpot_ms = 5\n")).is_ok());
    let one_without = class("ttft_ms = 5\n[admission.class.batch]\n");
    for text in [class(""), one_without] {
        let found = complaints(&text);
        assert!(found[0].contains("needs something promised"), "{found:?}");
    }
}

#[test]
fn a_header_names_sessions_unless_it_is_named_away() {
    let header = |line: &str| {
        let policy = parse(&format!("[policy]\n{line}")).unwrap().policy.unwrap();
        policy.session_header.name().map(str::to_owned)
    };
    assert_eq!(header("").as_deref(), Some("x-session-id"));
    assert_eq!(
        header("session_header = \"X-Chat\"\n").as_deref(),
        Some("x-chat")
    );
    assert_eq!(header("session_header = \"\"\n"), None);
    for bad in ["a b", "a:", "Authorization", "x-api-key", "\u{e9}"] {
        let found = complaints(&format!("[policy]\nsession_header = {bad:?}\n"));
        assert!(found[0].contains("want a header's name"), "{found:?}");
    }
}

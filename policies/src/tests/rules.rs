//! What each rule chooses.

use std::time::Duration;

use tandem_core::fleet::Standing;
use tandem_core::pairing::{Filtered, Policy, Stage};
use tandem_core::{Incarnation, Instant};

use super::made::*;
use crate::{Picker, Rule, Scorer};

fn pair_of(p: &str, d: &str) -> (String, String) {
    (p.to_owned(), d.to_owned())
}

#[test]
fn round_robin_keeps_its_turn_when_a_worker_is_full_for_a_while() {
    let mut fleet = fleet([worker("p"), worker("d0"), worker("d1"), worker("d2")]);
    let mut policy = pairing(&both(Rule::RoundRobin));
    let mut turn = |fleet: &_| pair(&mut policy, fleet, &request(1)).decode.to_string();
    let names: Vec<String> = (0..4).map(|_| turn(&fleet)).collect();
    assert_eq!(names, ["d0", "d1", "d2", "d0"]);
    let load = |sequence, free| tandem_core::fleet::WorkerLoad {
        sequence,
        free_pages: free,
        ..Default::default()
    };
    fleet.report(&name("d1"), Incarnation(1), load(2, 0));
    assert_eq!(turn(&fleet), "d2");
    fleet.report(&name("d1"), Incarnation(1), load(3, 1000));
    assert_eq!(turn(&fleet), "d0");
    assert_eq!(turn(&fleet), "d1");
    // One that has its turn leaves: the one after it is next.
    fleet.leave(&name("d1"), Incarnation(1));
    assert_eq!(turn(&fleet), "d2");
}

#[test]
fn random_takes_everybody_as_often_as_their_weights_say() {
    let mut fleet = fleet([worker("p"), worker("d0"), worker("d1")]);
    let even = counts(&both(Rule::Random), &fleet, &request(1), 2000);
    assert!((850..1150).contains(&even["d0"]), "{even:?}");
    fleet.set_weight(&name("d0"), 300);
    let uneven = counts(&both(Rule::Random), &fleet, &request(1), 2000);
    assert!((1400..1600).contains(&uneven["d0"]), "{uneven:?}");
}

#[test]
fn the_same_seed_makes_the_same_choices() {
    let fleet = fleet([worker("p"), worker("d0"), worker("d1"), worker("d2")]);
    for rule in [Rule::Random, Rule::LeastLoaded, Rule::PowerOfTwo] {
        let names = || {
            let mut policy = pairing(&both(rule));
            let mut one = || pair(&mut policy, &fleet, &request(1)).decode;
            (0..50).map(|_| one()).collect::<Vec<_>>()
        };
        assert_eq!(names(), names());
    }
}

#[test]
fn least_loaded_counts_tokens_for_prefill_and_shares_of_pages_for_decode() {
    let fleet = fleet([
        worker("p0").queued(7),
        worker("p1").queued(5),
        worker("d0").free(500),
        worker("d1").free(900),
    ]);
    let chosen = always(&both(Rule::LeastLoaded), &fleet, &request(1));
    assert_eq!(chosen, pair_of("p1", "d1"));
}

#[test]
fn power_of_two_never_takes_the_worst_and_not_always_the_best() {
    let fleet = fleet([
        worker("p"),
        worker("d0").free(900),
        worker("d1").free(800),
        worker("d2").free(700),
    ]);
    let counts = counts(&both(Rule::PowerOfTwo), &fleet, &request(1), 300);
    assert_eq!(counts.get("d2"), None);
    assert!(counts["d0"] > 150 && counts["d1"] > 50, "{counts:?}");
}

#[test]
fn a_session_stays_where_it_is_and_moves_only_with_its_worker() {
    let all = ["d0", "d1", "d2", "d3", "d4"];
    let mut fleet = fleet(all.map(worker).into_iter().chain([worker("p")]));
    let settings = both(Rule::ConsistentHash);
    let homes = |fleet: &_| -> Vec<String> {
        let home = |session| {
            let mut request = request(1);
            request.affinity = Some(session);
            always(&settings, fleet, &request).1
        };
        (0..40).map(home).collect()
    };
    let before = homes(&fleet);
    for worker in all {
        assert!(before.iter().filter(|home| *home == worker).count() > 1);
    }
    fleet.leave(&name("d2"), Incarnation(1));
    for (before, after) in before.iter().zip(homes(&fleet)) {
        assert!(
            *before == after || before == "d2",
            "{before} moved to {after}"
        );
    }
}

#[test]
fn a_session_passes_over_a_worker_that_has_more_than_its_share() {
    let mut settings = both(Rule::ConsistentHash);
    let mut request = request(1);
    request.affinity = Some(3);
    let idle = || [worker("p"), worker("d0"), worker("d1"), worker("d2")];
    let home = always(&settings, &fleet(idle()), &request).1;
    let busy = idle().map(|w| match w.facts.worker.as_str() == home {
        true => w.running(10),
        false => w.running(1),
    });
    let busy = fleet(busy);
    assert_ne!(always(&settings, &busy, &request).1, home);
    settings.consistent_hash.load_factor = 0.0;
    assert_eq!(always(&settings, &busy, &request).1, home);
}

#[test]
fn prefix_aware_goes_to_the_blocks_unless_loads_are_too_unequal() {
    let workers = |running| {
        fleet([
            worker("p0").holds(10).running(running).queued(1000),
            worker("p1").holds(4),
            worker("p2"),
            worker("d"),
        ])
    };
    let mut settings = both(Rule::PrefixAware);
    assert_eq!(always(&settings, &workers(60), &request(20)).0, "p0");
    let counts = counts(&settings, &workers(65), &request(20), 100);
    assert_eq!(counts.get("p0"), None, "64 requests more than another");
    // Ten of twenty blocks are too few to go there for.
    settings.prefix_aware.cache_threshold = 0.5;
    let counts = super::made::counts(&settings, &workers(0), &request(20), 100);
    assert_eq!(counts.get("p0"), None);
}

#[test]
fn kv_cost_weighs_blocks_held_against_blocks_waiting() {
    let workers = |queued: u64| {
        fleet([
            worker("p0").holds(10).queued(queued * 16),
            worker("p1"),
            worker("d0").free(900),
            worker("d1").free(950),
        ])
    };
    let mut settings = both(Rule::KvCost);
    assert_eq!(
        always(&settings, &workers(9), &request(20)),
        pair_of("p0", "d1")
    );
    assert_eq!(always(&settings, &workers(11), &request(20)).0, "p1");
    settings.kv_cost.overlap_score_credit = 0.5;
    assert_eq!(always(&settings, &workers(6), &request(20)).0, "p1");
    settings.kv_cost.overlap_score_credit = 1.0;
    settings.kv_cost.overlap_score_credit_decay = 1.0;
    assert_eq!(always(&settings, &workers(9), &request(20)).0, "p1");
    settings.kv_cost.overlap_score_credit_decay = 0.0;
    settings.kv_cost.router_temperature = 0.5;
    let warm = counts(&settings, &workers(9), &request(20), 400);
    assert!(warm["p0"] > warm["p1"] && warm["p1"] > 20, "{warm:?}");
}

#[test]
fn a_scale_of_prefill_load_matters_for_workers_that_do_both() {
    let fleet = fleet([worker("x0").queued(3200).free(900), worker("x1").free(600)]);
    let mut settings = both(Rule::KvCost);
    let chosen = |settings: &_| counts(settings, &fleet, &request(1), 10).into_keys().next();
    assert_eq!(
        chosen(&settings).unwrap(),
        "x0",
        "200 + 100 blocks against 400"
    );
    settings.kv_cost.prefill_load_scale = 2.0;
    assert_eq!(chosen(&settings).unwrap(), "x1");
}

#[test]
fn kvcache_centric_takes_the_earliest_first_token() {
    let workers = |queued| {
        let step = Duration::from_millis(10);
        fleet([
            worker("p0").holds(60).queued(queued).measured(step),
            worker("p1").measured(step),
            worker("d0").measured(step).running(8),
            worker("d1").measured(step * 2).running(8),
        ])
    };
    let settings = both(Rule::KvcacheCentric);
    assert_eq!(
        always(&settings, &workers(900), &request(100)),
        pair_of("p0", "d0")
    );
    assert_eq!(always(&settings, &workers(1000), &request(100)).0, "p1");
    // With a prompt's square in the model what is held is worth more.
    let mut squared = settings;
    squared.kvcache_centric.prefill_model = Some([1.0, 0.001, 0.0, 0.001]);
    assert_eq!(always(&squared, &workers(1000), &request(100)).0, "p0");
}

#[test]
fn an_operators_weight_counts_in_costs_and_in_scores() {
    let mut fleet = fleet([worker("p"), worker("d0").free(900), worker("d1").free(800)]);
    let mut scored = both(Rule::Scored);
    scored.decode.weights = vec![(Scorer::Pages, 1.0)];
    let all = [both(Rule::KvCost), scored];
    for settings in &all {
        assert_eq!(always(settings, &fleet, &request(10)).1, "d0");
    }
    fleet.set_weight(&name("d1"), 300);
    for settings in &all {
        assert_eq!(always(settings, &fleet, &request(10)).1, "d1");
    }
}

#[test]
fn splitwise_gives_an_idle_worker_a_prompt_of_any_length() {
    let fleet = fleet([worker("p0"), worker("d0")]);
    let settings = both(Rule::Splitwise);
    let long = request(600);
    assert!(long.prompt_tokens > settings.splitwise.prompt_max_pending_tokens);
    assert_eq!(always(&settings, &fleet, &long), pair_of("p0", "d0"));
}

#[test]
fn splitwise_keeps_to_its_bounds_and_mixes_only_then() {
    let workers = |queued| {
        fleet([
            worker("p0").queued(queued),
            worker("d0").free(500),
            worker("d1").free(700),
        ])
    };
    let mut settings = both(Rule::Splitwise);
    let mut policy = pairing(&settings);
    let request = request(10);
    assert_eq!(
        always(&settings, &workers(8032), &request),
        pair_of("p0", "d1")
    );
    let mixed = pair(&mut policy, &workers(8033), &request);
    assert_eq!(
        (mixed.prefill, mixed.local),
        (None, Some(tandem_core::pairing::Local::Mixed))
    );
    settings.splitwise.mixed_pool = false;
    let none = try_pair(&mut pairing(&settings), &workers(8033), &request).unwrap_err();
    assert_eq!(
        none.reason,
        tandem_core::pairing::NoPairReason::NoRoom(Stage::Prefill)
    );
    assert_eq!(
        none.why.prefill.as_ref().unwrap().out,
        [(name("p0"), Filtered::Busy)]
    );
    settings.splitwise.token_mem_high = 0.3;
    let none = try_pair(&mut pairing(&settings), &workers(0), &request).unwrap_err();
    assert_eq!(
        none.reason,
        tandem_core::pairing::NoPairReason::NoRoom(Stage::Decode)
    );
}

#[test]
fn scored_adds_what_its_weights_say() {
    let fleet = fleet([
        worker("p0").queued(100).holds(10),
        worker("p1"),
        worker("d0").free(900).running(9),
        worker("d1").free(100).running(1),
    ]);
    let mut settings = both(Rule::Scored);
    settings.prefill.weights = vec![(Scorer::Prefix, 1.0), (Scorer::Queue, 0.4)];
    settings.decode.weights = vec![(Scorer::Pages, 1.0)];
    assert_eq!(always(&settings, &fleet, &request(20)), pair_of("p0", "d0"));
    settings.prefill.weights[1].1 = 0.6;
    settings.decode.weights = vec![(Scorer::Requests, 1.0)];
    assert_eq!(always(&settings, &fleet, &request(20)), pair_of("p1", "d1"));
    settings.decode.picker = Picker::WeightedRandom;
    settings.decode.weights.push((Scorer::Pages, 1.0));
    let shares = counts(&settings, &fleet, &request(20), 400);
    assert!(shares["d0"] > 100 && shares["d1"] > 100, "{shares:?}");
}

#[test]
fn a_session_scorer_prefers_its_worker_and_gives_way_to_load() {
    let mut settings = both(Rule::Scored);
    settings.prefill.weights = vec![(Scorer::Queue, 1.0)];
    settings.decode.weights = vec![(Scorer::Session, 0.5), (Scorer::Pages, 1.0)];
    let mut request = request(1);
    request.affinity = Some(5);
    let workers = |free: [u32; 2]| {
        fleet([
            worker("p"),
            worker("d0").free(free[0]),
            worker("d1").free(free[1]),
        ])
    };
    let home = always(&settings, &workers([1000, 1000]), &request).1;
    let loaded = if home == "d0" {
        [300, 1000]
    } else {
        [1000, 300]
    };
    assert_ne!(always(&settings, &workers(loaded), &request).1, home);
    let lightly = if home == "d0" {
        [700, 1000]
    } else {
        [1000, 700]
    };
    assert_eq!(always(&settings, &workers(lightly), &request).1, home);
}

#[test]
fn who_is_away_is_filtered_out_and_named_with_the_reason() {
    let mut fleet = fleet([
        worker("p"),
        worker("d0"),
        worker("d1"),
        worker("d2"),
        worker("d3").free(1),
        worker("d4").label("pool", "b"),
        worker("d5").label("pool", "a"),
    ]);
    fleet.set_standing(&name("d0"), Standing::Draining);
    fleet.set_standing(&name("d1"), Standing::Disabled);
    fleet.set_healthy(&name("d2"), false);
    let mut settings = both(Rule::LeastLoaded);
    settings.decode.labels = vec![("pool".into(), "a".into())];
    let mut request = request(2);
    request.avoid = [(Stage::Decode, name("d9"))].into();
    let pair = pair(&mut pairing(&settings), &fleet, &request);
    assert_eq!(pair.decode, name("d5"));
    let out = [
        ("d0", Filtered::Draining),
        ("d1", Filtered::Disabled),
        ("d2", Filtered::Unhealthy),
        ("d3", Filtered::NoRoom),
        ("d4", Filtered::Label),
    ];
    let out = out.map(|(worker, why)| (name(worker), why));
    assert_eq!(pair.why.decode.out, out);
    request.avoid = [(Stage::Decode, name("d5"))].into();
    let none = try_pair(&mut pairing(&settings), &fleet, &request).unwrap_err();
    assert_eq!(
        none.why.decode.out.last(),
        Some(&(name("d5"), Filtered::Avoided))
    );
    assert_eq!(
        none.reason,
        tandem_core::pairing::NoPairReason::NoRoom(Stage::Decode)
    );
}

#[test]
fn a_choice_says_why_and_an_explanation_shows_everybody() {
    let workers = (0..40).map(|n| worker(&format!("d{n}")).free(1000 - n));
    let mut fleet = fleet(workers.chain([worker("p").queued(3)]));
    fleet.set_standing(&name("d7"), Standing::Draining);
    let mut policy = pairing(&both(Rule::LeastLoaded));
    let why = pair(&mut policy, &fleet, &request(2)).why;
    assert_eq!(why.decode.shown.len(), 2);
    assert_eq!(
        why.to_string(),
        "decode: d0 by least_loaded (score 0.000, 0 tokens queued, 0 requests, 1000 of 1000 pages free, \
         0 tokens held) of 39, not: 1 draining; prefill: p by least_loaded (score -3.000, 3 tokens queued, \
         0 requests, 1000 of 1000 pages free, 0 tokens held) of 1"
    );
    let all = policy
        .explain(Instant::ZERO, &fleet, &request(2))
        .unwrap()
        .why;
    assert_eq!(all.decode.shown.len(), 39);
    let names: Vec<_> = all
        .decode
        .shown
        .iter()
        .take(3)
        .map(|s| s.worker.as_str())
        .collect();
    assert_eq!(names, ["d0", "d1", "d2"]);
}

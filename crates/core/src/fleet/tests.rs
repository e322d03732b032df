//! The fleet's rules, case by case.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;
use crate::RequestId;
use crate::blocks::{BlockChain, BlockHash};
use crate::geometry::{KvDtype, KvGeometry, KvKind, KvOrder};
use crate::layout::WorkerLayout;
use crate::pairing::Why;

fn layout(head_dim: u16) -> Arc<WorkerLayout> {
    let geometry = KvGeometry {
        layers: 2,
        kv_heads: 1,
        head_dim,
        page_tokens: 4,
        dtype: KvDtype::F16,
        kind: KvKind::Heads,
        order: KvOrder::Together,
        context_bytes: 0,
    };
    Arc::new(WorkerLayout::tensor_parallel(geometry, 16, 1).unwrap())
}

pub(crate) fn facts(name: &str, role: WorkerRole) -> WorkerFacts {
    WorkerFacts {
        worker: WorkerId::new(name).unwrap(),
        incarnation: Incarnation(1),
        role,
        model: "m".into(),
        fingerprint: "f".into(),
        context_length: 256,
        layout: layout(2),
        provider: "tcp".into(),
        seed: None,
        labels: BTreeMap::new(),
    }
}

#[test]
fn a_worker_of_another_model_or_geometry_is_refused_with_both_values() {
    let mut fleet = Fleet::default();
    fleet
        .join(facts("p", WorkerRole::Prefill), WorkerLoad::default())
        .unwrap();
    let mut d = facts("d", WorkerRole::Decode);
    d.model = "other".into();
    let text = fleet
        .join(d, WorkerLoad::default())
        .unwrap_err()
        .to_string();
    assert_eq!(
        text,
        "d does not fit the pool: its model is other, that of p is m"
    );
    let mut d = facts("d", WorkerRole::Decode);
    d.layout = layout(8);
    let text = fleet
        .join(d, WorkerLoad::default())
        .unwrap_err()
        .to_string();
    assert_eq!(
        text,
        "d does not fit the pool: its head_dim is 8, that of p is 2"
    );
}

#[test]
fn a_restarted_worker_takes_the_place_of_its_earlier_life() {
    let mut fleet = Fleet::default();
    let old = facts("p", WorkerRole::Prefill);
    fleet.join(old.clone(), WorkerLoad::default()).unwrap();
    let mut new = old.clone();
    new.incarnation = Incarnation(2);
    new.model = "newer".into();
    fleet.join(new, WorkerLoad::default()).unwrap();
    fleet.leave(&old.worker, Incarnation(1));
    assert_eq!(
        fleet.get(&old.worker).unwrap().facts.incarnation,
        Incarnation(2)
    );
}

#[test]
fn an_old_report_changes_nothing() {
    let mut fleet = Fleet::default();
    let f = facts("p", WorkerRole::Prefill);
    fleet
        .join(
            f.clone(),
            WorkerLoad {
                sequence: 5,
                ..WorkerLoad::default()
            },
        )
        .unwrap();
    let report = |sequence, free_pages| WorkerLoad {
        sequence,
        free_pages,
        ..WorkerLoad::default()
    };
    fleet.report(&f.worker, f.incarnation, report(4, 9));
    fleet.report(&f.worker, Incarnation(9), report(7, 9));
    assert_eq!(fleet.get(&f.worker).unwrap().free_pages(), 0);
    fleet.report(&f.worker, f.incarnation, report(6, 9));
    assert_eq!(fleet.get(&f.worker).unwrap().free_pages(), 9);
}

fn name(worker: &str) -> WorkerId {
    WorkerId::new(worker).unwrap()
}

fn load(sequence: u64, free_pages: u32, queued_prompt_tokens: u64) -> WorkerLoad {
    WorkerLoad {
        sequence,
        free_pages,
        queued_prompt_tokens,
        ..WorkerLoad::default()
    }
}

fn two() -> Fleet {
    let mut fleet = Fleet::default();
    fleet
        .join(facts("p", WorkerRole::Prefill), load(1, 16, 0))
        .unwrap();
    fleet
        .join(facts("d", WorkerRole::Decode), load(1, 16, 0))
        .unwrap();
    fleet
}

fn pair() -> Pair {
    Pair {
        decode: name("d"),
        prefill: Some(name("p")),
        local: None,
        cached_tokens: 3,
        why: Arc::new(Why::default()),
    }
}

/// Free pages of the decode worker and tokens queued at the prefill worker.
fn seen(fleet: &Fleet) -> (u32, u64) {
    (
        fleet.get(&name("d")).unwrap().free_pages(),
        fleet.get(&name("p")).unwrap().queued_tokens(),
    )
}

#[test]
fn a_pick_counts_at_once_and_only_until_reports_hold_it() {
    let mut fleet = two();
    let request = RequestFacts::new(RequestId(1), 13, 4);
    let mut picked = fleet.pick(&pair(), &request, 4);
    assert_eq!(
        seen(&fleet),
        (12, 10),
        "tokens that are cached do not queue"
    );
    // Reports from before the grant do not hold it.
    fleet.report(&name("d"), Incarnation(1), load(2, 16, 0));
    fleet.report(&name("p"), Incarnation(1), load(2, 16, 0));
    assert_eq!(seen(&fleet), (12, 10));
    fleet.granted(&mut picked);
    fleet.report(&name("d"), Incarnation(1), load(3, 12, 0));
    fleet.report(&name("p"), Incarnation(1), load(3, 16, 0));
    assert_eq!(
        seen(&fleet),
        (12, 10),
        "the prefill worker hears of it later"
    );
    fleet.report(&name("p"), Incarnation(1), load(4, 16, 7));
    assert_eq!(seen(&fleet), (12, 7));
    fleet.prefilled(&mut picked);
    fleet.give_back(picked);
    assert_eq!(seen(&fleet), (12, 7), "what reports hold is not taken off");
}

#[test]
fn a_worker_that_registers_again_in_the_same_life_owes_nothing_from_before() {
    let mut fleet = two();
    let request = RequestFacts::new(RequestId(1), 13, 4);
    let mut picked = fleet.pick(&pair(), &request, 4);
    fleet.leave(&name("d"), Incarnation(1));
    let d = facts("d", WorkerRole::Decode);
    fleet.join(d, load(2, 16, 0)).unwrap();
    fleet.granted(&mut picked);
    assert_eq!(seen(&fleet), (16, 10));
    fleet.give_back(picked);
    assert_eq!(seen(&fleet), (16, 0));
}

#[test]
fn a_prompt_that_is_computed_queues_no_more() {
    let mut fleet = two();
    let request = RequestFacts::new(RequestId(1), 13, 4);
    let mut picked = fleet.pick(&pair(), &request, 4);
    fleet.granted(&mut picked);
    fleet.prefilled(&mut picked);
    assert_eq!(seen(&fleet), (12, 0));
    fleet.give_back(picked);
    assert_eq!(seen(&fleet), (16, 0));
}

#[test]
fn a_pick_of_an_earlier_life_takes_nothing_from_the_next_one() {
    let mut fleet = two();
    let request = RequestFacts::new(RequestId(1), 13, 4);
    let old = fleet.pick(&pair(), &request, 4);
    let mut d = facts("d", WorkerRole::Decode);
    d.incarnation = Incarnation(2);
    fleet.join(d, load(1, 16, 0)).unwrap();
    let new = fleet.pick(&pair(), &request, 2);
    fleet.give_back(old);
    assert_eq!(seen(&fleet), (14, 10));
    fleet.give_back(new);
    assert_eq!(seen(&fleet), (16, 0));
}

#[test]
fn what_an_operator_said_outlives_the_workers_process() {
    let mut fleet = two();
    fleet.set_standing(&name("d"), Standing::Draining);
    assert_eq!(fleet.census().decodes, 0);
    let mut d = facts("d", WorkerRole::Decode);
    d.incarnation = Incarnation(2);
    fleet.join(d, load(1, 16, 0)).unwrap();
    assert_eq!(fleet.census().decodes, 0);
    fleet.set_standing(&name("d"), Standing::Enabled);
    assert_eq!(fleet.census().decodes, 1);
}

#[test]
fn a_fleet_has_room_for_so_many_workers_and_no_more() {
    let mut fleet = Fleet::default();
    for n in 0..MAX_WORKERS {
        let facts = facts(&format!("w{n}"), WorkerRole::Decode);
        fleet.by_name.insert(facts.worker.clone(), Slot(n as u16));
        fleet
            .workers
            .push(Some(Worker::new(facts, load(1, 1, 0), 0)));
    }
    let more = fleet.join(facts("one-more", WorkerRole::Decode), load(1, 1, 0));
    assert_eq!(more, Err(NotJoined::Crowded(MAX_WORKERS)));
}

#[test]
fn blocks_are_found_by_the_seed_of_their_worker_and_gone_with_it() {
    let block = |n: u8| BlockHash([n; 16]);
    let seed = BlockSeed::announced(block(9), 4);
    let mut fleet = Fleet::default();
    let mut d = facts("d", WorkerRole::Decode);
    d.seed = Some(seed);
    fleet.join(d, load(1, 16, 0)).unwrap();
    fleet
        .join(facts("p", WorkerRole::Prefill), load(1, 16, 0))
        .unwrap();
    let stored = |n| CacheChange::Stored(block(n));
    fleet.cached(&name("d"), Incarnation(1), true, &[stored(1), stored(2)]);
    let chain = BlockChain {
        seed,
        blocks: [block(1), block(2), block(3)].into(),
    };
    let tokens = |fleet: &Fleet, worker: &str| {
        let mut hits = Vec::new();
        fleet.hits(std::slice::from_ref(&chain), &mut hits);
        let slot = fleet.slot(&name(worker)).unwrap();
        fleet.figures()[slot.index()].hit_tokens(&hits)
    };
    assert_eq!((tokens(&fleet, "d"), tokens(&fleet, "p")), (8, 0));
    fleet.cached(&name("d"), Incarnation(1), true, &[stored(1)]);
    assert_eq!(tokens(&fleet, "d"), 4);
    fleet.leave(&name("d"), Incarnation(1));
    let mut d = facts("d", WorkerRole::Decode);
    d.seed = Some(seed);
    fleet.join(d, load(1, 16, 0)).unwrap();
    assert_eq!(tokens(&fleet, "d"), 0);
}

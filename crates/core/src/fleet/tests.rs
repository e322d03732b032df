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

/// Each column has what the figures and traits of its slots have.
fn columns_follow(fleet: &Fleet, hits: &[Hits]) {
    for stage in [Stage::Prefill, Stage::Decode] {
        let columns = fleet.of_stage(stage);
        let mut held = Vec::new();
        columns.held_tokens(hits, 7, &mut held);
        for (seat, slot) in columns.slots.iter().map(|s| usize::from(*s)).enumerate() {
            let (figures, traits) = (fleet.figures()[slot], fleet.traits()[slot]);
            assert_eq!(columns.flags[seat], figures.flags);
            assert_eq!(columns.page_tokens[seat], figures.page_tokens);
            assert_eq!(columns.pages[seat], figures.pages);
            assert_eq!(columns.free_pages[seat], figures.free_pages);
            assert_eq!(columns.queued_tokens[seat], figures.queued_tokens);
            assert_eq!(columns.requests[seat], figures.requests);
            assert_eq!(columns.prefill_ns[seat], figures.prefill_ns);
            assert_eq!(columns.step_base_us[seat], figures.step_base_us);
            assert_eq!(columns.step_slope_us[seat], figures.step_slope_us);
            assert_eq!(columns.ranks[seat], traits.rank);
            assert_eq!(columns.weights[seat], traits.weight);
            assert_eq!(columns.name_hashes[seat], traits.name_hash);
            let labels = columns.labels.iter().map(|column| column[seat]);
            let labels: Vec<_> = labels.filter(|label| *label != LabelId::NONE).collect();
            assert_eq!(labels, traits.labels[..labels.len()]);
            assert_eq!(labels.len(), traits.known_labels());
            assert_eq!(held[seat], figures.hit_tokens(hits).min(7) as f32);
        }
    }
    let stages = [Stage::Prefill, Stage::Decode].map(|stage| fleet.of_stage(stage).len());
    assert_eq!(stages.iter().sum::<usize>(), fleet.workers().count());
}

fn seeds() -> [BlockSeed; 2] {
    [1, 2].map(|n| BlockSeed::announced(BlockHash([n; 16]), 4))
}

/// The `n`th of nine workers, in no order of names, and what it holds: two ways to name blocks, and one
/// worker that names none.
fn ninth(n: u8) -> (WorkerFacts, WorkerLoad, Vec<CacheChange>) {
    let roles = [WorkerRole::Prefill, WorkerRole::Decode, WorkerRole::Both];
    let mut facts = facts(&format!("w{}", n * 7 % 9), roles[usize::from(n) % 3]);
    facts.seed = seeds().get(usize::from(n) % 5 / 2).copied();
    if n.is_multiple_of(2) {
        facts.labels.insert("host".into(), (n / 4).to_string());
    }
    let load = WorkerLoad {
        sequence: 1,
        free_pages: 16 - u32::from(n),
        queued_prompt_tokens: u64::from(n) * 100,
        decode_step_us: 1000 + u32::from(n),
        ..WorkerLoad::default()
    };
    let blocks = (0..n % 5).map(|n| CacheChange::Stored(BlockHash([n; 16])));
    (facts, load, blocks.collect())
}

#[test]
fn columns_have_what_the_figures_have_whatever_happens() {
    let chain = |seed: BlockSeed| BlockChain {
        seed,
        blocks: (0..4).map(|n| BlockHash([n; 16])).collect(),
    };
    let mut request = RequestFacts::new(RequestId(1), 16, 8);
    request.blocks = Arc::new(seeds().map(chain));
    let mut fleet = Fleet::default();
    let mut hits = Vec::new();
    let mut check = |fleet: &Fleet| {
        fleet.hits(&request.blocks, &mut hits);
        columns_follow(fleet, &hits);
    };
    let id = |n: u8| WorkerId::new(format!("w{}", n * 7 % 9)).unwrap();
    for n in 0..9 {
        let (facts, load, blocks) = ninth(n);
        fleet.join(facts, load).unwrap();
        fleet.cached(&id(n), Incarnation(1), true, &blocks);
        check(&fleet);
    }
    let pair = Pair {
        decode: id(1),
        prefill: Some(id(0)),
        local: None,
        cached_tokens: 0,
        why: Arc::new(Why::default()),
    };
    let mut reservation = fleet.pick(&pair, &request, 6);
    check(&fleet);
    fleet.granted(&mut reservation);
    let load = WorkerLoad {
        sequence: 2,
        running: 3,
        prefill_ns_per_token: 9,
        ..WorkerLoad::default()
    };
    fleet.report(&id(1), Incarnation(1), load);
    check(&fleet);
    fleet.set_weight(&id(4), 250);
    let weights = &fleet.of_stage(Stage::Decode).weights;
    assert_eq!(weights.iter().filter(|weight| **weight == 2.5).count(), 1);
    check(&fleet);
    fleet.set_standing(&id(4), Standing::Draining);
    fleet.refused(&id(5));
    fleet.leave(&id(1), Incarnation(1));
    check(&fleet);
    fleet.give_back(reservation);
    let new = facts("w3", WorkerRole::Prefill);
    fleet.join(new, WorkerLoad::default()).unwrap();
    check(&fleet);
}

#[test]
fn the_most_room_is_that_of_workers_that_take_requests() {
    let mut fleet = Fleet::default();
    let room = |fleet: &Fleet| fleet.of_stage(Stage::Decode).most_free_tokens();
    assert_eq!(room(&fleet), 0);
    for (name, free_pages) in [("a", 3), ("b", 9), ("c", 5)] {
        let load = WorkerLoad {
            sequence: 1,
            free_pages,
            ..WorkerLoad::default()
        };
        fleet.join(facts(name, WorkerRole::Decode), load).unwrap();
    }
    assert_eq!(room(&fleet), 9 * 4);
    fleet.set_standing(&WorkerId::new("b").unwrap(), Standing::Disabled);
    assert_eq!(room(&fleet), 5 * 4);
    fleet.refused(&WorkerId::new("c").unwrap());
    assert_eq!(room(&fleet), 3 * 4);
}

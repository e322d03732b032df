//! The index against a model that does everything the slow way.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

fn block(n: u32) -> BlockHash {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(
        &(u64::from(n) + 1)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .to_le_bytes(),
    );
    BlockHash(bytes)
}

/// Block `at` of conversation `which`.
fn chain(which: u32, length: u32) -> Vec<BlockHash> {
    (0..length).map(|at| block(which * 10_000 + at)).collect()
}

fn longest(index: &PrefixIndex, chain: &[BlockHash]) -> Hits {
    let mut hits = Hits::default();
    index.longest(chain, &mut hits);
    hits
}

#[derive(Clone, Debug)]
enum Step {
    /// A worker's cache of a conversation grows or shrinks to so many blocks.
    Hold(usize, u32, u32),
    /// A worker begins anew.
    Anew(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let hold = (0..12usize, 0..3u32, 0..150u32).prop_map(|(w, c, n)| Step::Hold(w, c, n));
    let step = prop_oneof![9 => hold, 1 => (0..12usize).prop_map(Step::Anew)];
    prop::collection::vec(step, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_worker_has_exactly_the_prefix_that_it_reported(steps in steps()) {
        let mut index = PrefixIndex::new(1_000_000);
        let mut places: Vec<Place> = (0..12).map(|_| index.open()).collect();
        let mut model: BTreeMap<(usize, u32), u32> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Hold(worker, which, length) => {
                    let before = model.insert((worker, which), length).unwrap_or(0);
                    let all = chain(which, before.max(length));
                    for at in before..length {
                        index.stored(places[worker], all[at as usize]);
                    }
                    for at in (length..before).rev() {
                        index.withdrawn(places[worker], all[at as usize]);
                    }
                }
                Step::Anew(worker) => {
                    index.close(places[worker]);
                    places[worker] = index.open();
                    model.retain(|(w, _), _| *w != worker);
                }
            }
            for which in 0..3 {
                let hits = longest(&index, &chain(which, 150));
                let held = |w| model.get(&(w, which)).copied().unwrap_or(0);
                for (worker, place) in places.iter().enumerate() {
                    prop_assert_eq!(hits.of(*place), held(worker));
                }
                prop_assert_eq!(hits.most(), (0..12).map(held).max().unwrap());
            }
        }
        let held: BTreeSet<_> = model.iter().flat_map(|((_, c), n)| (0..*n).map(move |at| (*c, at))).collect();
        prop_assert!(index.len() >= held.len());
        places.iter().for_each(|place| index.close(*place));
        index.clear_down(usize::MAX);
        index.clear_down(usize::MAX);
        prop_assert!(index.is_empty());
        prop_assert_eq!(index.free.len(), usize::from(index.fresh));
        prop_assert_eq!(index.many.len(), index.many_free.len());
    }

    /// The reports of a worker with holes come to no more than what it reported at all.
    #[test]
    fn a_hole_never_makes_an_answer_past_the_last_block_held(held in prop::collection::btree_set(0..200u32, 0..80)) {
        let mut index = PrefixIndex::new(1000);
        let place = index.open();
        held.iter().for_each(|at| index.stored(place, block(*at)));
        let found = longest(&index, &chain(0, 200)).of(place);
        let exact = (0..200).take_while(|at| held.contains(at)).count() as u32;
        prop_assert!(found >= exact);
        prop_assert!(found == 0 || held.contains(&(found - 1)));
    }
}

#[test]
fn an_index_never_grows_past_its_bound_and_keeps_what_is_wanted() {
    let mut index = PrefixIndex::new(100);
    let place = index.open();
    let system = chain(0, 10);
    system.iter().for_each(|b| index.stored(place, *b));
    for which in 1..50 {
        index.wanted(&system);
        chain(which, 20)
            .iter()
            .for_each(|b| index.stored(place, *b));
        assert!(index.len() <= 100 && index.ring.len() <= 100);
    }
    assert!(index.is_tight() && index.evicted() > 0);
    assert_eq!(longest(&index, &system).of(place), 10);
}

#[test]
fn large_sets_are_bounded_too() {
    let mut index = PrefixIndex::new(16);
    let places: Vec<Place> = (0..20).map(|_| index.open()).collect();
    for at in 0..16 {
        places.iter().for_each(|p| index.stored(*p, block(at)));
    }
    assert!(index.many.len() <= 3);
    assert_eq!(longest(&index, &[block(0)]).of(places[19]), 1);
    // Past the bound the first holders are still known.
    assert_eq!(longest(&index, &[block(15)]).of(places[0]), 1);
}

#[test]
fn workers_that_begin_anew_for_ever_find_a_place_each_time() {
    let mut index = PrefixIndex::new(1000);
    let other = index.open();
    chain(1, 500).iter().for_each(|b| index.stored(other, *b));
    let mut place = index.open();
    for _ in 0..3 * PLACES {
        index.close(place);
        place = index.open();
    }
    assert_eq!(longest(&index, &chain(1, 500)).of(other), 500);
    assert_eq!(longest(&index, &chain(1, 500)).of(place), 0);
}

#[test]
fn a_forgotten_worker_is_found_no_more_at_once() {
    let mut index = PrefixIndex::new(1000);
    let (a, b) = (index.open(), index.open());
    for block in chain(0, 100) {
        index.stored(a, block);
        index.stored(b, block);
    }
    index.close(a);
    let hits = longest(&index, &chain(0, 100));
    assert_eq!((hits.of(a), hits.of(b)), (0, 100));
}

use super::*;
use proptest::prelude::*;

fn pages(lease: &Lease<Leased>) -> Vec<u32> {
    lease.pages().iter().map(|p| p.0).collect()
}

#[test]
fn never_fits_and_full_now_are_two_errors() {
    let mut pool = PagePool::new(4);
    assert_eq!(
        pool.lease(5).unwrap_err(),
        NoLease::NeverFits { asked: 5, total: 4 }
    );
    let _held = pool.lease(3).unwrap();
    assert_eq!(
        pool.lease(2).unwrap_err(),
        NoLease::FullNow { asked: 2, free: 1 }
    );
}

#[test]
fn a_lease_is_one_run_where_one_is_long_enough() {
    let mut pool = PagePool::new(10);
    let a = pool.lease(3).unwrap();
    let b = pool.lease(2).unwrap();
    assert_eq!((pages(&a), pages(&b)), (vec![0, 1, 2], vec![3, 4]));
    pool.free_leased(a);
    // Runs 0..3 and 5..10: two pages come from the shorter one, four from the longer one.
    assert_eq!(pages(&pool.lease(2).unwrap()), [0, 1]);
    assert_eq!(pages(&pool.lease(4).unwrap()), [5, 6, 7, 8]);
    // Pieces, when no run is long enough.
    assert_eq!(pages(&pool.lease(2).unwrap()), [2, 9]);
    assert_eq!(pool.free(), 0);
}

#[test]
fn pages_pass_through_the_states_and_come_back() {
    let mut pool = PagePool::new(8);
    let lease = pool.lease(2).unwrap();
    let lease = pool.expose(lease);
    assert_eq!(pool.counts().of(PageState::Exposed), 2);
    let lease = pool.drain(lease);
    let lease = pool.quarantine(lease);
    assert_eq!(pool.counts().of(PageState::Quarantined), 2);
    assert_eq!(pool.free(), 6);
    pool.free_fenced(lease);
    assert_eq!(pool.free(), 8);
    assert_eq!(pool.lease(8).unwrap().pages().len(), 8);
}

proptest! {
    /// Leases never overlap, counts add up, and when all have ended the pool is one run again.
    #[test]
    fn pages_are_owned_once_and_all_come_back(steps in proptest::collection::vec((any::<bool>(), 1..20u32), 1..200)) {
        let mut pool = PagePool::new(64);
        let mut held: Vec<Lease<Leased>> = Vec::new();
        for (take, n) in steps {
            if take {
                if let Ok(lease) = pool.lease(n) {
                    let mine: std::collections::BTreeSet<_> = lease.pages().iter().collect();
                    prop_assert_eq!(mine.len(), n as usize);
                    prop_assert!(held.iter().all(|l| l.pages().iter().all(|p| !mine.contains(p))));
                    held.push(lease);
                }
            } else if !held.is_empty() {
                pool.free_leased(held.swap_remove(n as usize % held.len()));
            }
            let used: u32 = held.iter().map(|l| l.pages().len() as u32).sum();
            prop_assert_eq!(pool.free() + used, 64);
            prop_assert_eq!(pool.counts().total(), 64);
        }
        for lease in held {
            pool.free_leased(lease);
        }
        prop_assert_eq!(pool.free_runs.len(), 1);
    }
}

fn block(n: u8) -> BlockHash {
    BlockHash([n; 16])
}

/// A request that computed these blocks and has ended.
fn computed(pool: &mut PagePool, blocks: &[BlockHash]) -> Vec<u32> {
    let lease = pool.lease(blocks.len() as u32).unwrap();
    let numbers = pages(&lease);
    let lease = pool.activate_unexposed(lease);
    pool.publish(&lease, blocks);
    pool.free_active(lease);
    numbers
}

#[test]
fn published_pages_are_found_again_count_as_free_and_go_last() {
    let mut pool = PagePool::new(8);
    let chain = [block(1), block(2), block(3)];
    let mine = computed(&mut pool, &chain);
    assert_eq!(pool.free(), 8);
    assert_eq!(pool.counts().of(PageState::Cached), 3);
    let prefix = pool.hold(&[block(1), block(2), block(9)]);
    let held: Vec<u32> = prefix.pages().iter().map(|p| p.0).collect();
    assert_eq!(held, mine[..2]);
    assert_eq!(pool.free(), 6);
    // Pages without a block go first, then the one that nobody holds; those that are held never.
    let lease = pool.lease(6).unwrap();
    assert!(pages(&lease).contains(&mine[2]));
    assert_eq!(
        pool.lease(1).unwrap_err(),
        NoLease::FullNow { asked: 1, free: 0 }
    );
    let stored = chain.map(CacheChange::Stored);
    let changes = pool.take_changes();
    assert_eq!(changes[..3], stored);
    assert_eq!(changes[3..], [CacheChange::Evicted(block(3))]);
    pool.free_leased(lease);
    pool.let_go(prefix);
    assert_eq!(pool.free(), 8);
}

#[test]
fn the_longest_unused_chain_goes_first_and_its_end_before_its_beginning() {
    let mut pool = PagePool::new(4);
    computed(&mut pool, &[block(1), block(2)]);
    computed(&mut pool, &[block(3), block(4)]);
    let used = pool.hold(&[block(1), block(2)]);
    pool.let_go(used);
    pool.take_changes();
    let lease = pool.lease(3).unwrap();
    let gone = [block(4), block(3), block(2)].map(CacheChange::Evicted);
    assert_eq!(pool.take_changes(), gone);
    pool.free_leased(lease);
}

#[test]
fn a_block_is_stored_once_and_a_second_copy_is_freed() {
    let mut pool = PagePool::new(4);
    let first = pool.lease(1).unwrap();
    let first = pool.activate_unexposed(first);
    let second = pool.lease(1).unwrap();
    let second = pool.activate_unexposed(second);
    pool.publish(&first, &[block(1)]);
    pool.publish(&second, &[block(1)]);
    pool.free_active(second);
    assert_eq!(pool.counts().of(PageState::Free), 3);
    let shared = pool.hold(&[block(1)]);
    pool.free_active(first);
    assert_eq!(pool.counts().of(PageState::Active), 1);
    pool.let_go(shared);
    assert_eq!(pool.counts().of(PageState::Cached), 1);
}

proptest! {
    /// Whatever is leased, published, held and given back, in any order: no page that somebody holds or
    /// reads is leased to another, a held page still has its block, and at rest all count as free.
    #[test]
    fn shared_pages_are_never_given_away(
        steps in proptest::collection::vec((0..5u8, any::<u8>(), 1..6u8), 1..300),
    ) {
        let mut pool = PagePool::new(24);
        // What each page holds, as a writer would leave it.
        let mut content = [0u8; 24];
        let mut active: Vec<Lease<Active>> = Vec::new();
        let mut held: Vec<(Prefix, Vec<u8>)> = Vec::new();
        for (what, pick, n) in steps {
            let pick = usize::from(pick);
            match what {
                0 | 1 => {
                    let Ok(lease) = pool.lease(u32::from(n)) else { continue };
                    for page in lease.pages().iter() {
                        let read = held.iter().any(|(p, _)| p.pages().contains(page));
                        prop_assert!(!read && !active.iter().any(|l| l.pages().contains(page)));
                        content[page.0 as usize] = 0;
                    }
                    let lease = pool.activate_unexposed(lease);
                    // One of four chains, named by its first block.
                    let names: Vec<u8> = (0..n).map(|i| (pick as u8 % 4) * 10 + i + 1).collect();
                    for (page, name) in lease.pages().iter().zip(&names) {
                        content[page.0 as usize] = *name;
                    }
                    if what == 1 {
                        let blocks: Vec<BlockHash> = names.iter().map(|n| block(*n)).collect();
                        pool.publish(&lease, &blocks);
                    }
                    active.push(lease);
                }
                2 => {
                    let names: Vec<u8> = (0..n).map(|i| (pick as u8 % 4) * 10 + i + 1).collect();
                    let blocks: Vec<BlockHash> = names.iter().map(|n| block(*n)).collect();
                    let prefix = pool.hold(&blocks);
                    held.push((prefix, names));
                }
                3 if !active.is_empty() => pool.free_active(active.swap_remove(pick % active.len())),
                4 if !held.is_empty() => pool.let_go(held.swap_remove(pick % held.len()).0),
                _ => {}
            }
            for (prefix, names) in &held {
                for (page, name) in prefix.pages().iter().zip(names) {
                    prop_assert_eq!(content[page.0 as usize], *name);
                }
            }
        }
        active.into_iter().for_each(|l| pool.free_active(l));
        held.into_iter().for_each(|(p, _)| pool.let_go(p));
        prop_assert_eq!(pool.free(), 24);
    }
}

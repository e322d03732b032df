//! The page pool: which pages are free, and in which state the others are.
//!
//! What must hold: a page is in exactly one state; it gets a new owner only from `Free`; free pages
//! and leased pages always add up to the total (I4). The pool checks this in production too.
//!
//! The allocator prefers contiguous runs, since contiguous pages travel in one write.

use std::collections::BTreeMap;

use crate::PageIndex;
use crate::lease::{
    Active, Draining, Exposed, Lease, LeaseState, Leased, PageState, Quarantined, Ready,
};

/// All pages of one worker.
#[derive(Debug)]
#[cfg_attr(feature = "explore", derive(Clone, PartialEq, Eq, Hash))]
pub struct PagePool {
    states: Vec<PageState>,
    /// Free runs: first page to length. Adjacent runs are always merged.
    free_runs: BTreeMap<u32, u32>,
    counts: PageCounts,
}

/// Pages in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "explore", derive(Hash))]
pub struct PageCounts([u32; PageState::ALL.len()]);

impl PageCounts {
    /// Pages in `state`.
    #[must_use]
    pub const fn of(&self, state: PageState) -> u32 {
        self.0[state as usize]
    }

    /// All pages.
    #[must_use]
    pub fn total(&self) -> u32 {
        self.0.iter().sum()
    }
}

/// Why no lease was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoLease {
    /// More than the pool has: waiting does not help.
    #[error("{asked} pages are more than the {total} that this worker has")]
    NeverFits {
        /// Pages asked for.
        asked: u32,
        /// Pages there are.
        total: u32,
    },
    /// More than is free now.
    #[error("{asked} pages are more than the {free} that are free now")]
    FullNow {
        /// Pages asked for.
        asked: u32,
        /// Pages free.
        free: u32,
    },
}

impl PagePool {
    /// A pool of `total` free pages.
    ///
    /// # Panics
    /// Where `total` is 0.
    #[must_use]
    pub fn new(total: u32) -> Self {
        assert!(total > 0, "a pool has pages");
        let mut counts = PageCounts::default();
        counts.0[PageState::Free as usize] = total;
        Self {
            states: vec![PageState::Free; total as usize],
            free_runs: BTreeMap::from([(0, total)]),
            counts,
        }
    }

    /// Pages in each state.
    #[must_use]
    pub const fn counts(&self) -> PageCounts {
        self.counts
    }

    /// Pages that are free.
    #[must_use]
    pub const fn free(&self) -> u32 {
        self.counts.of(PageState::Free)
    }

    /// All pages.
    #[must_use]
    pub fn total(&self) -> u32 {
        self.states.len() as u32
    }

    /// Takes `asked` pages that nobody else gets until the lease ends. In one run where some run is
    /// long enough (the shortest such), else in as few runs as the largest ones give.
    pub fn lease(&mut self, asked: u32) -> Result<Lease<Leased>, NoLease> {
        let (total, free) = (self.total(), self.free());
        if asked > total {
            return Err(NoLease::NeverFits { asked, total });
        }
        if asked > free {
            return Err(NoLease::FullNow { asked, free });
        }
        let mut pages = Vec::with_capacity(asked as usize);
        let mut missing = asked;
        while missing > 0 {
            let (start, length) = self.best_run(missing);
            let taken = length.min(missing);
            self.free_runs.remove(&start);
            if taken < length {
                self.free_runs.insert(start + taken, length - taken);
            }
            pages.extend((start..start + taken).map(PageIndex));
            missing -= taken;
        }
        let lease = Lease::new(pages.into());
        self.mark(lease.pages(), PageState::Free, PageState::Leased);
        Ok(lease)
    }

    /// The address of these pages is about to be given to a prefill worker.
    pub fn expose(&mut self, lease: Lease<Leased>) -> Lease<Exposed> {
        self.step(lease)
    }

    /// The count is full: every byte is in the pages, nobody writes them any more.
    pub fn fill(&mut self, lease: Lease<Exposed>) -> Lease<Ready> {
        self.step(lease)
    }

    /// The engine may read and write the pages.
    pub fn activate(&mut self, lease: Lease<Ready>) -> Lease<Active> {
        self.step(lease)
    }

    /// As [`PagePool::activate`], of pages whose address nobody was given.
    pub fn activate_unexposed(&mut self, lease: Lease<Leased>) -> Lease<Active> {
        self.step(lease)
    }

    /// The writer was asked to stop, and has not confirmed yet.
    pub fn drain(&mut self, lease: Lease<Exposed>) -> Lease<Draining> {
        self.step(lease)
    }

    /// The writer is lost before it confirmed: the pages wait for its fence.
    pub fn quarantine(&mut self, lease: Lease<Draining>) -> Lease<Quarantined> {
        self.step(lease)
    }

    /// The lease's pages were a source, and a reader that is lost may still read them.
    pub fn quarantine_source(&mut self, lease: Lease<Active>) -> Lease<Quarantined> {
        self.step(lease)
    }

    /// Ends a lease whose pages nobody was told of.
    pub fn free_leased(&mut self, lease: Lease<Leased>) {
        self.release(lease);
    }

    /// Ends a lease whose pages are complete or in use here.
    pub fn free_active(&mut self, lease: Lease<Active>) {
        self.release(lease);
    }

    /// Ends a lease: its writer has confirmed that it writes no more.
    pub fn free_drained(&mut self, lease: Lease<Draining>) {
        self.release(lease);
    }

    /// Ends a lease: its writer has been fenced.
    pub fn free_fenced(&mut self, lease: Lease<Quarantined>) {
        self.release(lease);
    }

    fn step<A: LeaseState, B: LeaseState>(&mut self, lease: Lease<A>) -> Lease<B> {
        self.mark(lease.pages(), A::STATE, B::STATE);
        Lease::new(lease.into_pages())
    }

    fn release<S: LeaseState>(&mut self, lease: Lease<S>) {
        self.mark(lease.pages(), S::STATE, PageState::Free);
        let mut pages: Vec<u32> = lease.pages().iter().map(|p| p.0).collect();
        pages.sort_unstable();
        for run in pages.chunk_by(|a, b| a + 1 == *b) {
            self.insert_run(run[0], run.len() as u32);
        }
        drop(lease.into_pages());
    }

    fn mark(&mut self, pages: &[PageIndex], from: PageState, to: PageState) {
        for page in pages {
            let state = &mut self.states[page.0 as usize];
            assert_eq!(*state, from, "page {} on its way to {to:?}", page.0);
            *state = to;
        }
        let n = pages.len() as u32;
        self.counts.0[from as usize] -= n;
        self.counts.0[to as usize] += n;
    }

    /// The shortest run of at least `wanted` pages, else the longest one.
    fn best_run(&self, wanted: u32) -> (u32, u32) {
        let runs = self
            .free_runs
            .iter()
            .map(|(start, length)| (*start, *length));
        let fitting = runs.clone().filter(|(_, length)| *length >= wanted);
        let longest = |run: &(u32, u32)| (run.1, u32::MAX - run.0);
        fitting
            .min_by_key(|(start, length)| (*length, *start))
            .or_else(|| runs.max_by_key(longest))
            .expect("free pages lie in runs")
    }

    fn insert_run(&mut self, mut start: u32, mut length: u32) {
        if let Some((before, len)) = self.free_runs.range(..start).next_back() {
            let (before, len) = (*before, *len);
            assert!(before + len <= start, "free runs do not overlap");
            if before + len == start {
                self.free_runs.remove(&before);
                start = before;
                length += len;
            }
        }
        if let Some(len) = self.free_runs.remove(&(start + length)) {
            length += len;
        }
        self.free_runs.insert(start, length);
    }
}

#[cfg(test)]
mod tests {
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
}

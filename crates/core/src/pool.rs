//! The page pool: which pages are free, and in which state the others are.
//!
//! What must hold: a page is in exactly one state; it gets a new owner only from `Free`; free pages
//! and leased pages always add up to the total (I4). The pool checks this in production too.
//!
//! The allocator prefers contiguous runs, since contiguous pages travel in one write.
//!
//! Pages that hold whole blocks of tokens can be *published*: later requests that begin with the same
//! blocks hold them too, as their [`Prefix`], and when nobody holds them they stay [`Cached`] until
//! their room is needed. A published page is read by any number of requests and written by none.
//!
//! [`Cached`]: PageState::Cached

mod cache;

pub use cache::CacheChange;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::PageIndex;
use crate::blocks::BlockHash;
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
    cache: cache::Cache,
}

/// Cached pages that a request begins with and reads. Give it back to its pool.
#[derive(Debug)]
#[cfg_attr(feature = "explore", derive(Clone, PartialEq, Eq, Hash))]
#[must_use = "a dropped prefix keeps its pages for ever: give it back to its pool"]
pub struct Prefix {
    pages: Arc<[PageIndex]>,
}

impl Prefix {
    /// The pages, in the order of their tokens.
    #[must_use]
    pub const fn pages(&self) -> &Arc<[PageIndex]> {
        &self.pages
    }
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

    /// Pages that a lease may have.
    #[must_use]
    pub const fn free(&self) -> u32 {
        self.of(PageState::Free) + self.of(PageState::Cached)
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
            cache: cache::Cache::default(),
        }
    }

    /// Pages in each state.
    #[must_use]
    pub const fn counts(&self) -> PageCounts {
        self.counts
    }

    /// Pages that a lease may have: nobody's, whether they hold a block or not.
    #[must_use]
    pub const fn free(&self) -> u32 {
        self.counts.free()
    }

    /// All pages.
    #[must_use]
    pub fn total(&self) -> u32 {
        self.states.len() as u32
    }

    /// Takes `asked` pages that nobody else gets until the lease ends. Where too few are without a
    /// block, the longest unused blocks go. In one run where some run is
    /// long enough (the shortest such), else in as few runs as the largest ones give.
    pub fn lease(&mut self, asked: u32) -> Result<Lease<Leased>, NoLease> {
        let (total, free) = (self.total(), self.free());
        if asked > total {
            return Err(NoLease::NeverFits { asked, total });
        }
        if asked > free {
            return Err(NoLease::FullNow { asked, free });
        }
        while self.counts.of(PageState::Free) < asked {
            self.evict();
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

    /// Ends a lease whose pages nobody was told of.
    pub fn free_leased(&mut self, lease: Lease<Leased>) {
        self.release(lease);
    }

    /// Ends a lease whose pages are complete or in use here. Those that were published stay cached,
    /// the ones of later tokens to go first.
    pub fn free_active(&mut self, lease: Lease<Active>) {
        let mut freed = Vec::new();
        for page in lease.pages().iter().rev() {
            match self.cache.let_go(page.0) {
                None => freed.push(*page),
                Some(true) => self.mark(&[*page], PageState::Active, PageState::Cached),
                Some(false) => {}
            }
        }
        drop(lease.into_pages());
        self.give_back(&freed, PageState::Active);
    }

    /// The pages of the longest chain of these blocks that is here, to be read. Nobody gets or writes
    /// them until the prefix is given back.
    pub fn hold(&mut self, blocks: &[BlockHash]) -> Prefix {
        let mut pages = Vec::new();
        for block in blocks {
            let Some((page, idle)) = self.cache.hold(*block) else {
                break;
            };
            if idle {
                self.mark(&[PageIndex(page)], PageState::Cached, PageState::Active);
            }
            pages.push(PageIndex(page));
        }
        Prefix {
            pages: pages.into(),
        }
    }

    /// Gives a prefix back.
    pub fn let_go(&mut self, prefix: Prefix) {
        for page in prefix.pages.iter().rev() {
            if self.cache.let_go(page.0) == Some(true) {
                self.mark(&[*page], PageState::Active, PageState::Cached);
            }
        }
    }

    /// The lease's pages, from its first one on, hold these whole blocks, and nobody will write them
    /// any more: others may read them. Pages that were published before stay so.
    ///
    /// # Panics
    /// Where there are more blocks than pages.
    pub fn publish(&mut self, lease: &Lease<Active>, blocks: &[BlockHash]) {
        assert!(blocks.len() <= lease.pages().len(), "a page for each block");
        for (page, block) in lease.pages().iter().zip(blocks) {
            self.cache.store(page.0, *block);
        }
    }

    /// Blocks that were published or evicted since the last call, in order.
    pub fn take_changes(&mut self) -> Vec<CacheChange> {
        self.cache.take_changes()
    }

    fn evict(&mut self) {
        let page = self.cache.evict().expect("what counts as free is cached");
        self.mark(&[PageIndex(page)], PageState::Cached, PageState::Free);
        self.insert_run(page, 1);
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
        let pages = lease.into_pages();
        let cached = |page: &PageIndex| self.cache.holds(page.0);
        assert!(!pages.iter().any(cached), "what is cached was active");
        self.give_back(&pages, S::STATE);
    }

    fn give_back(&mut self, pages: &[PageIndex], from: PageState) {
        self.mark(pages, from, PageState::Free);
        let mut pages: Vec<u32> = pages.iter().map(|p| p.0).collect();
        pages.sort_unstable();
        for run in pages.chunk_by(|a, b| a + 1 == *b) {
            self.insert_run(run[0], run.len() as u32);
        }
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
mod tests;

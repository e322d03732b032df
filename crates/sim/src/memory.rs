//! What lies in a shard's arena: for each token of each head and plane, whose bytes they are; behind
//! them the same of each page's context slot, which is as large as such an entry.

use std::ops::Range;

use tandem_core::PageIndex;
use tandem_core::layout::WorkerLayout;

use crate::names::Attempt;

/// One shard's arena.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Memory(Vec<Option<Attempt>>);

/// Where a shard's pages lie, in entries of one token of one head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    entry: u64,
    piece: u64,
    layer: u64,
    layers: u64,
    /// The first context slot's entry, where there are any.
    contexts: Option<u64>,
    /// Where the arena ends.
    end: u64,
}

impl Places {
    pub(crate) fn new(layout: &WorkerLayout, shard: u16) -> Self {
        let arena = layout.arena(shard);
        let entry = arena.geometry().token_bytes() as u64;
        Self {
            entry,
            piece: arena.geometry().piece_bytes() as u64 / entry,
            layer: arena.layer_bytes() as u64 / entry,
            layers: arena.geometry().layers.into(),
            contexts: (arena.geometry().context_bytes > 0)
                .then(|| arena.context(PageIndex(0)) as u64 / entry),
            end: arena.bytes() as u64 / entry,
        }
    }

    /// The entry of a page's context slot.
    pub(crate) fn context(&self, page: PageIndex) -> Option<u64> {
        Some(self.contexts? + u64::from(page.0))
    }

    /// The entries that a range of bytes covers.
    pub(crate) const fn entries(&self, start: u64, bytes: u32) -> Range<u64> {
        start / self.entry..(start + bytes as u64) / self.entry
    }

    /// Whose page an entry is in.
    pub(crate) fn page(&self, entry: u64) -> PageIndex {
        match self.contexts.and_then(|first| entry.checked_sub(first)) {
            Some(slot) => PageIndex(slot as u32),
            None => PageIndex((entry % self.layer / self.piece) as u32),
        }
    }

    /// All entries of a page.
    fn of_page(&self, page: PageIndex) -> impl Iterator<Item = u64> {
        let (piece, first) = (self.piece, u64::from(page.0) * self.piece);
        let layer = self.layer;
        (0..self.layers).flat_map(move |l| (l * layer + first)..(l * layer + first + piece))
    }
}

impl Memory {
    pub(crate) fn new(places: &Places) -> Self {
        Self(vec![None; places.end as usize])
    }

    pub(crate) fn put(&mut self, entry: u64, whose: Option<Attempt>) {
        self.0[entry as usize] = whose;
    }

    /// What in a page is not `whose`.
    pub(crate) fn other(
        &self,
        places: &Places,
        page: PageIndex,
        whose: Attempt,
    ) -> Option<Option<Attempt>> {
        let mut found = places.of_page(page).map(|e| self.0[e as usize]);
        found.find(|found| *found != Some(whose))
    }

    /// What in a page's context slot, where it has one, is not `whose`.
    pub(crate) fn other_context(
        &self,
        places: &Places,
        page: PageIndex,
        whose: Attempt,
    ) -> Option<Option<Attempt>> {
        let found = self.0[places.context(page)? as usize];
        (found != Some(whose)).then_some(found)
    }
}

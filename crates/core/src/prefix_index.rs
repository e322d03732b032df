//! Which workers hold which blocks of tokens, by their own reports.
//!
//! Owns a table from a block's name to its holders, and answers how much of a prompt's beginning each
//! worker holds. Bounded: past `max_blocks` a new block takes the place of one that nobody asked for
//! lately. Forgetting a worker costs nothing at once: its place in the table is dead from then on, and
//! cleared little by little with the reports that follow.
//!
//! What must hold: what is found was reported and not withdrawn; memory stays below
//! [`PrefixIndex::BYTES_PER_BLOCK`] for each block; every call does a bounded amount of work.
//!
//! Blocks go by 64 bits of their name. Two that meet in these make a worker look as if it held more
//! than it does, which costs time and nothing else: the worker compares whole names.

mod follow;
mod holders;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::blocks::BlockHash;
use holders::{Bits, Few, Group, Holders, PLACES};

pub use follow::{CacheFollower, Heard};

/// Blocks that the eviction's hand passes at most for one that goes.
const PASSED: usize = 64;
/// Blocks that are cleared of dead places with each change.
const CLEARED: usize = 4;

/// A worker's number in the index, for as long as its reports go on without a break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place(u16);

impl Place {
    /// Index into [`Hits`].
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Stands for the place of a worker that has none: nothing is held there.
pub(crate) const NOWHERE: u16 = PLACES as u16;

/// A hash's hash: itself.
#[derive(Clone, Copy, Debug, Default)]
struct Named(u64);

impl Hasher for Named {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, name: u64) {
        self.0 = name;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    holders: Holders,
    /// Where its name is in the ring.
    ring: u32,
    /// Wanted since the hand last passed.
    wanted: bool,
}

/// The index.
#[derive(Clone, Debug)]
pub struct PrefixIndex {
    blocks: HashMap<u64, Entry, BuildHasherDefault<Named>>,
    /// All names, in no order: the eviction's hand goes round, clearing goes down.
    ring: Vec<u64>,
    hand: usize,
    many: Vec<Bits>,
    many_free: Vec<u32>,
    max_blocks: usize,
    /// Places in use.
    live: Bits,
    /// Places that nobody uses and no block has: those given back, and all from this one on.
    free: Vec<u16>,
    fresh: u16,
    /// Places that blocks may still have.
    dead: Bits,
    /// Of `dead`, those that are being cleared, and how far down the ring it is done.
    clearing: Option<(Bits, usize)>,
    evicted: u64,
}

/// What part of a prompt each worker holds, by [`Place`]: blocks from its beginning.
#[derive(Clone, Debug)]
pub struct Hits {
    /// Of each place, and 0 of [`NOWHERE`].
    blocks: Box<[u32; PLACES + 1]>,
    /// The most of any worker.
    most: u32,
}

impl Default for Hits {
    fn default() -> Self {
        Self {
            blocks: Box::new([0; PLACES + 1]),
            most: 0,
        }
    }
}

impl Hits {
    /// Nobody holds anything.
    pub fn clear(&mut self) {
        if self.most > 0 {
            self.blocks.fill(0);
            self.most = 0;
        }
    }

    /// Blocks that the worker at this place holds.
    #[must_use]
    pub fn of(&self, place: Place) -> u32 {
        self.blocks[place.index()]
    }

    /// The same for a place's number or [`NOWHERE`].
    #[inline]
    pub(crate) fn at(&self, place: u16) -> u32 {
        self.blocks[usize::from(place.min(NOWHERE))]
    }

    /// The most that any worker holds.
    #[must_use]
    pub const fn most(&self) -> u32 {
        self.most
    }

    fn set(&mut self, places: &Group, blocks: usize) {
        if places.is_empty() {
            return;
        }
        self.most = self.most.max(blocks as u32);
        match places {
            Group::Few(few) => few
                .places()
                .iter()
                .for_each(|p| self.blocks[usize::from(*p)] = blocks as u32),
            Group::Many(bits) => bits.fill(&mut self.blocks[..PLACES], blocks as u32),
        }
    }
}

fn name(block: BlockHash) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&block.0[..8]);
    u64::from_le_bytes(bytes)
}

impl PrefixIndex {
    /// What a block costs at most, with its share of the table's spare room and of the large sets.
    pub const BYTES_PER_BLOCK: usize = 128;

    /// An empty index of at most so many blocks.
    #[must_use]
    pub fn new(max_blocks: usize) -> Self {
        Self {
            blocks: HashMap::default(),
            ring: Vec::new(),
            hand: 0,
            many: Vec::new(),
            many_free: Vec::new(),
            max_blocks: max_blocks.max(1),
            live: Bits::EMPTY,
            free: Vec::new(),
            fresh: 0,
            dead: Bits::EMPTY,
            clearing: None,
            evicted: 0,
        }
    }

    /// Blocks that some worker holds, or held until lately.
    #[must_use]
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Whether it knows no block.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Blocks that it forgot for want of room.
    #[must_use]
    pub const fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Whether it must soon forget: then it is worth saying which blocks are wanted.
    #[must_use]
    pub fn is_tight(&self) -> bool {
        self.blocks.len() >= self.max_blocks / 4 * 3
    }

    /// A place for a worker that holds nothing yet.
    ///
    /// # Panics
    /// Where as many as there are places are in use: a fleet has half as many workers.
    pub fn open(&mut self) -> Place {
        let place = self.free.pop().or_else(|| self.next_fresh());
        let place = place.unwrap_or_else(|| {
            // So many workers began anew since the last round that none is left: finish it now.
            self.clear_down(usize::MAX);
            self.clear_down(usize::MAX);
            self.free.pop().expect("a place for every worker")
        });
        self.live.insert(place);
        Place(place)
    }

    fn next_fresh(&mut self) -> Option<u16> {
        let fresh = (usize::from(self.fresh) < PLACES).then_some(self.fresh)?;
        self.fresh += 1;
        Some(fresh)
    }

    /// Forgets a worker.
    pub fn close(&mut self, place: Place) {
        assert!(self.live.contains(place.0), "a place is closed once");
        self.live.remove(place.0);
        if self.blocks.is_empty() {
            self.free.push(place.0);
        } else {
            self.dead.insert(place.0);
        }
    }

    /// A worker holds a block from now on.
    pub fn stored(&mut self, place: Place, block: BlockHash) {
        self.clear_down(CLEARED);
        let name = name(block);
        if !self.blocks.contains_key(&name) {
            if self.blocks.len() >= self.max_blocks {
                self.evict();
            }
            let ring = self.ring.len() as u32;
            self.ring.push(name);
            let entry = Entry {
                holders: Holders::Few(Few::default()),
                ring,
                wanted: false,
            };
            self.blocks.insert(name, entry);
        }
        let Some(entry) = self.blocks.get_mut(&name) else {
            return;
        };
        match &mut entry.holders {
            Holders::Many { at } => self.many[*at as usize].insert(place.0),
            Holders::Few(few) => {
                if few.insert(place.0) {
                    return;
                }
                let mut bits = Bits::EMPTY;
                few.places().iter().for_each(|p| bits.insert(*p));
                bits.insert(place.0);
                // Past the bound the others keep the block, and this one is not known to have it.
                if let Some(at) = self.keep(bits)
                    && let Some(entry) = self.blocks.get_mut(&name)
                {
                    entry.holders = Holders::Many { at };
                }
            }
        }
    }

    /// A worker holds a block no more.
    pub fn withdrawn(&mut self, place: Place, block: BlockHash) {
        self.clear_down(CLEARED);
        let mut one = Bits::EMPTY;
        one.insert(place.0);
        self.take_from(name(block), &one);
    }

    /// These blocks were asked for: others go first.
    pub fn wanted(&mut self, chain: &[BlockHash]) {
        for block in chain {
            match self.blocks.get_mut(&name(*block)) {
                Some(entry) => entry.wanted = true,
                None => return,
            }
        }
    }

    /// How many blocks of the chain each worker holds, from the first one on. Exact for a worker that
    /// holds whatever is before a block that it holds, as workers do: they give up the end of a chain
    /// first (`core::pool`). For one that does not it is a place where what it holds breaks off.
    ///
    /// Looks at no more blocks than `2 + 3 k log4 n`, where workers drop out at `k` places of `n`; three
    /// at a time, so that the memory that they are in is fetched together.
    pub fn longest(&self, chain: &[BlockHash], hits: &mut Hits) {
        hits.clear();
        let (Some(first), Some(last)) = (chain.first(), chain.last()) else {
            return;
        };
        let (first, last) = (self.holders(*first), self.holders(*last));
        let holders = self.among(first, &Group::Many(self.live.clone()));
        let whole = self.among(last, &holders);
        hits.set(&whole, chain.len());
        self.narrow(chain, (0, chain.len() - 1), &holders.without(&whole), hits);
    }

    /// Everybody in `some` holds the block at `held`, and not the one at `lacks`.
    fn narrow(
        &self,
        chain: &[BlockHash],
        (held, lacks): (usize, usize),
        some: &Group,
        hits: &mut Hits,
    ) {
        if some.is_empty() {
            return;
        }
        let between = lacks - held;
        if between == 1 {
            return hits.set(some, lacks);
        }
        if between < 4 {
            let at = held + between / 2;
            let upper = self.among(self.holders(chain[at]), some);
            self.narrow(chain, (held, at), &some.without(&upper), hits);
            return self.narrow(chain, (at, lacks), &upper, hits);
        }
        let at = [1, 2, 3].map(|quarter| held + between * quarter / 4);
        let [first, second, third] = at.map(|at| self.holders(chain[at]));
        let first = self.among(first, some);
        self.narrow(chain, (held, at[0]), &some.without(&first), hits);
        let second = self.among(second, &first);
        self.narrow(chain, (at[0], at[1]), &first.without(&second), hits);
        let third = self.among(third, &second);
        self.narrow(chain, (at[1], at[2]), &second.without(&third), hits);
        self.narrow(chain, (at[2], lacks), &third, hits);
    }

    fn holders(&self, block: BlockHash) -> Option<&Holders> {
        self.blocks.get(&name(block)).map(|entry| &entry.holders)
    }

    /// Those of `some` who hold a block.
    fn among(&self, holders: Option<&Holders>, some: &Group) -> Group {
        match holders {
            None => Group::NOBODY,
            Some(Holders::Few(few)) => Group::Few(few.filtered(|place| some.contains(place))),
            Some(Holders::Many { at }) => some.and(&self.many[*at as usize]),
        }
    }

    fn keep(&mut self, bits: Bits) -> Option<u32> {
        if let Some(at) = self.many_free.pop() {
            self.many[at as usize] = bits;
            return Some(at);
        }
        // A set is as large as eight blocks are otherwise.
        (self.many.len() <= self.max_blocks / 8).then(|| {
            self.many.push(bits);
            self.many.len() as u32 - 1
        })
    }

    /// Takes these places from a block's holders; whether the block is still there.
    fn take_from(&mut self, name: u64, gone: &Bits) -> bool {
        let Some(entry) = self.blocks.get_mut(&name) else {
            return false;
        };
        let empty = match &mut entry.holders {
            Holders::Many { at } => {
                let bits = &mut self.many[*at as usize];
                *bits = bits.without(gone);
                bits.is_empty()
            }
            Holders::Few(few) => {
                *few = few.filtered(|place| !gone.contains(place));
                few.places().is_empty()
            }
        };
        if empty {
            self.forget(name);
        }
        !empty
    }

    fn forget(&mut self, name: u64) {
        let Some(entry) = self.blocks.remove(&name) else {
            return;
        };
        if let Holders::Many { at } = entry.holders {
            self.many_free.push(at);
        }
        // The last name moves here. It was cleared already, so at worst it is cleared twice.
        let at = entry.ring as usize;
        self.ring.swap_remove(at);
        if let Some(moved) = self.ring.get(at)
            && let Some(entry) = self.blocks.get_mut(moved)
        {
            entry.ring = at as u32;
        }
    }

    fn evict(&mut self) {
        for _ in 0..PASSED {
            if self.hand >= self.ring.len() {
                self.hand = 0;
            }
            let name = self.ring[self.hand];
            match self.blocks.get_mut(&name) {
                Some(entry) if entry.wanted => {
                    entry.wanted = false;
                    self.hand += 1;
                }
                _ => break,
            }
        }
        if self.hand >= self.ring.len() {
            self.hand = 0;
        }
        let name = self.ring[self.hand];
        self.forget(name);
        // The last name moved here: it is not the next to go.
        self.hand += 1;
        self.evicted += 1;
    }

    /// Clears up to `most` blocks of dead places.
    fn clear_down(&mut self, most: usize) {
        if self.clearing.is_none() && !self.dead.is_empty() {
            let places = std::mem::replace(&mut self.dead, Bits::EMPTY);
            self.clearing = Some((places, self.ring.len()));
        }
        let Some((places, mut at)) = self.clearing.take() else {
            return;
        };
        at = at.min(self.ring.len());
        for _ in 0..most {
            if at == 0 {
                break;
            }
            at -= 1;
            let name = self.ring[at];
            self.take_from(name, &places);
            at = at.min(self.ring.len());
        }
        if at == 0 {
            self.free.extend(places.places());
        } else {
            self.clearing = Some((places, at));
        }
    }
}

impl Default for PrefixIndex {
    /// A million blocks: 16 million tokens in pages of 16.
    fn default() -> Self {
        Self::new(1_000_000)
    }
}

impl PartialEq for PrefixIndex {
    fn eq(&self, other: &Self) -> bool {
        self.blocks == other.blocks && self.live == other.live
    }
}

impl Eq for PrefixIndex {}

impl std::hash::Hash for PrefixIndex {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.blocks.len().hash(state);
        self.live.hash(state);
    }
}

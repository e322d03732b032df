//! What a gateway knows of its workers.
//!
//! Owns the table of workers that have registered, their latest loads, what was picked from them since,
//! and which blocks they hold. Refuses a worker whose model or pages do not fit the others': every
//! prefill worker must be able to push to every decode worker.
//!
//! A worker has a slot for as long as it stays. What a policy looks at for each request stands in one
//! small record a slot ([`Figures`]) and, for what goes through all workers, in a column for each measure
//! and stage ([`Columns`]).

mod columns;
mod figures;
mod labels;
mod picks;
#[cfg(test)]
pub(crate) mod tests;
mod worker;

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::blocks::{BlockChain, BlockSeed};
use crate::pairing::{Pair, RequestFacts, Stage};
use crate::pool::CacheChange;
use crate::prefix_index::{Hits, PrefixIndex};
use crate::{Incarnation, WorkerId, WorkerRole};

pub use columns::Columns;
pub use figures::{Figures, LABELS, LABELS as MAX_LABELS, Traits, is};
pub use labels::{LabelId, LabelKey, Labels};
pub use picks::Reservation;
pub use worker::{Mismatch, Standing, Worker, WorkerFacts, WorkerLoad};

use picks::Part;

/// Workers of one fleet, at most.
pub const MAX_WORKERS: usize = 1024;
/// Ways in which the workers of one fleet name blocks, at most. Those of other ways have no known hits.
const MAX_SEEDS: usize = 8;

/// Why a worker may not join.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotJoined {
    /// Its model or pages are others.
    #[error(transparent)]
    Mismatch(#[from] Mismatch),
    /// As many workers as can be are there.
    #[error("{0} workers have joined already, and there is room for no more")]
    Crowded(usize),
}

/// Where a worker stands in the fleet's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(u16);

impl Slot {
    /// The slot of an index into [`Fleet::figures`].
    #[must_use]
    pub const fn at(index: u16) -> Self {
        Self(index)
    }

    /// Index into [`Fleet::figures`].
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// All registered workers.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "explore", derive(PartialEq, Eq, Hash))]
pub struct Fleet {
    by_name: BTreeMap<WorkerId, Slot>,
    /// So far.
    registrations: u64,
    workers: Vec<Option<Worker>>,
    figures: Vec<Figures>,
    traits: Vec<Traits>,
    /// Those who compute prompts for others, and those who generate.
    prefills: Columns,
    decodes: Columns,
    /// Where each slot's worker is in the columns of its stage.
    seats: Vec<u16>,
    labels: Labels,
    seeds: Vec<BlockSeed>,
    /// `None` until a worker reports what it holds.
    index: Option<Box<PrefixIndex>>,
    /// `None`: the index's default.
    max_blocks: Option<usize>,
    census: Census,
}

/// Who is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Census {
    /// Workers that take new requests and can compute prompts, for others or themselves.
    pub prefills: usize,
    /// Workers that take new requests and can generate.
    pub decodes: usize,
    /// The largest decode worker's pages; 0 without one.
    pub most_pages: u32,
    /// Tokens that the pages of the largest decode worker hold.
    pub most_tokens: u64,
    /// All weigh the same.
    pub even: bool,
}

impl Fleet {
    /// A fleet whose index holds at most so many blocks.
    #[must_use]
    pub fn new(max_blocks: usize) -> Self {
        Self {
            max_blocks: Some(max_blocks),
            ..Self::default()
        }
    }

    /// All workers, in the order of their names.
    pub fn workers(&self) -> impl Iterator<Item = &Worker> {
        self.by_name.values().filter_map(|slot| self.at(*slot))
    }

    /// One worker.
    #[must_use]
    pub fn get(&self, worker: &WorkerId) -> Option<&Worker> {
        self.at(*self.by_name.get(worker)?)
    }

    /// The worker in a slot.
    #[must_use]
    pub fn at(&self, slot: Slot) -> Option<&Worker> {
        self.workers.get(slot.index())?.as_ref()
    }

    /// A worker's slot.
    #[must_use]
    pub fn slot(&self, worker: &WorkerId) -> Option<Slot> {
        self.by_name.get(worker).copied()
    }

    /// What matters of each worker for a choice, by slot. Slots without a worker have no role.
    #[must_use]
    pub fn figures(&self) -> &[Figures] {
        &self.figures
    }

    /// What few choices ask of each worker, by slot.
    #[must_use]
    pub fn traits(&self) -> &[Traits] {
        &self.traits
    }

    /// All workers of a stage's roles.
    #[must_use]
    pub const fn of_stage(&self, stage: Stage) -> &Columns {
        match stage {
            Stage::Prefill => &self.prefills,
            Stage::Decode => &self.decodes,
        }
    }

    /// Who is there.
    #[must_use]
    pub const fn census(&self) -> Census {
        self.census
    }

    /// How its workers name blocks: a request's facts have a chain for each.
    #[must_use]
    pub fn seeds(&self) -> &[BlockSeed] {
        &self.seeds
    }

    /// The labels that its workers have.
    #[must_use]
    pub const fn labels(&self) -> &Labels {
        &self.labels
    }

    /// Which workers hold which blocks; `None` where nobody reported any.
    #[must_use]
    pub fn index(&self) -> Option<&PrefixIndex> {
        self.index.as_deref()
    }

    /// What each worker holds of a prompt's beginning: one for each of the fleet's seeds, in their order.
    pub fn hits(&self, chains: &[BlockChain], hits: &mut Vec<Hits>) {
        hits.resize_with(self.seeds.len(), Hits::default);
        for (seed, hits) in self.seeds.iter().zip(hits) {
            let chain = chains.iter().find(|chain| chain.seed == *seed);
            match (&self.index, chain) {
                (Some(index), Some(chain)) => index.longest(&chain.blocks, hits),
                _ => hits.clear(),
            }
        }
    }

    /// Which worker's turn it is after `last`: its place in the order of names.
    #[must_use]
    pub fn rank_after(&self, last: &WorkerId) -> u32 {
        let after = (Bound::Excluded(last), Bound::Unbounded);
        let next = self.by_name.range::<WorkerId, _>(after).next();
        next.map_or(0, |(_, slot)| self.traits[slot.index()].rank)
    }

    /// Registers a worker, in place of an earlier life of it.
    pub fn join(&mut self, facts: WorkerFacts, load: WorkerLoad) -> Result<(), NotJoined> {
        if let Some(other) = self.workers().find(|w| w.facts.worker != facts.worker) {
            worker::fits(&facts, &other.facts)?;
        }
        let known = self.by_name.get(&facts.worker).copied();
        if known.is_none() && self.by_name.len() >= MAX_WORKERS {
            return Err(NotJoined::Crowded(MAX_WORKERS));
        }
        let earlier = known.and_then(|slot| self.workers[slot.index()].take());
        let slot = known.unwrap_or_else(|| self.free_slot());
        self.forget_blocks(earlier.as_ref());
        self.registrations += 1;
        let mut worker = Worker::new(facts, load, self.registrations);
        if let Some(earlier) = earlier {
            // What an operator said of it holds for its next life too.
            (worker.standing, worker.weight) = (earlier.standing, earlier.weight);
        }
        self.by_name.insert(worker.facts.worker.clone(), slot);
        self.workers[slot.index()] = Some(worker);
        self.renumber();
        Ok(())
    }

    /// Forgets a worker, unless it is another life than the one meant.
    pub fn leave(&mut self, worker: &WorkerId, incarnation: Incarnation) {
        let Some(slot) = self.known(worker, incarnation) else {
            return;
        };
        self.by_name.remove(worker);
        let left = self.workers[slot.index()].take();
        self.forget_blocks(left.as_ref());
        self.renumber();
    }

    /// Takes a report. Pages picked before it are in it by now, or soon will be.
    pub fn report(&mut self, worker: &WorkerId, incarnation: Incarnation, load: WorkerLoad) {
        self.change(worker, Some(incarnation), |worker| worker.report(load));
    }

    /// What a worker holds has changed, in this order; with `anew` these blocks are all that it holds.
    pub fn cached(
        &mut self,
        worker: &WorkerId,
        incarnation: Incarnation,
        anew: bool,
        changes: &[CacheChange],
    ) {
        let Some(slot) = self.known(worker, incarnation) else {
            return;
        };
        let max_blocks = self.max_blocks;
        let make = || max_blocks.map_or_else(PrefixIndex::default, PrefixIndex::new);
        let index = self.index.get_or_insert_with(|| Box::new(make()));
        let Some(worker) = self.workers[slot.index()].as_mut() else {
            return;
        };
        if anew && let Some(place) = worker.place.take() {
            index.close(place);
        }
        let place = *worker.place.get_or_insert_with(|| index.open());
        for change in changes {
            match change {
                CacheChange::Stored(block) => index.stored(place, *block),
                CacheChange::Evicted(block) => index.withdrawn(place, *block),
            }
        }
        self.refigure(slot);
    }

    /// Whether an operator lets a worker take new requests.
    pub fn set_standing(&mut self, worker: &WorkerId, standing: Standing) {
        self.change(worker, None, |worker| worker.standing = standing);
    }

    /// Whether a worker answers as it should.
    pub fn set_healthy(&mut self, worker: &WorkerId, healthy: bool) {
        self.change(worker, None, |worker| worker.healthy = healthy);
    }

    /// A worker's share of the requests, in per cent of what it would get; at least 1.
    pub fn set_weight(&mut self, worker: &WorkerId, percent: u32) {
        self.change(worker, None, |worker| worker.weight = percent.max(1));
        self.renumber();
    }

    /// Counts a request as its pair's load from now on, until what comes back is given back.
    pub fn pick(&mut self, pair: &Pair, request: &RequestFacts, pages: u32) -> Reservation {
        let computes = pair.prefill.as_ref().unwrap_or(&pair.decode);
        let tokens = u64::from(request.prompt_tokens.saturating_sub(pair.cached_tokens));
        let prefill = self.reserve(computes, 0, tokens);
        let decode = self.reserve(&pair.decode, pages, 0);
        if let Some(index) = &mut self.index
            && index.is_tight()
        {
            for chain in request.blocks.iter() {
                index.wanted(&chain.blocks);
            }
        }
        Reservation { decode, prefill }
    }

    /// The decode worker granted the lease: from its next report on its own figures hold it, and those
    /// of the prefill worker from the one after.
    pub fn granted(&mut self, reservation: &mut Reservation) {
        for part in reservation.parts_mut() {
            self.change_part(part, |worker, part| worker.picks.grant(part));
        }
    }

    /// The prompt is computed: it queues no more.
    pub fn prefilled(&mut self, reservation: &mut Reservation) {
        if let Some(mut part) = reservation.prefill.take() {
            self.change_part(&mut part, |worker, part| worker.picks.give_back(part));
        }
    }

    /// The decode worker refused for want of room: it has none until its next report.
    pub fn refused(&mut self, worker: &WorkerId) {
        self.change(worker, None, |worker| worker.full = true);
    }

    /// A request is over, on whatever way.
    pub fn give_back(&mut self, mut reservation: Reservation) {
        for part in reservation.parts_mut() {
            self.change_part(part, |worker, part| worker.picks.give_back(part));
        }
    }

    fn reserve(&mut self, worker: &WorkerId, pages: u32, tokens: u64) -> Option<Part> {
        let slot = self.slot(worker)?;
        let worker = self.workers[slot.index()].as_mut()?;
        let part = worker.picks.pick(slot, worker.registration, pages, tokens);
        self.refigure(slot);
        Some(part)
    }

    fn part_of(&mut self, part: &Part) -> Option<&mut Worker> {
        let worker = self.workers.get_mut(part.slot.index())?.as_mut()?;
        (worker.registration == part.registration).then_some(worker)
    }

    fn change_part(&mut self, part: &mut Part, change: impl FnOnce(&mut Worker, &mut Part)) {
        if let Some(worker) = self.part_of(part) {
            change(worker, part);
            self.refigure(part.slot);
        }
    }

    fn known(&self, worker: &WorkerId, incarnation: Incarnation) -> Option<Slot> {
        let slot = self.slot(worker)?;
        (self.at(slot)?.facts.incarnation == incarnation).then_some(slot)
    }

    fn change(
        &mut self,
        worker: &WorkerId,
        incarnation: Option<Incarnation>,
        change: impl FnOnce(&mut Worker),
    ) {
        let Some(slot) = self.slot(worker) else {
            return;
        };
        let Some(worker) = self.workers[slot.index()].as_mut() else {
            return;
        };
        if incarnation.is_some_and(|incarnation| worker.facts.incarnation != incarnation) {
            return;
        }
        let took_requests = worker.takes_requests();
        change(worker);
        let changed = worker.takes_requests() != took_requests;
        self.refigure(slot);
        if changed {
            self.count();
        }
    }

    fn free_slot(&mut self) -> Slot {
        let free = self.workers.iter().position(Option::is_none);
        let at = free.unwrap_or_else(|| {
            self.workers.push(None);
            self.figures.push(Figures::default());
            self.traits.push(Traits::default());
            self.workers.len() - 1
        });
        Slot(at as u16)
    }

    fn forget_blocks(&mut self, left: Option<&Worker>) {
        if let (Some(index), Some(place)) = (&mut self.index, left.and_then(|w| w.place)) {
            index.close(place);
        }
    }

    /// After a worker joined or left: who comes after whom, which labels and seeds there are.
    fn renumber(&mut self) {
        let all = self.workers.iter().flatten();
        self.labels = Labels::of(all.clone().map(|w| &w.facts.labels));
        self.seeds = all.filter_map(|w| w.facts.seed).collect();
        self.seeds
            .sort_unstable_by_key(|seed| (seed.start(), seed.page_tokens()));
        self.seeds.dedup();
        self.seeds.truncate(MAX_SEEDS);
        self.workers.truncate(
            self.workers
                .iter()
                .rposition(Option::is_some)
                .map_or(0, |at| at + 1),
        );
        self.figures = vec![Figures::default(); self.workers.len()];
        self.seats = vec![0; self.workers.len()];
        (self.prefills, self.decodes) = (Columns::default(), Columns::default());
        self.traits = vec![Traits::default(); self.workers.len()];
        for (rank, slot) in (0..).zip(self.by_name.values()) {
            if let Some(worker) = &self.workers[slot.index()] {
                self.traits[slot.index()] = Traits::of(worker, rank, &self.labels);
            }
        }
        for at in 0..self.workers.len() {
            self.refigure(Slot(at as u16));
        }
        let all = (0..).zip(&self.figures);
        let with = |flag| {
            let having = all.clone().filter(|(_, w): &(u16, _)| w.flags & flag != 0);
            let slots: Vec<u16> = having.map(|(at, _)| at).collect();
            Columns::of(slots, &self.figures, &self.traits)
        };
        (self.prefills, self.decodes) = (with(is::PREFILL), with(is::DECODE));
        for columns in [&self.prefills, &self.decodes] {
            for (seat, slot) in (0..).zip(&columns.slots) {
                self.seats[usize::from(*slot)] = seat;
            }
        }
        self.count();
    }

    /// After something of a worker changed.
    fn refigure(&mut self, slot: Slot) {
        let Some(worker) = self.workers[slot.index()].as_ref() else {
            return;
        };
        let seed = worker
            .facts
            .seed
            .and_then(|seed| self.seeds.iter().position(|s| *s == seed));
        let figures = Figures::of(worker, seed);
        self.figures[slot.index()] = figures;
        let columns = match figures.flags & is::PREFILL {
            0 => &mut self.decodes,
            _ => &mut self.prefills,
        };
        // None while the stages are being numbered.
        let seat = usize::from(self.seats[slot.index()]);
        if columns.slots.get(seat) == Some(&slot.0) {
            columns.set(seat, &figures);
        }
    }

    fn count(&mut self) {
        let mut census = Census {
            even: true,
            ..Census::default()
        };
        for worker in self.workers.iter().flatten() {
            let (role, layout) = (worker.facts.role, &worker.facts.layout);
            let ready = worker.takes_requests();
            census.even &= worker.weight == 100;
            census.prefills += usize::from(ready && role.prefills());
            census.decodes += usize::from(ready && role.decodes());
            if role.decodes() {
                let pages = layout.pages();
                let tokens = u64::from(pages) * u64::from(layout.geometry().page_tokens);
                census.most_pages = census.most_pages.max(pages);
                census.most_tokens = census.most_tokens.max(tokens);
            }
        }
        self.census = census;
    }
}

/// Pages that a request needs on a worker with such pages: for all its tokens but the last one
/// generated.
#[must_use]
pub const fn pages_for(page_tokens: u16, request: &RequestFacts) -> u32 {
    let tokens = request.prompt_tokens as u64 + request.new_tokens as u64 - 1;
    tokens.div_ceil(page_tokens as u64) as u32
}

/// Whether a worker of this role computes the prompts that it decodes.
#[must_use]
pub const fn computes_its_own(role: WorkerRole) -> bool {
    matches!(role, WorkerRole::Both)
}

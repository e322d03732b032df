//! What gives writes and seals to the fabrics' threads.
//!
//! The first write after a look goes out by itself, so that a layer's transfer begins at once; those
//! behind it go in batches, each of which visits the fabric's queue once and wakes its thread at most
//! once. What a fabric does not take is kept, each flow's in order: one that is stuck holds up no other.

use std::collections::{BTreeMap, VecDeque};

use tandem_core::FlowId;
use tandem_fabric::{Pusher, Write};

/// Writes that are handed over together, at most: as many as the fabric's thread takes in one turn.
const BATCH: usize = 64;

/// For all shards.
pub(super) struct Hands {
    /// One for each shard.
    ways: Vec<Way>,
    /// What a fabric did not take yet.
    kept: BTreeMap<FlowId, Kept>,
}

/// To one shard's fabric.
struct Way {
    pusher: Pusher,
    /// Its first write after the look has gone out.
    begun: bool,
    /// Behind that one, not handed over yet; empty between two looks.
    batch: Vec<Write>,
}

/// One flow's part that waits for room, in order.
struct Kept {
    source: u16,
    writes: VecDeque<Write>,
    /// The seal comes behind them.
    sealed: bool,
}

impl Hands {
    pub(super) fn new(pushers: Vec<Pusher>) -> Self {
        let way = |pusher| Way {
            pusher,
            begun: false,
            batch: Vec::with_capacity(BATCH),
        };
        Self {
            ways: pushers.into_iter().map(way).collect(),
            kept: BTreeMap::new(),
        }
    }

    /// Whether nothing is kept.
    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Whether anything of this flow is kept.
    pub(super) fn keeps(&self, flow: FlowId) -> bool {
        self.kept.contains_key(&flow)
    }

    /// Hands out no more of what is kept of a flow. Harmless where nothing is.
    pub(super) fn forget(&mut self, flow: FlowId) {
        self.kept.remove(&flow);
    }

    /// Takes a write of a shard, behind what it has of the same flow. [`Hands::flush`] must follow.
    pub(super) fn write(&mut self, source: u16, write: Write) {
        if let Some(kept) = self.kept.get_mut(&write.flow) {
            kept.writes.push_back(write);
            return;
        }
        let way = &mut self.ways[usize::from(source)];
        if !way.begun {
            way.begun = true;
            if way.pusher.post(write).is_ok() {
                return;
            }
        }
        way.batch.push(write);
        if way.batch.len() == BATCH {
            self.hand_over(source);
        }
    }

    /// Takes a flow's seal, behind all its writes.
    pub(super) fn seal(&mut self, source: u16, flow: FlowId) {
        self.hand_over(source);
        let pusher = &self.ways[usize::from(source)].pusher;
        if self.kept.contains_key(&flow) || (pusher.seal(flow).is_err() && !pusher.is_closed()) {
            self.keep(source, flow).sealed = true;
        }
    }

    /// Hands over all that was taken since the last look.
    pub(super) fn flush(&mut self) {
        for source in 0..self.ways.len() {
            self.hand_over(source as u16);
            self.ways[source].begun = false;
        }
    }

    /// Tries again with what is kept. Whether any of it was taken.
    pub(super) fn retry(&mut self) -> bool {
        let mut moved = false;
        let ways = &self.ways;
        self.kept.retain(|flow, kept| {
            let pusher = &ways[usize::from(kept.source)].pusher;
            moved |= kept.hand_over(pusher);
            if !kept.writes.is_empty() {
                return true;
            }
            let taken = !kept.sealed || pusher.seal(*flow).is_ok() || pusher.is_closed();
            moved |= taken;
            !taken
        });
        moved
    }

    fn hand_over(&mut self, source: u16) {
        let way = usize::from(source);
        let batch = std::mem::take(&mut self.ways[way].batch);
        let mut rest = batch.as_slice();
        while let Some(first) = rest.first() {
            // Up to the first that must wait behind its flow's others.
            let free = rest.iter().take_while(|w| !self.keeps(w.flow)).count();
            let pusher = &self.ways[way].pusher;
            let posted = pusher.post_many(&rest[..free]);
            if pusher.is_closed() {
                break;
            }
            if posted > 0 {
                rest = &rest[posted..];
                continue;
            }
            self.keep(source, first.flow).writes.push_back(*first);
            rest = &rest[1..];
        }
        // Its room is used again.
        let mut batch = batch;
        batch.clear();
        self.ways[way].batch = batch;
    }

    fn keep(&mut self, source: u16, flow: FlowId) -> &mut Kept {
        self.kept.entry(flow).or_insert_with(|| Kept {
            source,
            writes: VecDeque::new(),
            sealed: false,
        })
    }
}

impl Kept {
    /// As many writes as there is room for. Whether any was taken.
    fn hand_over(&mut self, pusher: &Pusher) -> bool {
        let mut moved = false;
        while !self.writes.is_empty() {
            let posted = pusher.post_many(self.writes.as_slices().0);
            if pusher.is_closed() {
                // Nothing will ever be taken again.
                self.writes.clear();
                return true;
            }
            if posted == 0 {
                break;
            }
            self.writes.drain(..posted);
            moved = true;
        }
        moved
    }
}

#[cfg(test)]
mod tests;

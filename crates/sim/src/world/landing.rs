//! Writes: when they land, what they read, whom they count for.

use std::sync::Arc;

use crate::config::LateReads;
use crate::memory::Memory;
use crate::names::{Attempt, Life};
use crate::violation::Violation;
use crate::wire::{Flying, Sender, WriteName};
use crate::world::{Setup, World};

impl World {
    /// Whether a write can still land.
    pub(crate) fn can_land(&self, write: &Flying) -> bool {
        self.decodes[write.to.index()].receives(write.to, write.inbox)
    }

    /// A write's immediate is read.
    pub(crate) fn count(&mut self, setup: &Setup, name: WriteName) {
        self.land(setup, name);
        let Some(write) = self.wire.get_mut(&name) else {
            return;
        };
        write.counted = true;
        let write = write.clone();
        if write.sender != Sender::Waits {
            self.wire.remove(&name);
        }
        let worker = Arc::make_mut(&mut self.decodes[write.to.index()]);
        let shard = &mut worker.shards[usize::from(write.target)];
        let counted = shard.count(setup.config.fault, write.inbox, write.immediate);
        if let Some(counted_for) = counted.filter(|of| *of != write.attempt) {
            self.wrong.get_or_insert(Violation::StaleCount {
                attempt: write.attempt,
                counted_for,
            });
        }
    }

    /// A write completes at its sender.
    pub(crate) fn complete(&mut self, setup: &Setup, name: WriteName, well: bool) {
        if well {
            self.land(setup, name);
        }
        let Some(write) = self.wire.get_mut(&name) else {
            return;
        };
        write.sender = if well { Sender::Done } else { Sender::GaveUp };
        write.carries |= setup.config.late_reads == LateReads::Never;
        let write = write.clone();
        if write.counted || !self.can_land(&write) {
            self.wire.remove(&name);
        }
        let p = name.from.index();
        self.prefill(p).shards[usize::from(write.shard)].completed(name.flow, well);
        if !well {
            self.report_first_error(setup, p, name.flow);
        }
    }

    fn land(&mut self, setup: &Setup, name: WriteName) {
        let Some(write) = self.wire.get_mut(&name) else {
            return;
        };
        if std::mem::replace(&mut write.landed, true) {
            return;
        }
        let write = write.clone();
        let source = &setup.prefill_places[usize::from(write.shard)];
        let target = &setup.decode_places[usize::from(write.target)];
        let from = source.entries(write.source_at, write.bytes);
        let into = target.entries(write.target_at, write.bytes);
        for (from, into) in from.zip(into) {
            let bytes = match self.read(&write, name.from, source.page(from)) {
                Ok(bytes) => bytes,
                Err(wrong) => return self.wrong = Some(wrong),
            };
            let (page, worker) = (target.page(into), self.decode(write.to.index()));
            let owner = worker.owners[page.0 as usize];
            let memory: &mut Memory = &mut worker.shards[usize::from(write.target)].memory;
            memory.put(into, bytes);
            if owner != Some(write.attempt) {
                self.wrong = Some(Violation::ForeignWrite {
                    attempt: write.attempt,
                    page,
                    owner,
                });
                return;
            }
        }
    }

    /// What a write finds at its source.
    fn read(
        &self,
        write: &Flying,
        from: Life,
        page: tandem_core::PageIndex,
    ) -> Result<Option<Attempt>, Violation> {
        let attempt = write.attempt;
        if write.carries {
            return Ok(Some(attempt));
        }
        let worker = &self.prefills[from.index()];
        let owner = worker.owners[page.0 as usize];
        if owner != Some(attempt) {
            return Err(Violation::ForeignRead {
                attempt,
                page,
                owner,
            });
        }
        Ok(worker.contents[page.0 as usize])
    }

    /// Nobody waits any more for the completions of these writes; they may land all the same.
    pub(crate) fn given_up(&mut self, from: Life, carries: bool, which: impl Fn(&Flying) -> bool) {
        for (name, write) in &mut self.wire {
            if name.from == from && which(write) {
                write.carries |= carries;
                if write.sender == Sender::Waits {
                    write.sender = Sender::GaveUp;
                }
            }
        }
        self.forget_writes();
    }

    /// An inbox was closed, or all of a life's: what has not landed there never will.
    pub(crate) fn inbox_closed(&mut self, life: Life, inbox: Option<tandem_core::EndpointId>) {
        for write in self.wire.values_mut() {
            if write.to == life && inbox.is_none_or(|i| write.inbox == i) {
                write.counted |= write.landed;
            }
        }
        self.forget_writes();
    }

    fn forget_writes(&mut self) {
        let decodes = &self.decodes;
        let lands = |w: &Flying| decodes[w.to.index()].receives(w.to, w.inbox);
        let done = |w: &Flying| w.sender != Sender::Waits && (w.counted || !lands(w));
        self.wire.retain(|_, write| !done(write));
    }
}

//! How transfers end: when nothing of them is in flight, and when their pages return.

use super::super::{Output, TransferEnd};
use super::PrefillAgent;
use super::transfer::{PeerState, Source, Stage, Transfer, Unsettled};
use crate::{FlowId, Instant, TransferId};

impl PrefillAgent {
    pub(super) fn drained(
        &mut self,
        now: Instant,
        flow: FlowId,
        complete: bool,
        settled: bool,
        error: Option<String>,
    ) {
        let Some(id) = self.flows.remove(&flow) else {
            return;
        };
        let Some(t) = self.transfers.get_mut(&id) else {
            return;
        };
        t.flows.remove(&flow);
        t.unsettled |= !settled;
        // The first failure stops the watcher and the other flows; the transfer ends when all have
        // drained.
        if !complete {
            let why = error.unwrap_or_else(|| "a write failed".into());
            self.end_early(now, id, TransferEnd::Failed(why));
        }
        self.all_drained(id);
    }

    /// Where no flow is left, nobody can post or complete writes. While the way is being opened the
    /// watcher may be about to hear of the transfer: it is stopped once that is known.
    pub(super) fn all_drained(&mut self, id: TransferId) {
        if let Some(t) = self.transfers.get_mut(&id)
            && t.flows.is_empty()
            && t.stage != Stage::Opening
        {
            t.stage = Stage::Drained;
            t.close_by = None;
        }
        self.settle(id);
    }

    /// Ends a transfer before its time: whoever may still touch its pages is asked to let go.
    pub(super) fn end_early(&mut self, now: Instant, id: TransferId, how: TransferEnd) {
        if let Some(at) = self.queue.iter().position(|w| w.transfer == id) {
            self.queue.remove(at);
            self.outputs.push_back(Output::End { transfer: id, how });
            self.outputs.push_back(Output::Gone { transfer: id });
            return;
        }
        let Some(t) = self.transfers.get_mut(&id) else {
            return;
        };
        if t.ending.is_some() {
            return;
        }
        t.ending = Some(how);
        if t.engine {
            self.outputs.push_back(Output::CancelSequence {
                sequence: t.sequence,
            });
        }
        if t.stage == Stage::Pushing {
            t.stage = Stage::StoppingWatch;
            t.close_by = Some(now + self.limits.drain_timeout);
            self.outputs.push_back(Output::StopWatch { transfer: id });
        }
        self.settle(id);
    }

    pub(super) fn peer_gone(&mut self, now: Instant, id: TransferId, peer: PeerState) {
        if let Some(pages) = self.unsettled.get_mut(&id) {
            if peer == PeerState::Ended {
                self.free_unsettled(id);
            } else if !std::mem::replace(&mut pages.fencing, true) {
                self.outputs.push_back(Output::Fence { transfer: id });
            }
            return;
        }
        if let Some(t) = self.transfers.get_mut(&id)
            && t.peer == PeerState::There
        {
            t.peer = peer;
        }
        let how = TransferEnd::Failed("the decode worker was lost".into());
        self.end_early(now, id, how);
    }

    pub(super) fn settle(&mut self, id: TransferId) {
        let Some(t) = self.transfers.get(&id) else {
            return;
        };
        if t.engine || t.stage != Stage::Drained {
            return;
        }
        let Some(t) = self.transfers.remove(&id) else {
            return;
        };
        let how = match t.ending {
            None => TransferEnd::Done,
            Some(TransferEnd::Failed(why)) if t.unsettled => TransferEnd::Unsettled(why),
            Some(_) if t.unsettled => TransferEnd::Unsettled("writes broke off".into()),
            Some(how) => how,
        };
        self.outputs.push_back(Output::End { transfer: id, how });
        if t.unsettled && t.peer != PeerState::Ended {
            let (source, fencing) = (t.source, t.peer == PeerState::Lost);
            self.unsettled.insert(id, Unsettled { source, fencing });
            if fencing {
                self.outputs.push_back(Output::Fence { transfer: id });
            }
            return;
        }
        self.free(t.source);
        self.gone(id);
    }

    pub(super) fn free_unsettled(&mut self, id: TransferId) {
        if let Some(pages) = self.unsettled.remove(&id) {
            self.free(pages.source);
            self.gone(id);
        }
    }

    fn free(&mut self, source: Source) {
        self.pool.free_active(source.lease);
        self.pool.let_go(source.prefix);
    }

    fn gone(&mut self, id: TransferId) {
        self.outputs.push_back(Output::Gone { transfer: id });
        if self.transfers.is_empty() && self.unsettled.is_empty() {
            assert_eq!(self.pool.free(), self.pool.total(), "no page was lost");
            assert!(self.flows.is_empty(), "no flow was lost");
        }
    }

    pub(super) fn tick(&mut self, now: Instant) {
        let waiting = self
            .queue
            .iter()
            .filter(|w| w.deadline <= now)
            .map(|w| w.transfer);
        let late = |t: &Transfer| t.ending.is_none() && t.deadline <= now;
        let running = self
            .transfers
            .iter()
            .filter(|(_, t)| late(t))
            .map(|(id, _)| *id);
        let late: Vec<TransferId> = waiting.chain(running).collect();
        for id in late {
            let how =
                TransferEnd::Failed("the deadline passed while the prompt was computed".into());
            self.end_early(now, id, how);
        }
        for (id, t) in &mut self.transfers {
            if t.close_by.is_some_and(|at| at <= now) {
                t.close_by = None;
                self.outputs.push_back(Output::Close { transfer: *id });
            }
        }
    }
}

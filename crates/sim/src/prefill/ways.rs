//! Opening, using and closing the ways to decode workers.

use std::sync::Arc;

use tandem_core::prefill::Input;
use tandem_core::push::PushAction;
use tandem_core::{EndpointId, FlowId, Instant, TransferId};

use super::outbound::Flow;
use super::{Event, Watched};
use crate::config::LateReads;
use crate::fault::Fault;
use crate::stream::Reply;
use crate::wire::{Flying, Sender, WriteName};
use crate::world::{Setup, World};

impl World {
    /// A helper opens a transfer's ways, all or none, and has the watcher watch it.
    pub(crate) fn open_ways(&mut self, p: usize, transfer: TransferId, works: bool) {
        let worker = self.prefill(p);
        let Some(opening) = worker.opening.get(&transfer).cloned() else {
            return;
        };
        let mut open = Vec::new();
        for (id, to, outbox) in &opening.ways {
            let Some(entry) = worker.endpoints.get_mut(outbox) else {
                break;
            };
            entry.open = true;
            if entry.failed || !works {
                break;
            }
            let flow = Flow::new(*outbox, to.peer, to.inbox, to.target);
            worker.shards[usize::from(to.source)].open(*id, flow);
            open.push((to.source, *id));
        }
        let done = open.len() == opening.ways.len();
        if done {
            let watched = Watched {
                actions: opening.writes,
                started: false,
                given_up: false,
            };
            worker.watched.insert(transfer, watched);
        } else {
            for (source, id) in open {
                worker.shards[usize::from(source)].stop(id);
            }
        }
        if let Some(opening) = worker.opening.get_mut(&transfer) {
            opening.done = Some(done);
            opening.writes = std::collections::VecDeque::new();
        }
    }

    /// The task hears what became of it.
    pub(crate) fn opened(&mut self, setup: &Setup, p: usize, transfer: TransferId) {
        let opening = self.prefill(p).opening.remove(&transfer);
        let input = if opening.and_then(|o| o.done) == Some(true) {
            Input::Opened { transfer }
        } else {
            let reason = String::new();
            Input::NotOpened { transfer, reason }
        };
        self.prefill_hears(setup, p, Instant::ZERO, input);
    }

    /// The watcher hands out the next write, and the seals behind it.
    pub(crate) fn post(&mut self, setup: &Setup, p: usize, transfer: TransferId, works: bool) {
        let worker = self.prefill(p);
        let Some(watched) = worker.watched.get_mut(&transfer) else {
            return;
        };
        let Some(PushAction::Write {
            flow: id,
            source,
            write,
            immediate,
        }) = watched.actions.pop_front()
        else {
            return;
        };
        let mut sealed = Vec::new();
        while let Some(PushAction::Seal { flow, source }) = watched.actions.front() {
            sealed.push((*flow, *source));
            watched.actions.pop_front();
        }
        if matches!(watched.actions.front(), Some(PushAction::Sealed { .. })) {
            worker.watched.remove(&transfer);
        }
        let attempt = worker.held.get(&transfer).map(|h| h.order.attempt);
        let life = worker.life;
        let shard = &mut worker.shards[usize::from(source)];
        let posted = if works {
            shard.post(id, write.bytes)
        } else {
            shard.refuse(id, write.bytes);
            None
        };
        for (flow, source) in sealed {
            worker.shards[usize::from(source)].seal(flow);
        }
        if !works {
            return self.report_first_error(setup, p, id);
        }
        if let (Some(flow), Some(attempt)) = (posted, attempt) {
            let name = WriteName {
                from: life,
                flow: id,
                number: flow.posted,
            };
            let mut flying = Flying {
                attempt,
                shard: source,
                outbox: flow.outbox,
                to: flow.peer,
                target: flow.target,
                inbox: flow.inbox,
                source_at: 0,
                target_at: 0,
                bytes: 0,
                immediate,
                sender: Sender::Waits,
                landed: false,
                counted: false,
                carries: false,
            };
            flying.places(&write);
            self.wire.insert(name, flying);
        }
    }

    pub(crate) fn stop_flow(&mut self, p: usize, flow: FlowId) {
        let worker = self.prefill(p);
        worker.stopping.remove(&flow);
        for shard in &mut worker.shards {
            shard.stop(flow);
        }
    }

    pub(crate) fn close_outbox(&mut self, setup: &Setup, p: usize, outbox: EndpointId) {
        let worker = self.prefill(p);
        worker.closing.remove(&outbox);
        // One that is not open yet is not closed: whoever opens it does so afterwards.
        let open = worker.endpoints.get(&outbox).is_some_and(|o| o.open);
        if !open && !setup.config.close_holds {
            return;
        }
        let life = worker.life;
        if let Some(outbox_entry) = worker.endpoints.remove(&outbox) {
            worker.shards[usize::from(outbox_entry.source)].close(outbox);
        }
        let carries = setup.config.late_reads != LateReads::Always;
        self.given_up(life, carries, |w| w.outbox == outbox);
    }

    /// The outboxes to a lost decode worker are closed; the task hears of it.
    pub(crate) fn source_fence(&mut self, setup: &Setup, p: usize, which: u8) {
        let worker = self.prefill(p);
        let (transfer, mut outboxes) = worker.fencing.remove(which.into());
        if setup.config.fence_waits {
            outboxes.extend(worker.closing.iter().copied());
        }
        for outbox in outboxes {
            self.close_outbox(setup, p, outbox);
        }
        self.prefill_hears(setup, p, Instant::ZERO, Input::Fenced { transfer });
    }

    /// The task hears the next event of a shard's fabric.
    pub(crate) fn outbound(&mut self, setup: &Setup, p: usize, shard: u16) {
        let worker = self.prefill(p);
        let Some(event) = worker.shards[usize::from(shard)].events.pop_front() else {
            return;
        };
        match event {
            Event::Ended {
                flow,
                complete,
                settled,
            } => {
                let input = Input::Drained {
                    flow,
                    complete,
                    settled,
                    error: None,
                };
                self.prefill_hears(setup, p, Instant::ZERO, input);
            }
            Event::Failed(outbox) => {
                let table = worker.outboxes.iter().find(|(_, o)| **o == outbox);
                if let Some(to) = table.map(|(to, _)| *to) {
                    worker.outboxes.remove(&to);
                    worker.closing.insert(outbox);
                }
            }
        }
    }

    /// For [`Fault::ErrorWhileSiblingsInFlight`]: a write failed, and others of its transfer fly on.
    pub(crate) fn report_first_error(&mut self, setup: &Setup, p: usize, flow: FlowId) {
        if !setup.config.is(Fault::ErrorWhileSiblingsInFlight) {
            return;
        }
        let of = |(_, held): &(&TransferId, &super::Held)| {
            !held.told && held.ways.iter().any(|(f, _)| *f == flow)
        };
        let Some(transfer) = self.prefills[p].held.iter().find(of).map(|(id, _)| *id) else {
            return;
        };
        self.answer(p, transfer, Reply::Failed);
        if let Some(held) = Arc::make_mut(&mut self.prefills[p]).held.get_mut(&transfer) {
            held.told = true;
        }
    }
}

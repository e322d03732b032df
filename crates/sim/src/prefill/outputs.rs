//! Carrying out what the prefill agent decides, as the worker's shell does.

use std::sync::Arc;

use tandem_core::prefill::{Output, TransferEnd};
use tandem_core::{FlowId, PageIndex, TransferId};

use super::{Opening, Prompt, To, pushes};
use crate::fault::Fault;
use crate::stream::Reply;
use crate::world::{Setup, World};

impl World {
    pub(super) fn prefill_output(&mut self, setup: &Setup, p: usize, output: Output) {
        match output {
            // The decode worker does nothing about it.
            Output::Accept { .. } => {}
            Output::Refuse { transfer, why } => {
                self.answer(p, transfer, Reply::Refused(why));
                self.forget(p, transfer);
            }
            Output::Open {
                transfer,
                pages,
                flows,
                ..
            } => self.open(setup, p, transfer, &pages, &flows),
            Output::Prefill {
                transfer,
                sequence,
                pages,
            } => self.compute(p, transfer, sequence, &pages),
            Output::CancelSequence { sequence } => {
                if let Some(prompt) = self.prefill(p).prompts.get_mut(&sequence) {
                    prompt.cancelled = true;
                }
            }
            Output::StopWatch { transfer } => {
                self.prefill(p).stop_watch.insert(transfer);
            }
            Output::StopWrites { transfer, flow } => {
                let worker = self.prefill(p);
                let held = worker.held.get(&transfer);
                if held.is_some_and(|h| h.ways.iter().any(|(f, _)| *f == flow)) {
                    worker.stopping.insert(flow);
                }
            }
            Output::Close { transfer } => {
                let outboxes = self.take_outboxes(p, transfer);
                self.prefill(p).closing.extend(outboxes);
            }
            Output::End { transfer, how } => self.end(setup, p, transfer, &how),
            Output::Fence { transfer } => {
                let outboxes = self.take_outboxes(p, transfer);
                self.prefill(p).fencing.push((transfer, outboxes));
            }
            Output::Gone { transfer } => self.forget(p, transfer),
        }
    }

    fn open(
        &mut self,
        setup: &Setup,
        p: usize,
        transfer: TransferId,
        pages: &Arc<[PageIndex]>,
        names: &[FlowId],
    ) {
        let worker = self.prefill(p);
        let Some(held) = worker.held.get_mut(&transfer) else {
            return;
        };
        let order = Arc::clone(&held.order);
        let to = |flow: &tandem_core::flow::Flow| To {
            source: flow.source,
            peer: order.decode,
            target: flow.target,
            inbox: order.inbox,
        };
        let ways: Vec<_> = names
            .iter()
            .copied()
            .zip(setup.flows.iter().map(to))
            .collect();
        held.ways.clone_from(&ways);
        for page in pages.iter() {
            worker.owners[page.0 as usize] = Some(order.attempt);
        }
        let mut opening = Vec::new();
        for (flow, to) in ways {
            let stale = |other: &&To| other.same_way(&to) && **other != to;
            let stale: Vec<To> = worker.outboxes.keys().filter(stale).copied().collect();
            let stale = stale.iter().filter_map(|to| worker.outboxes.remove(to));
            worker.closing.extend(stale.collect::<Vec<_>>());
            opening.push((flow, to, worker.outbox(to)));
        }
        let opening = Opening {
            ways: opening,
            writes: pushes(setup, &order, transfer, pages, names),
            done: None,
        };
        worker.opening.insert(transfer, opening);
    }

    fn compute(
        &mut self,
        p: usize,
        transfer: TransferId,
        sequence: tandem_core::SequenceId,
        pages: &[PageIndex],
    ) {
        let worker = self.prefill(p);
        let Some(held) = worker.held.get(&transfer) else {
            return;
        };
        for page in pages {
            worker.contents[page.0 as usize] = Some(held.order.attempt);
        }
        let prompt = Prompt {
            transfer,
            cancelled: false,
        };
        worker.prompts.insert(sequence, prompt);
        if let Some(watched) = worker.watched.get_mut(&transfer) {
            watched.started = true;
        }
    }

    fn take_outboxes(&mut self, p: usize, transfer: TransferId) -> Vec<tandem_core::EndpointId> {
        let worker = self.prefill(p);
        let ways = worker.held.get(&transfer).map(|h| h.ways.clone());
        let ways = ways.unwrap_or_default();
        ways.iter()
            .filter_map(|(_, to)| worker.outboxes.remove(to))
            .collect()
    }

    fn end(&mut self, setup: &Setup, p: usize, transfer: TransferId, how: &TransferEnd) {
        let told = self.prefills[p].held.get(&transfer).is_some_and(|h| h.told);
        if told {
            return;
        }
        let reply = match how {
            TransferEnd::Done => Reply::Done,
            TransferEnd::Drained => Reply::Drained,
            TransferEnd::Failed(_) => Reply::Failed,
            TransferEnd::Unsettled(_) if setup.config.is(Fault::UnsettledTakenForFailed) => {
                Reply::Failed
            }
            TransferEnd::Unsettled(_) => Reply::Unsettled,
        };
        self.answer(p, transfer, reply);
    }

    /// The transfer is forgotten, and its stream's end closed behind the last answer.
    fn forget(&mut self, p: usize, transfer: TransferId) {
        let worker = self.prefill(p);
        let Some(held) = worker.held.remove(&transfer) else {
            return;
        };
        let attempt = held.order.attempt;
        for owner in &mut worker.owners {
            if *owner == Some(attempt) {
                *owner = None;
            }
        }
        if let Some(stream) = self.streams.get_mut(&attempt) {
            Arc::make_mut(stream).close_prefill_end();
        }
        self.forget_streams();
    }
}

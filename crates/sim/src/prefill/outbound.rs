//! A prefill shard's side of the fabric: the core's ledger, and what the fabric's thread keeps
//! beside it.

use std::collections::{BTreeMap, VecDeque};

use tandem_core::ledger::{Ended, OutboundLedger};
use tandem_core::{EndpointId, FlowId};

use crate::names::Life;

/// What the fabric tells the task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Event {
    Ended {
        flow: FlowId,
        complete: bool,
        settled: bool,
    },
    Failed(EndpointId),
}

/// An open flow.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Flow {
    pub(crate) outbox: EndpointId,
    pub(crate) peer: Life,
    pub(crate) inbox: EndpointId,
    pub(crate) target: u16,
    pub(crate) posted: u8,
    in_flight: u32,
    unsettled: bool,
    failed: bool,
}

impl Flow {
    pub(crate) const fn new(
        outbox: EndpointId,
        peer: Life,
        inbox: EndpointId,
        target: u16,
    ) -> Self {
        Self {
            outbox,
            peer,
            inbox,
            target,
            posted: 0,
            in_flight: 0,
            unsettled: false,
            failed: false,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Outbound {
    ledger: OutboundLedger,
    pub(crate) flows: BTreeMap<FlowId, Flow>,
    pub(crate) events: VecDeque<Event>,
}

impl Outbound {
    pub(crate) fn open(&mut self, id: FlowId, flow: Flow) {
        self.ledger.open(id, flow.outbox);
        self.flows.insert(id, flow);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ledger.is_empty()
    }

    /// Posts a write; `None` where its flow takes none any more.
    pub(crate) fn post(&mut self, id: FlowId, bytes: u32) -> Option<Flow> {
        self.ledger.post(id, bytes.into()).ok()?;
        let flow = self.flows.get_mut(&id)?;
        flow.in_flight += 1;
        flow.posted += 1;
        Some(flow.clone())
    }

    /// The transport does not take a write.
    pub(crate) fn refuse(&mut self, id: FlowId, bytes: u32) {
        if self.ledger.post(id, bytes.into()).is_ok() {
            if let Some(flow) = self.flows.get_mut(&id) {
                flow.failed = true;
            }
            let ended = self.ledger.unpost(id);
            self.ended(ended);
        }
    }

    pub(crate) fn completed(&mut self, id: FlowId, well: bool) {
        if let Some(flow) = self.flows.get_mut(&id) {
            flow.in_flight -= 1;
            flow.unsettled |= !well;
            flow.failed |= !well;
            let ended = self.ledger.completed(id, well);
            self.ended(ended);
        }
    }

    pub(crate) fn seal(&mut self, id: FlowId) {
        let ended = self.ledger.seal(id);
        self.ended(ended);
    }

    pub(crate) fn stop(&mut self, id: FlowId) {
        let ended = self.ledger.stop(id);
        self.ended(ended);
    }

    /// An outbox is of no more use: nothing is posted there any more.
    pub(crate) fn fail(&mut self, outbox: EndpointId) {
        self.events.push_back(Event::Failed(outbox));
        let theirs = self.flows.iter().filter(|(_, f)| f.outbox == outbox);
        let theirs: Vec<FlowId> = theirs.map(|(id, _)| *id).collect();
        for id in theirs {
            self.stop(id);
        }
    }

    pub(crate) fn close(&mut self, outbox: EndpointId) {
        for ended in self.ledger.endpoint_closed(outbox) {
            self.ended(Some(ended));
        }
    }

    fn ended(&mut self, ended: Option<Ended>) {
        if let Some(ended) = ended
            && let Some(flow) = self.flows.remove(&ended.flow)
        {
            self.events.push_back(Event::Ended {
                flow: ended.flow,
                complete: ended.complete && !flow.failed,
                settled: flow.in_flight == 0 && !flow.unsettled,
            });
        }
    }
}

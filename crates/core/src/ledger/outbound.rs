//! Counting writes at the sender.
//!
//! What must hold: a flow is reported as ended only when every write that was posted for it
//! has completed and none will be posted (I2). The first error is not the end: it is reported with
//! the end.

use std::collections::BTreeMap;

use crate::{EndpointId, FlowId};

/// Writes of every open flow.
#[derive(Debug, Default)]
#[cfg_attr(feature = "explore", derive(Clone, PartialEq, Eq, Hash))]
pub struct OutboundLedger {
    flows: BTreeMap<FlowId, Flow>,
}

#[derive(Debug)]
#[cfg_attr(feature = "explore", derive(Clone, PartialEq, Eq, Hash))]
struct Flow {
    endpoint: EndpointId,
    posting: Posting,
    outstanding: u32,
    writes: u32,
    bytes: u64,
    failed: bool,
}

/// Whether more writes may be posted for a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "explore", derive(Hash))]
pub enum Posting {
    /// More may come.
    Open,
    /// All have been posted.
    Sealed,
    /// Cancelled or failed: none may be posted any more.
    Stopped,
}

/// A flow that has drained: nothing of it is in flight and nothing will be posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Which.
    pub flow: FlowId,
    /// Whether every write that was planned was posted and completed well.
    pub complete: bool,
    /// Writes posted.
    pub writes: u32,
    /// Bytes posted.
    pub bytes: u64,
}

/// Why a write may not be posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The flow was never opened, or has ended.
    #[error("no such flow")]
    Unknown,
    /// The flow was stopped.
    #[error("the flow was stopped")]
    Stopped,
}

impl OutboundLedger {
    /// Opens a flow over `endpoint`.
    ///
    /// # Panics
    /// Where the id is in use: ids are never used twice.
    pub fn open(&mut self, flow: FlowId, endpoint: EndpointId) {
        let fresh = Flow {
            endpoint,
            posting: Posting::Open,
            outstanding: 0,
            writes: 0,
            bytes: 0,
            failed: false,
        };
        let old = self.flows.insert(flow, fresh);
        assert!(old.is_none(), "flow {flow:?} was opened twice");
    }

    /// Asks whether a write may be posted, and counts it as posted if so. Where posting then fails,
    /// say so with [`OutboundLedger::unpost`].
    ///
    /// # Panics
    /// Where the flow was sealed: the sender said that no write would follow.
    pub fn post(&mut self, flow: FlowId, bytes: u64) -> Result<EndpointId, Refused> {
        let entry = self.flows.get_mut(&flow).ok_or(Refused::Unknown)?;
        match entry.posting {
            Posting::Stopped => return Err(Refused::Stopped),
            Posting::Sealed => panic!("a write of {flow:?} after its seal"),
            Posting::Open => {}
        }
        entry.outstanding += 1;
        entry.writes += 1;
        entry.bytes += bytes;
        Ok(entry.endpoint)
    }

    /// A write that was counted was never handed to the transport, and never will be: the flow
    /// fails.
    pub fn unpost(&mut self, flow: FlowId) -> Option<Ended> {
        self.completed(flow, false)
    }

    /// A posted write completed, well or not. Returns the end of its flow, if this is it.
    ///
    /// # Panics
    /// Where nothing of that flow is in flight.
    pub fn completed(&mut self, flow: FlowId, ok: bool) -> Option<Ended> {
        let entry = self
            .flows
            .get_mut(&flow)
            .expect("a completion of an open flow");
        assert!(entry.outstanding > 0, "a completion that was never posted");
        entry.outstanding -= 1;
        if !ok {
            entry.failed = true;
            entry.posting = Posting::Stopped;
        }
        self.end(flow)
    }

    /// No write will follow the posted ones. Returns the end if all have completed already.
    /// Does nothing to a stopped flow.
    pub fn seal(&mut self, flow: FlowId) -> Option<Ended> {
        let entry = self.flows.get_mut(&flow)?;
        if entry.posting == Posting::Open {
            entry.posting = Posting::Sealed;
        }
        self.end(flow)
    }

    /// Cancels: no write is posted any more. Returns the end if none is in flight. A flow that
    /// has ended (or was never opened) stays so.
    pub fn stop(&mut self, flow: FlowId) -> Option<Ended> {
        let entry = self.flows.get_mut(&flow)?;
        if entry.posting == Posting::Open {
            entry.posting = Posting::Stopped;
            entry.failed = true;
        }
        self.end(flow)
    }

    /// The endpoint was closed: nothing of it can be in flight. Ends all its flows.
    pub fn endpoint_closed(&mut self, endpoint: EndpointId) -> Vec<Ended> {
        let mut gone: Vec<FlowId> = self
            .flows
            .iter()
            .filter(|(_, t)| t.endpoint == endpoint)
            .map(|(id, _)| *id)
            .collect();
        gone.sort_unstable();
        gone.into_iter()
            .filter_map(|id| {
                let entry = self.flows.get_mut(&id)?;
                entry.failed |= entry.outstanding > 0 || entry.posting != Posting::Sealed;
                entry.outstanding = 0;
                entry.posting = Posting::Stopped;
                self.end(id)
            })
            .collect()
    }

    /// Open flows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.flows.len()
    }

    /// Whether no flow is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    fn end(&mut self, flow: FlowId) -> Option<Ended> {
        let entry = self.flows.get(&flow)?;
        if entry.outstanding > 0 || entry.posting == Posting::Open {
            return None;
        }
        let entry = self.flows.remove(&flow)?;
        let complete = !entry.failed && entry.posting == Posting::Sealed;
        Some(Ended {
            flow,
            complete,
            writes: entry.writes,
            bytes: entry.bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: FlowId = FlowId(7);
    const E: EndpointId = EndpointId(0);

    fn open() -> OutboundLedger {
        let mut ledger = OutboundLedger::default();
        ledger.open(T, E);
        ledger
    }

    #[test]
    fn a_flow_ends_when_sealed_and_drained_in_either_order() {
        let mut ledger = open();
        ledger.post(T, 10).unwrap();
        assert_eq!(ledger.completed(T, true), None);
        let end = Ended {
            flow: T,
            complete: true,
            writes: 1,
            bytes: 10,
        };
        assert_eq!(ledger.seal(T), Some(end));

        let mut ledger = open();
        ledger.post(T, 10).unwrap();
        assert_eq!(ledger.seal(T), None);
        assert_eq!(ledger.completed(T, true), Some(end));
        assert!(ledger.is_empty());
    }

    #[test]
    fn a_cancelled_flow_ends_only_when_its_posted_writes_have_completed() {
        let mut ledger = open();
        ledger.post(T, 10).unwrap();
        ledger.post(T, 10).unwrap();
        assert_eq!(ledger.stop(T), None);
        assert_eq!(ledger.post(T, 10), Err(Refused::Stopped));
        assert_eq!(ledger.completed(T, true), None);
        let end = Ended {
            flow: T,
            complete: false,
            writes: 2,
            bytes: 20,
        };
        assert_eq!(ledger.completed(T, true), Some(end));
        assert_eq!(ledger.post(T, 10), Err(Refused::Unknown));
    }

    #[test]
    fn the_first_error_is_not_the_end() {
        let mut ledger = open();
        ledger.post(T, 10).unwrap();
        ledger.post(T, 10).unwrap();
        assert_eq!(ledger.completed(T, false), None);
        assert_eq!(ledger.post(T, 10), Err(Refused::Stopped));
        assert!(!ledger.completed(T, true).unwrap().complete);
    }

    #[test]
    fn a_write_that_could_not_be_posted_fails_its_flow() {
        let mut ledger = open();
        ledger.post(T, 10).unwrap();
        assert!(!ledger.unpost(T).unwrap().complete);
    }

    #[test]
    fn closing_an_endpoint_ends_its_flows_and_no_other() {
        let mut ledger = open();
        ledger.open(FlowId(8), EndpointId(1));
        ledger.post(T, 10).unwrap();
        let ended = ledger.endpoint_closed(E);
        assert_eq!(ended.len(), 1);
        assert!(!ended[0].complete);
        assert_eq!(ledger.len(), 1);
    }

    #[test]
    fn a_stop_after_the_seal_lets_a_whole_flow_end_well() {
        let mut ledger = open();
        ledger.post(T, 10).unwrap();
        assert_eq!(ledger.seal(T), None);
        assert_eq!(ledger.stop(T), None);
        assert!(ledger.completed(T, true).unwrap().complete);
    }
}

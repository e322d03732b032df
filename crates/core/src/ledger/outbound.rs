//! Counting writes at the sender.
//!
//! What must hold: a transfer is reported as ended only when every write that was posted for it
//! has completed and none will be posted (I2). The first error is not the end: it is reported with
//! the end.

use std::collections::HashMap;

use crate::{EndpointId, TransferId};

/// Writes of every open transfer.
#[derive(Debug, Default)]
pub struct OutboundLedger {
    transfers: HashMap<TransferId, Transfer>,
}

#[derive(Debug)]
struct Transfer {
    endpoint: EndpointId,
    posting: Posting,
    outstanding: u32,
    writes: u32,
    bytes: u64,
    failed: bool,
}

/// Whether more writes may be posted for a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posting {
    /// More may come.
    Open,
    /// All have been posted.
    Sealed,
    /// Cancelled or failed: none may be posted any more.
    Stopped,
}

/// A transfer that has drained: nothing of it is in flight and nothing will be posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Which.
    pub transfer: TransferId,
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
    /// The transfer was never opened, or has ended.
    #[error("no such transfer")]
    Unknown,
    /// The transfer was stopped.
    #[error("the transfer was stopped")]
    Stopped,
}

impl OutboundLedger {
    /// Opens a transfer over `endpoint`.
    ///
    /// # Panics
    /// Where the id is in use: ids are never used twice.
    pub fn open(&mut self, transfer: TransferId, endpoint: EndpointId) {
        let fresh = Transfer {
            endpoint,
            posting: Posting::Open,
            outstanding: 0,
            writes: 0,
            bytes: 0,
            failed: false,
        };
        let old = self.transfers.insert(transfer, fresh);
        assert!(old.is_none(), "transfer {transfer:?} was opened twice");
    }

    /// Asks whether a write may be posted, and counts it as posted if so. Where posting then fails,
    /// say so with [`OutboundLedger::unpost`].
    ///
    /// # Panics
    /// Where the transfer was sealed: the sender said that no write would follow.
    pub fn post(&mut self, transfer: TransferId, bytes: u64) -> Result<EndpointId, Refused> {
        let entry = self.transfers.get_mut(&transfer).ok_or(Refused::Unknown)?;
        match entry.posting {
            Posting::Stopped => return Err(Refused::Stopped),
            Posting::Sealed => panic!("a write of {transfer:?} after its seal"),
            Posting::Open => {}
        }
        entry.outstanding += 1;
        entry.writes += 1;
        entry.bytes += bytes;
        Ok(entry.endpoint)
    }

    /// A write that was counted was never handed to the transport, and never will be: the transfer
    /// fails.
    pub fn unpost(&mut self, transfer: TransferId) -> Option<Ended> {
        self.completed(transfer, false)
    }

    /// A posted write completed, well or not. Returns the end of its transfer, if this is it.
    ///
    /// # Panics
    /// Where nothing of that transfer is in flight.
    pub fn completed(&mut self, transfer: TransferId, ok: bool) -> Option<Ended> {
        let entry = self
            .transfers
            .get_mut(&transfer)
            .expect("a completion of an open transfer");
        assert!(entry.outstanding > 0, "a completion that was never posted");
        entry.outstanding -= 1;
        if !ok {
            entry.failed = true;
            entry.posting = Posting::Stopped;
        }
        self.end(transfer)
    }

    /// No write will follow the posted ones. Returns the end if all have completed already.
    /// Does nothing to a stopped transfer.
    pub fn seal(&mut self, transfer: TransferId) -> Option<Ended> {
        let entry = self.transfers.get_mut(&transfer)?;
        if entry.posting == Posting::Open {
            entry.posting = Posting::Sealed;
        }
        self.end(transfer)
    }

    /// Cancels: no write is posted any more. Returns the end if none is in flight. A transfer that
    /// has ended (or was never opened) stays so.
    pub fn stop(&mut self, transfer: TransferId) -> Option<Ended> {
        let entry = self.transfers.get_mut(&transfer)?;
        if entry.posting == Posting::Open {
            entry.posting = Posting::Stopped;
            entry.failed = true;
        }
        self.end(transfer)
    }

    /// The endpoint was closed: nothing of it can be in flight. Ends all its transfers.
    pub fn endpoint_closed(&mut self, endpoint: EndpointId) -> Vec<Ended> {
        let mut gone: Vec<TransferId> = self
            .transfers
            .iter()
            .filter(|(_, t)| t.endpoint == endpoint)
            .map(|(id, _)| *id)
            .collect();
        gone.sort_unstable();
        gone.into_iter()
            .filter_map(|id| {
                let entry = self.transfers.get_mut(&id)?;
                entry.failed |= entry.outstanding > 0 || entry.posting != Posting::Sealed;
                entry.outstanding = 0;
                entry.posting = Posting::Stopped;
                self.end(id)
            })
            .collect()
    }

    /// Open transfers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.transfers.len()
    }

    /// Whether no transfer is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.transfers.is_empty()
    }

    fn end(&mut self, transfer: TransferId) -> Option<Ended> {
        let entry = self.transfers.get(&transfer)?;
        if entry.outstanding > 0 || entry.posting == Posting::Open {
            return None;
        }
        let entry = self.transfers.remove(&transfer)?;
        let complete = !entry.failed && entry.posting == Posting::Sealed;
        Some(Ended {
            transfer,
            complete,
            writes: entry.writes,
            bytes: entry.bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: TransferId = TransferId(7);
    const E: EndpointId = EndpointId(0);

    fn open() -> OutboundLedger {
        let mut ledger = OutboundLedger::default();
        ledger.open(T, E);
        ledger
    }

    #[test]
    fn a_transfer_ends_when_sealed_and_drained_in_either_order() {
        let mut ledger = open();
        ledger.post(T, 10).unwrap();
        assert_eq!(ledger.completed(T, true), None);
        let end = Ended {
            transfer: T,
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
    fn a_cancelled_transfer_ends_only_when_its_posted_writes_have_completed() {
        let mut ledger = open();
        ledger.post(T, 10).unwrap();
        ledger.post(T, 10).unwrap();
        assert_eq!(ledger.stop(T), None);
        assert_eq!(ledger.post(T, 10), Err(Refused::Stopped));
        assert_eq!(ledger.completed(T, true), None);
        let end = Ended {
            transfer: T,
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
    fn a_write_that_could_not_be_posted_fails_its_transfer() {
        let mut ledger = open();
        ledger.post(T, 10).unwrap();
        assert!(!ledger.unpost(T).unwrap().complete);
    }

    #[test]
    fn closing_an_endpoint_ends_its_transfers_and_no_other() {
        let mut ledger = open();
        ledger.open(TransferId(8), EndpointId(1));
        ledger.post(T, 10).unwrap();
        let ended = ledger.endpoint_closed(E);
        assert_eq!(ended.len(), 1);
        assert!(!ended[0].complete);
        assert_eq!(ledger.len(), 1);
    }

    #[test]
    fn a_stop_after_the_seal_lets_a_whole_transfer_end_well() {
        let mut ledger = open();
        ledger.post(T, 10).unwrap();
        assert_eq!(ledger.seal(T), None);
        assert_eq!(ledger.stop(T), None);
        assert!(ledger.completed(T, true).unwrap().complete);
    }
}

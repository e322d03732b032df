//! Outbound transfers: the ledger's count, and what it does not keep (region, times, errors).

use std::collections::HashMap;
use std::time::Instant;

use tandem_core::ledger::{Ended, OutboundLedger, Refused};
use tandem_core::{EndpointId, TransferId};

use super::command::{RemoteRegion, Write};
use crate::event::TransferEnded;
use crate::safe::domain::key_mask;

/// What a write may touch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) local: u64,
    pub(crate) longest: u64,
    pub(crate) key_size: usize,
}

/// Every open transfer.
#[derive(Debug)]
pub(crate) struct Transfers {
    bounds: Bounds,
    ledger: OutboundLedger,
    open: HashMap<TransferId, Transfer>,
}

#[derive(Debug)]
struct Transfer {
    outbox: EndpointId,
    region: RemoteRegion,
    in_flight: u32,
    writes: u32,
    bytes: u64,
    sealed: bool,
    unsettled: bool,
    error: Option<String>,
    first_post: Option<Instant>,
    last_completion: Option<Instant>,
}

impl Transfers {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            ledger: OutboundLedger::default(),
            open: HashMap::new(),
        }
    }

    /// Whether this provider can address the region.
    pub(crate) fn addressable(&self, region: &RemoteRegion) -> bool {
        region.base.checked_add(region.len).is_some()
            && region.key & !key_mask(self.bounds.key_size) == 0
    }

    /// Opens one; false where the id is in use.
    pub(crate) fn open(
        &mut self,
        id: TransferId,
        outbox: EndpointId,
        region: RemoteRegion,
    ) -> bool {
        if self.open.contains_key(&id) {
            return false;
        }
        self.ledger.open(id, outbox);
        let fresh = Transfer {
            outbox,
            region,
            in_flight: 0,
            writes: 0,
            bytes: 0,
            sealed: false,
            unsettled: false,
            error: None,
            first_post: None,
            last_completion: None,
        };
        self.open.insert(id, fresh);
        true
    }

    /// Where a transfer's writes go.
    pub(crate) fn outbox(&self, id: TransferId) -> Option<EndpointId> {
        self.open.get(&id).map(|t| t.outbox)
    }

    /// Takes a seal into the queue: writes that come after it are faults.
    pub(crate) fn seal_queued(&mut self, id: TransferId) {
        if let Some(transfer) = self.open.get_mut(&id) {
            transfer.sealed = true;
        }
    }

    /// Why this write must not be posted, if so.
    pub(crate) fn fault(&self, write: &Write) -> Option<String> {
        let transfer = self.open.get(&write.transfer)?;
        let len = u64::from(write.len);
        let inside = |offset: u64, size: u64| offset.checked_add(len).is_some_and(|e| e <= size);
        if transfer.sealed {
            Some("a write after the seal".into())
        } else if len == 0 {
            // shm never completes it (1.17, with delivery complete).
            Some("a write of no bytes".into())
        } else if !inside(write.local_offset, self.bounds.local) {
            let (offset, size) = (write.local_offset, self.bounds.local);
            Some(format!(
                "{len} bytes at {offset} are outside the own arena of {size}"
            ))
        } else if !inside(write.remote_offset, transfer.region.len) {
            let (offset, size) = (write.remote_offset, transfer.region.len);
            Some(format!(
                "{len} bytes at {offset} are outside the remote region of {size}"
            ))
        } else if len > self.bounds.longest {
            Some(format!("{len} bytes are longer than one write may be"))
        } else {
            None
        }
    }

    /// Counts a write as posted and says where it goes. Where posting fails, [`Self::unpost`].
    pub(crate) fn begin(&mut self, write: &Write) -> Result<RemoteRegion, Refused> {
        self.ledger.post(write.transfer, u64::from(write.len))?;
        let transfer = self.open.get(&write.transfer).ok_or(Refused::Unknown)?;
        Ok(transfer.region)
    }

    /// The region of a write that was begun.
    pub(crate) fn region(&self, id: TransferId) -> Option<RemoteRegion> {
        self.open.get(&id).map(|t| t.region)
    }

    /// The provider took the write.
    pub(crate) fn posted(&mut self, id: TransferId, bytes: u32) {
        if let Some(transfer) = self.open.get_mut(&id) {
            transfer.in_flight += 1;
            transfer.writes += 1;
            transfer.bytes += u64::from(bytes);
            if transfer.first_post.is_none() {
                transfer.first_post = Some(Instant::now());
            }
        }
    }

    /// A write was begun, and never will be posted.
    pub(crate) fn unpost(&mut self, id: TransferId) -> Option<TransferEnded> {
        let ended = self.ledger.unpost(id);
        self.finish(ended)
    }

    /// A posted write completed.
    pub(crate) fn completed(
        &mut self,
        id: TransferId,
        now: Instant,
        error: Option<String>,
    ) -> Option<TransferEnded> {
        let failed = error.is_some();
        if let Some(transfer) = self.open.get_mut(&id) {
            transfer.in_flight -= 1;
            transfer.last_completion = Some(now);
            transfer.unsettled |= failed;
            if transfer.error.is_none() {
                transfer.error = error;
            }
        }
        let ended = self.ledger.completed(id, !failed);
        self.finish(ended)
    }

    /// The seal's turn in the queue has come: all writes before it were posted.
    pub(crate) fn seal(&mut self, id: TransferId) -> Option<TransferEnded> {
        let ended = self.ledger.seal(id);
        self.finish(ended)
    }

    /// No more writes of it are posted.
    pub(crate) fn stop(&mut self, id: TransferId, error: Option<&str>) -> Option<TransferEnded> {
        if let (Some(transfer), Some(error)) = (self.open.get_mut(&id), error) {
            transfer.error.get_or_insert_with(|| error.to_owned());
        }
        let ended = self.ledger.stop(id);
        self.finish(ended)
    }

    /// Its endpoint was closed.
    pub(crate) fn endpoint_closed(&mut self, outbox: EndpointId) -> Vec<TransferEnded> {
        let ended = self.ledger.endpoint_closed(outbox);
        ended
            .into_iter()
            .filter_map(|e| self.finish(Some(e)))
            .collect()
    }

    fn finish(&mut self, ended: Option<Ended>) -> Option<TransferEnded> {
        let mut ended = ended?;
        let transfer = self.open.remove(&ended.transfer)?;
        let settled = transfer.in_flight == 0 && !transfer.unsettled;
        ended.complete &= transfer.error.is_none();
        // The ledger's include one that was counted and then not posted.
        (ended.writes, ended.bytes) = (transfer.writes, transfer.bytes);
        Some(TransferEnded {
            ended,
            settled,
            error: transfer.error,
            first_post: transfer.first_post,
            last_completion: transfer.last_completion,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tandem_core::immediate::{Immediate, SlotKey};

    const T: TransferId = TransferId(1);
    const E: EndpointId = EndpointId(1);

    fn transfers() -> Transfers {
        let mut transfers = Transfers::new(Bounds {
            local: 100,
            longest: 60,
            key_size: 4,
        });
        assert!(transfers.open(
            T,
            E,
            RemoteRegion {
                base: 0,
                len: 200,
                key: 1
            }
        ));
        transfers
    }

    fn write(local_offset: u64, remote_offset: u64, len: u32) -> Write {
        let immediate = Immediate::new(SlotKey::new(0, 0), 1);
        Write {
            transfer: T,
            local_offset,
            remote_offset,
            len,
            immediate,
        }
    }

    #[test]
    fn a_write_outside_either_side_is_a_fault() {
        let mut transfers = transfers();
        assert_eq!(transfers.fault(&write(50, 150, 50)), None);
        assert!(
            transfers
                .fault(&write(51, 0, 50))
                .unwrap()
                .contains("own arena")
        );
        assert!(
            transfers
                .fault(&write(u64::MAX, 0, 50))
                .unwrap()
                .contains("own arena")
        );
        assert!(
            transfers
                .fault(&write(0, 151, 50))
                .unwrap()
                .contains("remote region")
        );
        assert!(
            transfers
                .fault(&write(0, u64::MAX, 1))
                .unwrap()
                .contains("remote region")
        );
        assert!(
            transfers
                .fault(&write(0, 0, 61))
                .unwrap()
                .contains("longer")
        );
        assert!(
            transfers
                .fault(&write(0, 0, 0))
                .unwrap()
                .contains("no bytes")
        );
        transfers.seal_queued(T);
        assert!(transfers.fault(&write(0, 0, 1)).unwrap().contains("seal"));
    }

    #[test]
    fn a_region_that_wraps_or_a_key_too_long_is_refused() {
        let transfers = transfers();
        let region = RemoteRegion {
            base: u64::MAX,
            len: 1,
            key: 0,
        };
        assert!(!transfers.addressable(&region));
        assert!(!transfers.addressable(&RemoteRegion {
            base: 0,
            len: 1,
            key: 1 << 32
        }));
        assert!(transfers.addressable(&RemoteRegion {
            base: 0,
            len: 1,
            key: 7
        }));
    }

    #[test]
    fn only_writes_that_all_completed_well_settle_a_transfer() {
        let mut transfers = transfers();
        transfers.begin(&write(0, 0, 1)).unwrap();
        transfers.posted(T, 1);
        transfers.begin(&write(0, 0, 1)).unwrap();
        transfers.posted(T, 1);
        let now = Instant::now();
        assert!(
            transfers
                .completed(T, now, Some("refused".into()))
                .is_none()
        );
        let end = transfers.completed(T, now, None).unwrap();
        assert!(!end.settled && !end.ended.complete);
        assert_eq!(end.error.as_deref(), Some("refused"));
    }

    #[test]
    fn a_close_under_an_outstanding_write_does_not_settle() {
        let mut transfers = transfers();
        transfers.begin(&write(0, 0, 1)).unwrap();
        transfers.posted(T, 1);
        let ended = transfers.endpoint_closed(E);
        assert!(!ended[0].settled);
        assert_eq!(transfers.outbox(T), None);
    }

    #[test]
    fn a_stop_with_nothing_in_flight_settles() {
        let end = transfers().stop(T, None).unwrap();
        assert!(end.settled && !end.ended.complete);
    }
}

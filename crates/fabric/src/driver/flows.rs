//! Outbound flows: the ledger's count, and what it does not keep (region, times, errors).

use std::time::Instant;

use tandem_core::ledger::{Ended, OutboundLedger, Refused};
use tandem_core::{EndpointId, FlowId};

use super::by_flow::ByFlow;
use super::command::{RegionKey, RemoteRegion, Write};
use crate::event::FlowEnded;
use crate::safe::domain::key_mask;

/// What a write may touch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) local: u64,
    pub(crate) longest: u64,
    pub(crate) key_size: usize,
}

/// Every open flow.
#[derive(Debug)]
pub(crate) struct Flows {
    bounds: Bounds,
    ledger: OutboundLedger,
    open: ByFlow<Flow>,
}

#[derive(Debug)]
struct Flow {
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

impl Flows {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            ledger: OutboundLedger::default(),
            open: ByFlow::default(),
        }
    }

    /// Whether this provider can address the region.
    pub(crate) fn addressable(&self, region: &RemoteRegion) -> bool {
        let fits = |name: &RegionKey| {
            name.base.checked_add(region.len).is_some()
                && name.key & !key_mask(self.bounds.key_size) == 0
        };
        region.keys.iter().all(fits)
    }

    /// Opens one; false where the id is in use.
    pub(crate) fn open(&mut self, id: FlowId, outbox: EndpointId, region: RemoteRegion) -> bool {
        if self.open.contains_key(&id) {
            return false;
        }
        self.ledger.open(id, outbox);
        let fresh = Flow {
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

    /// Whether any flow has not ended.
    pub(crate) fn any_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// Where a flow's writes go.
    pub(crate) fn outbox(&self, id: FlowId) -> Option<EndpointId> {
        self.open.get(&id).map(|t| t.outbox)
    }

    /// Takes a seal into the queue: writes that come after it are faults.
    pub(crate) fn seal_queued(&mut self, id: FlowId) {
        if let Some(flow) = self.open.get_mut(&id) {
            flow.sealed = true;
        }
    }

    /// Why this write must not be posted, if so.
    pub(crate) fn fault(&self, write: &Write) -> Option<String> {
        let flow = self.open.get(&write.flow)?;
        let len = u64::from(write.len);
        let inside = |offset: u64, size: u64| offset.checked_add(len).is_some_and(|e| e <= size);
        if flow.sealed {
            Some("a write after the seal".into())
        } else if len == 0 {
            // shm never completes it (1.17, with delivery complete).
            Some("a write of no bytes".into())
        } else if !inside(write.local_offset, self.bounds.local) {
            let (offset, size) = (write.local_offset, self.bounds.local);
            Some(format!(
                "{len} bytes at {offset} are outside the own arena of {size}"
            ))
        } else if !inside(write.remote_offset, flow.region.len) {
            let (offset, size) = (write.remote_offset, flow.region.len);
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
    pub(crate) fn begin(&mut self, write: &Write) -> Result<(), Refused> {
        self.ledger.post(write.flow, u64::from(write.len))?;
        Ok(())
    }

    /// The first byte's address and the key of a flow's region, as one of the peer's NICs names it.
    pub(crate) fn place(&self, id: FlowId, nic: usize) -> Option<(u64, u64)> {
        let name = self.open.get(&id)?.region.keys.get(nic)?;
        Some((name.base, name.key))
    }

    /// The provider took the write.
    pub(crate) fn posted(&mut self, id: FlowId, bytes: u32) {
        if let Some(flow) = self.open.get_mut(&id) {
            flow.in_flight += 1;
            flow.writes += 1;
            flow.bytes += u64::from(bytes);
            if flow.first_post.is_none() {
                flow.first_post = Some(Instant::now());
            }
        }
    }

    /// A write was begun, and never will be posted.
    pub(crate) fn unpost(&mut self, id: FlowId) -> Option<FlowEnded> {
        let ended = self.ledger.unpost(id);
        self.finish(ended)
    }

    /// A posted write completed.
    pub(crate) fn completed(
        &mut self,
        id: FlowId,
        now: Instant,
        error: Option<String>,
    ) -> Option<FlowEnded> {
        let failed = error.is_some();
        if let Some(flow) = self.open.get_mut(&id) {
            flow.in_flight -= 1;
            flow.last_completion = Some(now);
            flow.unsettled |= failed;
            if flow.error.is_none() {
                flow.error = error;
            }
        }
        let ended = self.ledger.completed(id, !failed);
        self.finish(ended)
    }

    /// The seal's turn in the queue has come: all writes before it were posted.
    pub(crate) fn seal(&mut self, id: FlowId) -> Option<FlowEnded> {
        let ended = self.ledger.seal(id);
        self.finish(ended)
    }

    /// No more writes of it are posted.
    pub(crate) fn stop(&mut self, id: FlowId, error: Option<&str>) -> Option<FlowEnded> {
        if let (Some(flow), Some(error)) = (self.open.get_mut(&id), error) {
            flow.error.get_or_insert_with(|| error.to_owned());
        }
        let ended = self.ledger.stop(id);
        self.finish(ended)
    }

    /// Its endpoint was closed.
    pub(crate) fn endpoint_closed(&mut self, outbox: EndpointId) -> Vec<FlowEnded> {
        let ended = self.ledger.endpoint_closed(outbox);
        ended
            .into_iter()
            .filter_map(|e| self.finish(Some(e)))
            .collect()
    }

    fn finish(&mut self, ended: Option<Ended>) -> Option<FlowEnded> {
        let mut ended = ended?;
        let flow = self.open.remove(&ended.flow)?;
        let settled = flow.in_flight == 0 && !flow.unsettled;
        ended.complete &= flow.error.is_none();
        // The ledger's include one that was counted and then not posted.
        (ended.writes, ended.bytes) = (flow.writes, flow.bytes);
        Some(FlowEnded {
            ended,
            settled,
            error: flow.error,
            first_post: flow.first_post,
            last_completion: flow.last_completion,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tandem_core::immediate::{Immediate, SlotKey};

    const T: FlowId = FlowId(1);
    const E: EndpointId = EndpointId(1);

    fn region(base: u64, len: u64, key: u64) -> RemoteRegion {
        let keys = vec![RegionKey { base, key }];
        RemoteRegion { len, keys }
    }

    fn flows() -> Flows {
        let mut flows = Flows::new(Bounds {
            local: 100,
            longest: 60,
            key_size: 4,
        });
        assert!(flows.open(T, E, region(0, 200, 1)));
        flows
    }

    fn write(local_offset: u64, remote_offset: u64, len: u32) -> Write {
        let immediate = Immediate::new(SlotKey::new(0, 0), 1);
        Write {
            flow: T,
            local_offset,
            remote_offset,
            len,
            immediate,
        }
    }

    #[test]
    fn a_write_outside_either_side_is_a_fault() {
        let mut flows = flows();
        assert_eq!(flows.fault(&write(50, 150, 50)), None);
        assert!(
            flows
                .fault(&write(51, 0, 50))
                .unwrap()
                .contains("own arena")
        );
        assert!(
            flows
                .fault(&write(u64::MAX, 0, 50))
                .unwrap()
                .contains("own arena")
        );
        assert!(
            flows
                .fault(&write(0, 151, 50))
                .unwrap()
                .contains("remote region")
        );
        assert!(
            flows
                .fault(&write(0, u64::MAX, 1))
                .unwrap()
                .contains("remote region")
        );
        assert!(flows.fault(&write(0, 0, 61)).unwrap().contains("longer"));
        assert!(flows.fault(&write(0, 0, 0)).unwrap().contains("no bytes"));
        flows.seal_queued(T);
        assert!(flows.fault(&write(0, 0, 1)).unwrap().contains("seal"));
    }

    #[test]
    fn a_region_that_wraps_or_a_key_too_long_is_refused() {
        let flows = flows();
        assert!(!flows.addressable(&region(u64::MAX, 1, 0)));
        assert!(!flows.addressable(&region(0, 1, 1 << 32)));
        assert!(flows.addressable(&region(0, 1, 7)));
    }

    #[test]
    fn only_writes_that_all_completed_well_settle_a_flow() {
        let mut flows = flows();
        flows.begin(&write(0, 0, 1)).unwrap();
        flows.posted(T, 1);
        flows.begin(&write(0, 0, 1)).unwrap();
        flows.posted(T, 1);
        let now = Instant::now();
        assert!(flows.completed(T, now, Some("refused".into())).is_none());
        let end = flows.completed(T, now, None).unwrap();
        assert!(!end.settled && !end.ended.complete);
        assert_eq!(end.error.as_deref(), Some("refused"));
    }

    #[test]
    fn a_close_under_an_outstanding_write_does_not_settle() {
        let mut flows = flows();
        flows.begin(&write(0, 0, 1)).unwrap();
        flows.posted(T, 1);
        let ended = flows.endpoint_closed(E);
        assert!(!ended[0].settled);
        assert_eq!(flows.outbox(T), None);
    }

    #[test]
    fn a_stop_with_nothing_in_flight_settles() {
        let end = flows().stop(T, None).unwrap();
        assert!(end.settled && !end.ended.complete);
    }
}

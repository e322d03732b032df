//! An outbox from each shard to each inbox that it pushes to, opened when first needed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tandem_core::decode::Peer;
use tandem_core::{EndpointId, FlowId};
use tandem_fabric::{Fabric, FabricError, RemoteRegion};
use tokio::sync::OnceCell;

use crate::fabrics::Fabrics;

/// Between looks at a lost peer.
const LOOK: Duration = Duration::from_millis(20);

/// From one of this worker's shards to the inbox of one shard of a decode worker.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct To {
    /// From which shard.
    pub(crate) source: u16,
    /// To whose inbox.
    pub(crate) peer: Peer,
    /// Of which of its shards.
    pub(crate) target: u16,
    /// Its fabric addresses, one for each NIC: others after a fence.
    pub(crate) addresses: Vec<Vec<u8>>,
}

impl To {
    fn same_way(&self, other: &Self) -> bool {
        self.source == other.source
            && self.target == other.target
            && self.peer.worker == other.peer.worker
    }
}

/// An outbox that is open, or being opened by somebody.
pub(super) type Slot = Arc<OnceCell<EndpointId>>;

/// All outboxes.
#[derive(Default)]
pub(super) struct Outboxes {
    open: HashMap<To, Slot>,
    /// Being closed: whoever relies on the close waits for it.
    closing: HashMap<To, Slot>,
}

impl Outboxes {
    pub(super) fn slot(&mut self, to: &To) -> Slot {
        Arc::clone(self.open.entry(to.clone()).or_default())
    }

    /// Takes an outbox away to be closed; [`Outboxes::closed`] says that it is.
    pub(super) fn take(&mut self, to: &To) -> Option<Slot> {
        let slot = self.open.remove(to)?;
        self.closing.insert(to.clone(), Arc::clone(&slot));
        Some(slot)
    }

    /// An outbox, open or being closed.
    pub(super) fn any(&mut self, to: &To) -> Option<Slot> {
        self.take(to).or_else(|| self.closing.get(to).cloned())
    }

    pub(super) fn closed(&mut self, to: &To) {
        self.closing.remove(to);
    }

    /// Outboxes to inboxes that are no more: of an earlier life of the worker, or fenced since.
    pub(super) fn stale(&self, to: &To) -> Vec<To> {
        let stale = |other: &&To| other.same_way(to) && *other != to;
        self.open.keys().filter(stale).cloned().collect()
    }

    pub(super) fn with_endpoint(&self, shard: u16, endpoint: EndpointId) -> Option<To> {
        let mut open = self.open.iter();
        let found = open.find(|(to, slot)| to.source == shard && slot.get() == Some(&endpoint));
        found.map(|(to, _)| to.clone())
    }
}

/// Opens the outbox if need be, and a flow over it.
pub(super) async fn open(
    fabric: &Fabric,
    slot: &Slot,
    to: &To,
    flow: FlowId,
    region: RemoteRegion,
) -> Result<(), String> {
    let outbox = slot
        .get_or_try_init(|| fabric.open_outbox(&to.addresses))
        .await
        .map_err(|e| format!("no way to {}: {e}", to.peer.worker))?;
    fabric
        .open_flow(flow, *outbox, region)
        .await
        .map_err(|e| e.to_string())
}

/// Closes an outbox, which ends its flows. Returns when it is closed, whoever else closes it too.
pub(super) async fn close(fabric: &Fabric, slot: &Slot) {
    // Whoever is opening it now must have ended, or it would be open after its close.
    let nobody = || async { Err::<EndpointId, ()>(()) };
    let Ok(outbox) = slot.get_or_try_init(nobody).await else {
        return;
    };
    loop {
        match fabric.close(*outbox).await {
            Ok(()) | Err(FabricError::UnknownEndpoint(_) | FabricError::Closed) => return,
            Err(error) => tracing::error!(%error, "an outbox cannot be closed: its pages wait"),
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Waits until an inbox cannot read this side's memory any more. On most transports nothing does once
/// the outbox is closed; on `shm` the receiver copies, until its inbox is closed or its process ends.
pub(super) async fn read_no_more(fabrics: &Fabrics, to: &To) {
    if fabrics.info().provider != "shm" {
        return;
    }
    while to.addresses.iter().any(|a| tandem_fabric::shm::may_read(a)) {
        tokio::time::sleep(LOOK).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tandem_core::{Incarnation, WorkerId};
    use tandem_fabric::FabricOptions;
    use tandem_memory::HostMemory;
    use tokio::task::JoinSet;

    fn fabric() -> Fabric {
        let memory = Arc::new(HostMemory::create("outboxes", 4096).unwrap());
        let (fabric, _events) = Fabric::open(FabricOptions::default(), memory).unwrap();
        fabric
    }

    fn to(addresses: Vec<Vec<u8>>) -> To {
        let peer = Peer {
            worker: WorkerId::new("decode-0").unwrap(),
            incarnation: Incarnation(1),
        };
        To {
            source: 0,
            peer,
            target: 0,
            addresses,
        }
    }

    #[tokio::test]
    async fn flows_that_need_an_outbox_at_once_open_one() {
        let (here, there) = (fabric(), fabric());
        let addresses = there.open_inbox().await.unwrap().addresses;
        let (slot, to) = (Slot::default(), to(addresses.clone()));
        let mut opening = JoinSet::new();
        for flow in 0..50 {
            let (here, slot, to) = (here.clone(), Arc::clone(&slot), to.clone());
            let region = there.info().region();
            opening.spawn(async move { open(&here, &slot, &to, FlowId(flow), region).await });
        }
        for opened in opening.join_all().await {
            opened.unwrap();
        }
        // Endpoints are numbered in the order in which they are opened.
        assert_eq!(slot.get(), Some(&EndpointId(1)));
        assert_eq!(here.open_outbox(&addresses).await, Ok(EndpointId(2)));
    }

    #[tokio::test]
    async fn an_outbox_that_did_not_open_is_tried_again() {
        let (here, there) = (fabric(), fabric());
        let slot = Slot::default();
        let region = there.info().region();
        let refused = open(&here, &slot, &to(Vec::new()), FlowId(1), region.clone()).await;
        assert!(refused.unwrap_err().contains("decode-0"));
        let addresses = there.open_inbox().await.unwrap().addresses;
        let opened = open(&here, &slot, &to(addresses), FlowId(1), region).await;
        assert_eq!(opened, Ok(()));
    }
}

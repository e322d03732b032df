//! An outbox from each shard to each inbox that it pushes to, opened when first needed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tandem_core::decode::Peer;
use tandem_core::{EndpointId, FlowId};
use tandem_fabric::{Fabric, FabricError, RemoteRegion};
use tokio::sync::OnceCell;

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
}

impl Outboxes {
    pub(super) fn slot(&mut self, to: &To) -> Slot {
        Arc::clone(self.open.entry(to.clone()).or_default())
    }

    pub(super) fn take(&mut self, to: &To) -> Option<Slot> {
        self.open.remove(to)
    }

    /// Outboxes to inboxes that are no more: of an earlier life of the worker, or fenced since.
    pub(super) fn take_stale(&mut self, to: &To) -> Vec<Slot> {
        let stale = |other: &&To| other.same_way(to) && *other != to;
        let gone: Vec<To> = self.open.keys().filter(stale).cloned().collect();
        gone.iter().filter_map(|to| self.open.remove(to)).collect()
    }

    pub(super) fn take_endpoint(&mut self, shard: u16, endpoint: EndpointId) -> Option<Slot> {
        let to = self
            .open
            .iter()
            .find(|(to, slot)| to.source == shard && slot.get() == Some(&endpoint))?
            .0
            .clone();
        self.open.remove(&to)
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

/// Closes an outbox, which ends its flows.
pub(super) async fn close(fabric: &Fabric, slot: &Slot) {
    let Some(outbox) = slot.get() else { return };
    loop {
        match fabric.close(*outbox).await {
            Ok(()) | Err(FabricError::UnknownEndpoint(_) | FabricError::Closed) => return,
            Err(error) => tracing::error!(%error, "an outbox cannot be closed: its pages wait"),
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

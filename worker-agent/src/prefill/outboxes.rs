//! An outbox for each inbox that this worker pushes to, opened when first needed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tandem_core::decode::Peer;
use tandem_core::{EndpointId, TransferId};
use tandem_fabric::{Fabric, FabricError, RemoteRegion};
use tokio::sync::OnceCell;

/// A decode worker's inbox.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct To {
    /// Whose.
    pub(crate) peer: Peer,
    /// Its fabric address: another one after a fence.
    pub(crate) address: Vec<u8>,
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
        let stale = |other: &&To| other.peer.worker == to.peer.worker && *other != to;
        let gone: Vec<To> = self.open.keys().filter(stale).cloned().collect();
        gone.iter().filter_map(|to| self.open.remove(to)).collect()
    }

    pub(super) fn take_endpoint(&mut self, endpoint: EndpointId) -> Option<Slot> {
        let to = self
            .open
            .iter()
            .find(|(_, slot)| slot.get() == Some(&endpoint))?
            .0
            .clone();
        self.open.remove(&to)
    }
}

/// Opens the outbox if need be, and a transfer over it.
pub(super) async fn open(
    fabric: &Fabric,
    slot: &Slot,
    to: &To,
    transfer: TransferId,
    region: RemoteRegion,
) -> Result<(), String> {
    let outbox = slot
        .get_or_try_init(|| fabric.open_outbox(&to.address))
        .await
        .map_err(|e| format!("no way to {}: {e}", to.peer.worker))?;
    fabric
        .open_transfer(transfer, *outbox, region)
        .await
        .map_err(|e| e.to_string())
}

/// Closes an outbox, which ends its transfers.
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

//! An inbox for each prefill worker that pushes here, opened when first needed.

use std::collections::HashMap;
use std::sync::Arc;

use tandem_core::EndpointId;
use tandem_core::decode::Peer;
use tandem_core::ledger::Armed;
use tandem_fabric::{Fabric, FabricError, Inbox};
use tokio::sync::OnceCell;

/// Peers' inboxes.
#[derive(Default)]
pub(super) struct Inboxes {
    open: HashMap<Peer, Slot>,
}

/// An inbox that is open, or being opened by somebody.
pub(super) type Slot = Arc<OnceCell<Inbox>>;

impl Inboxes {
    pub(super) fn slot(&mut self, peer: &Peer) -> Slot {
        Arc::clone(self.open.entry(peer.clone()).or_default())
    }

    /// Takes a peer's inbox away: the next request of that peer gets a new one.
    pub(super) fn take(&mut self, peer: &Peer) -> Option<Slot> {
        self.open.remove(peer)
    }

    /// Earlier lives of this peer's worker that still have an inbox.
    pub(super) fn older(&self, peer: &Peer) -> Vec<Peer> {
        let older = |p: &&Peer| p.worker == peer.worker && p.incarnation != peer.incarnation;
        self.open.keys().filter(older).cloned().collect()
    }

    pub(super) fn peer_of(&self, endpoint: EndpointId) -> Option<Peer> {
        let theirs = |slot: &Slot| slot.get().is_some_and(|inbox| inbox.endpoint == endpoint);
        self.open
            .iter()
            .find(|(_, slot)| theirs(slot))
            .map(|(peer, _)| peer.clone())
    }

    pub(super) fn address(&self, peer: &Peer) -> Option<Vec<u8>> {
        Some(self.open.get(peer)?.get()?.address.clone())
    }
}

/// Opens the inbox if need be and waits there for `pieces`.
pub(super) async fn arm(fabric: &Fabric, slot: &Slot, pieces: u32) -> Result<Armed, String> {
    let inbox = slot
        .get_or_try_init(|| fabric.open_inbox())
        .await
        .map_err(|e| e.to_string())?;
    fabric
        .arm(inbox.endpoint, pieces)
        .await
        .map_err(|e| e.to_string())
}

/// Closes an inbox. Returns only when nothing can land any more: where the provider refuses, it
/// tries for as long as the process lives, and the pages stay where they are.
pub(super) async fn fence(fabric: &Fabric, slot: &Slot) {
    // Whoever is opening it now must have ended, or it would be open after its fence.
    let Ok(inbox) = slot.get_or_try_init(|| fabric.open_inbox()).await else {
        return;
    };
    loop {
        match fabric.close(inbox.endpoint).await {
            Ok(()) | Err(FabricError::UnknownEndpoint(_) | FabricError::Closed) => return,
            Err(error) => tracing::error!(%error, "an inbox cannot be closed: its pages wait"),
        }
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
}

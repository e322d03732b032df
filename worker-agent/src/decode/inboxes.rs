//! Inboxes for each prefill worker that pushes here, one in each shard, opened when first needed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tandem_core::EndpointId;
use tandem_core::decode::Peer;
use tandem_core::ledger::Armed;
use tandem_fabric::{ArmError, FabricError, Inbox};
use tokio::sync::OnceCell;

use crate::fabrics::Fabrics;

/// Peers' inboxes.
#[derive(Default)]
pub(super) struct Inboxes {
    open: HashMap<Peer, Slot>,
}

/// Inboxes of one peer in all shards, that are open or being opened by somebody.
pub(super) type Slot = Arc<OnceCell<Arc<[Inbox]>>>;

impl Inboxes {
    pub(super) fn slot(&mut self, peer: &Peer) -> Slot {
        Arc::clone(self.open.entry(peer.clone()).or_default())
    }

    /// Takes a peer's inboxes away: the next request of that peer gets a new one.
    pub(super) fn take(&mut self, peer: &Peer) -> Option<Slot> {
        self.open.remove(peer)
    }

    /// Earlier lives of this peer's worker that still have an inbox.
    pub(super) fn older(&self, peer: &Peer) -> Vec<Peer> {
        let older = |p: &&Peer| p.worker == peer.worker && p.incarnation != peer.incarnation;
        self.open.keys().filter(older).cloned().collect()
    }

    pub(super) fn peer_of(&self, shard: u16, endpoint: EndpointId) -> Option<Peer> {
        let theirs = |slot: &Slot| {
            let inboxes = slot.get();
            inboxes.is_some_and(|i| i[usize::from(shard)].endpoint == endpoint)
        };
        self.open
            .iter()
            .find(|(_, slot)| theirs(slot))
            .map(|(peer, _)| peer.clone())
    }

    /// A peer's, shard by shard, where they are open.
    pub(super) fn of(&self, peer: &Peer) -> Option<Arc<[Inbox]>> {
        self.open.get(peer)?.get().cloned()
    }
}

/// Between looks at whether a peer's queues have room.
const LOOK: Duration = Duration::from_millis(20);
/// A request that finds none for so long is refused.
const PATIENCE: Duration = Duration::from_secs(10);

/// Opens the inboxes if need be and waits there for each shard's pieces: in all shards or in none.
/// Where the peer's completion queues have no room beside what is awaited already, waits for it.
pub(super) async fn arm(
    fabrics: &Fabrics,
    slot: &Slot,
    pieces: &[u64],
) -> Result<Arc<[Armed]>, String> {
    let inboxes = slot.get_or_try_init(|| open(fabrics));
    let inboxes = inboxes.await.map_err(|e| e.to_string())?;
    let started = Instant::now();
    loop {
        match arm_all(fabrics, inboxes, pieces).await {
            Err(ArmError::NoRoom { .. }) if started.elapsed() < PATIENCE => {
                tokio::time::sleep(LOOK).await;
            }
            armed => return armed.map_err(|e| e.to_string()),
        }
    }
}

/// What is armed is given back where another shard refuses: two requests that wait hold up neither.
async fn arm_all(
    fabrics: &Fabrics,
    inboxes: &[Inbox],
    pieces: &[u64],
) -> Result<Arc<[Armed]>, ArmError> {
    let mut armed = Vec::new();
    for ((fabric, inbox), pieces) in fabrics.all().iter().zip(inboxes.iter()).zip(pieces) {
        match fabric.arm(inbox.endpoint, *pieces).await {
            Ok(slot) => armed.push(slot),
            Err(error) => {
                for (fabric, armed) in fabrics.all().iter().zip(armed) {
                    // A fabric that has ended has no slots.
                    let _ = fabric.release(armed);
                }
                return Err(error);
            }
        }
    }
    Ok(armed.into())
}

async fn open(fabrics: &Fabrics) -> Result<Arc<[Inbox]>, FabricError> {
    let mut inboxes = Vec::new();
    for fabric in fabrics.all() {
        match fabric.open_inbox().await {
            Ok(inbox) => inboxes.push(inbox),
            Err(error) => {
                close(fabrics, &inboxes).await;
                return Err(error);
            }
        }
    }
    Ok(inboxes.into())
}

/// Closes a peer's inboxes. Returns only when nothing can land any more: where the provider refuses,
/// it tries for as long as the process lives, and the pages stay where they are.
pub(super) async fn fence(fabrics: &Fabrics, slot: &Slot) {
    // Whoever is opening them now must have ended, or they would be open after their fence.
    if let Ok(inboxes) = slot.get_or_try_init(|| open(fabrics)).await {
        close(fabrics, inboxes).await;
    }
}

async fn close(fabrics: &Fabrics, inboxes: &[Inbox]) {
    for (fabric, inbox) in fabrics.all().iter().zip(inboxes) {
        loop {
            match fabric.close(inbox.endpoint).await {
                Ok(()) | Err(FabricError::UnknownEndpoint(_) | FabricError::Closed) => break,
                Err(error) => tracing::error!(%error, "an inbox cannot be closed: its pages wait"),
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tandem_config::FabricConfig;
    use tandem_memory::HostMemory;
    use tokio::task::JoinSet;

    use crate::placement::Place;

    #[tokio::test]
    async fn requests_that_need_a_peer_s_inbox_at_once_open_one() {
        let memory = Arc::new(HostMemory::create("inboxes", 4096).unwrap());
        let config = FabricConfig::default();
        let (fabrics, _events) = Fabrics::open(&config, &[Place::default()], &[memory]).unwrap();
        let slot = Slot::default();
        let mut arming = JoinSet::new();
        for _ in 0..50 {
            let (fabrics, slot) = (fabrics.clone(), Arc::clone(&slot));
            arming.spawn(async move { arm(&fabrics, &slot, &[7]).await.map(|a| a.len()) });
        }
        for armed in arming.join_all().await {
            assert_eq!(armed, Ok(1));
        }
        // Endpoints are numbered in the order in which they are opened.
        assert_eq!(slot.get().unwrap()[0].endpoint, EndpointId(1));
        let next = fabrics.shard(0).open_inbox().await.unwrap();
        assert_eq!(next.endpoint, EndpointId(2));
    }
}

//! Connections from a decode worker to prefill workers.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tandem_core::WorkerId;
use tandem_wire::{Channel, Connection, Endpoint};

/// Connections by address, dialled when first needed and again when lost. Those that are lost are
/// forgotten when another one is needed: workers that come and go at ever new addresses leave nothing.
#[derive(Debug)]
pub(crate) struct Peers {
    endpoint: Endpoint,
    connections: Mutex<HashMap<SocketAddr, Slot>>,
}

type Slot = Arc<tokio::sync::Mutex<Option<Connection>>>;

/// Whether somebody dials or may still use it.
fn is_wanted(slot: &Slot) -> bool {
    let lives = |c: &Option<Connection>| c.as_ref().is_some_and(|c| !c.is_lost());
    Arc::strong_count(slot) > 1 || slot.try_lock().map_or(true, |held| lives(&held))
}

impl Peers {
    pub(crate) fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            connections: Mutex::new(HashMap::new()),
        }
    }

    /// Opens a stream to the worker `id` at `address`, or says why there is none.
    pub(crate) async fn open(&self, address: SocketAddr, id: &WorkerId) -> Result<Channel, String> {
        let slot = {
            let mut all = self.connections.lock().unwrap_or_else(|e| e.into_inner());
            all.retain(|_, slot| is_wanted(slot));
            Arc::clone(all.entry(address).or_default())
        };
        // Held while dialling: one connection for everybody who waits for it.
        let mut slot = slot.lock().await;
        if let Some(connection) = slot.as_ref() {
            if let Ok(channel) = connection.open().await {
                return Ok(channel);
            }
            *slot = None;
        }
        let connection = self
            .endpoint
            .connect(address)
            .await
            .map_err(|e| e.to_string())?;
        if !connection.is_worker(id) {
            connection.close("another worker was expected");
            return Err(format!(
                "{address} is not {id}: its certificate is another one's"
            ));
        }
        let channel = connection.open().await.map_err(|e| e.to_string())?;
        *slot = Some(connection);
        Ok(channel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tandem_wire::identity::{Authority, PeerRole};
    use tandem_wire::{ControlOptions, Identity};

    #[tokio::test]
    async fn workers_that_come_and_go_leave_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::open_or_create(folder.path()).unwrap();
        let bind = |name: &str| {
            let role = PeerRole::Worker(WorkerId::new(name).unwrap());
            authority.issue(&role).unwrap();
            let identity = Identity::load(folder.path(), name).unwrap();
            let local = SocketAddr::from(([127, 0, 0, 1], 0));
            Endpoint::bind(local, &identity, ControlOptions::default()).unwrap()
        };
        let peers = Peers::new(bind("decode-0"));
        let stays = bind("prefill-0");
        let accept = |endpoint: Endpoint| async move {
            let incoming = endpoint.accept().await.unwrap();
            incoming.accept().await.unwrap()
        };
        let open = async |endpoint: &Endpoint, name: &str| {
            let id = WorkerId::new(name).unwrap();
            let opened = peers.open(endpoint.address(), &id);
            let (opened, accepted) = tokio::join!(opened, accept(endpoint.clone()));
            (opened.unwrap(), accepted)
        };
        let (_channel, _kept) = open(&stays, "prefill-0").await;
        for n in 1..20 {
            let name = format!("prefill-{n}");
            let goes = bind(&name);
            let (_channel, accepted) = open(&goes, &name).await;
            let ours = Arc::clone(&peers.connections.lock().unwrap()[&goes.address()]);
            let ours = ours.lock().await.clone().unwrap();
            accepted.close("it goes");
            ours.lost().await;
        }
        let all = peers.connections.lock().unwrap();
        assert!(all.len() <= 2, "{} connections", all.len());
        assert!(all.contains_key(&stays.address()));
    }
}

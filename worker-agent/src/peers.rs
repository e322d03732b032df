//! Connections from a decode worker to prefill workers.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tandem_core::WorkerId;
use tandem_wire::{Channel, Connection, Endpoint};

/// Connections by address, dialled when first needed and again when lost.
#[derive(Debug)]
pub(crate) struct Peers {
    endpoint: Endpoint,
    connections: Mutex<HashMap<SocketAddr, Arc<tokio::sync::Mutex<Option<Connection>>>>>,
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

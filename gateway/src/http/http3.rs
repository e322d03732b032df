//! HTTP/3: QUIC connections, and requests on them.
//!
//! The same layers, bounds and order of the end as over TCP. What h3 leaves open is closed here and
//! in `streams`: how much a client may make it keep, and how a client's cancel is heard of.

mod request;
mod streams;

use std::io;
use std::net::UdpSocket;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use quinn::{IdleTimeout, TransportConfig, VarInt};
use tandem_wire::task::{Task, spawn};
use tokio::task::JoinSet;

use super::addresses::Place;
use super::connection::ConnectionLimits;
use super::layers::Answers;
use super::link::Link;
use super::server::Shared;
use super::tls::{Loaded, Tls};
use crate::metrics::Protocol;
use request::Edge;
use streams::{Connection, Streams};

/// Of a connection that ends as it should (RFC 9114, section 8.1).
pub(super) const NO_ERROR: VarInt = VarInt::from_u32(0x100);
/// A client that says nothing for so long, though it is asked, has gone.
const SILENCE: Duration = Duration::from_secs(30);
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// What a client may send ahead on one stream, and on all of them.
const STREAM_WINDOW: u32 = 128 << 10;
const WINDOW: u32 = 1 << 20;
/// Bytes of answers that a connection may have on the way.
const SEND_WINDOW: u64 = 256 << 10;
/// HTTP/3 needs one for control, and two for QPACK.
const CLIENT_STREAMS: u32 = 8;

/// Serves on a UDP port.
pub(super) fn open(
    socket: UdpSocket,
    tls: &Tls,
    limits: ConnectionLimits,
) -> io::Result<quinn::Endpoint> {
    let runtime =
        quinn::default_runtime().ok_or_else(|| io::Error::other("outside of a tokio runtime"))?;
    let config = server_config(tls.loaded(), limits);
    quinn::Endpoint::new(
        quinn::EndpointConfig::default(),
        Some(config),
        socket,
        runtime,
    )
}

/// Takes over new certificates.
pub(super) fn watch(tls: &Tls, endpoint: quinn::Endpoint, limits: ConnectionLimits) -> Task<()> {
    let mut loaded = tls.subscribe();
    spawn("http3-certificates", async move {
        while loaded.changed().await.is_ok() {
            let loaded = loaded.borrow_and_update().clone();
            endpoint.set_server_config(Some(server_config(loaded, limits)));
        }
    })
}

fn server_config(loaded: Loaded, limits: ConnectionLimits) -> quinn::ServerConfig {
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(limits.streams.into())
        .max_concurrent_uni_streams(CLIENT_STREAMS.into())
        .stream_receive_window(STREAM_WINDOW.into())
        .receive_window(WINDOW.into())
        .send_window(SEND_WINDOW)
        .datagram_receive_buffer_size(None)
        .keep_alive_interval(Some(KEEP_ALIVE))
        .max_idle_timeout(IdleTimeout::try_from(SILENCE).ok());
    let mut config = quinn::ServerConfig::with_crypto(loaded.quic);
    config.transport_config(Arc::new(transport));
    config
}

/// Serves a connection to its end.
pub(super) async fn serve<S: Answers>(
    incoming: quinn::Incoming,
    _place: Place,
    shared: Arc<Shared>,
    service: S,
) {
    let Ok(connecting) = incoming.accept() else {
        return;
    };
    let Some(connection) = shared.handshake(connecting).await else {
        return;
    };
    let _counted = shared.metrics.http.connected(Protocol::Http3);
    let closing = connection.clone();
    if let Err(error) = requests(connection, &shared, service).await {
        tracing::debug!(%error, "connection");
    }
    // All answers have been acknowledged, or given up.
    closing.close(NO_ERROR, b"");
}

async fn requests<S: Answers>(
    connection: quinn::Connection,
    shared: &Shared,
    service: S,
) -> Result<(), h3::error::ConnectionError> {
    let limits = shared.limits;
    let streams = Streams::new(2 * limits.head.bytes as u64);
    let quic = Connection::new(connection, Arc::clone(&streams));
    let mut serving: h3::server::Connection<_, Bytes> = h3::server::builder()
        // Twice as much as is taken: what is a little over the limit gets a reply.
        .max_field_section_size(2 * limits.head.bytes as u64)
        .send_grease(false)
        .build(quic)
        .await?;
    let link = Link::new();
    let edge = Edge {
        service,
        link: Arc::clone(&link),
        limits,
    };
    let mut requests = JoinSet::new();
    let mut stopping = shared.stopping.clone();
    let mut idle = pin!(link.idle(limits.patience.head, limits.patience.idle));
    let mut stopped = false;
    loop {
        let stop = tokio::select! {
            next = serving.accept() => match next? {
                Some(resolver) => {
                    let streams = Arc::clone(&streams);
                    requests.spawn(request::answer(resolver, streams, edge.clone()));
                    false
                }
                None => break,
            },
            Some(_) = requests.join_next() => false,
            () = &mut idle, if !stopped => true,
            _ = stopping.wait_for(|stop| *stop), if !stopped => true,
        };
        if stop {
            stopped = true;
            serving.shutdown(0).await?;
        }
        if stopped && requests.is_empty() {
            break;
        }
    }
    while requests.join_next().await.is_some() {}
    Ok(())
}

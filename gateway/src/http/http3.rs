//! HTTP/3: QUIC connections, and requests on them.
//!
//! The same layers, bounds and order of the end as over TCP. What h3 leaves open is closed here and
//! in `streams`: how much a client may make it keep, and how a client's cancel is heard of.

mod request;
mod resets;
mod streams;

use std::io;
use std::net::UdpSocket;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use quinn::{IdleTimeout, TransportConfig, VarInt};
use tandem_wire::task::{Task, spawn};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::addresses::Place;
use super::connection::ConnectionLimits;
use super::layers::Answers;
use super::link::Link;
use super::server::{Limits, Shared};
use super::tls::{Loaded, Tls};
use crate::metrics::Protocol;
use request::Edge;
use resets::{Ended, Resets};
use streams::{Connection, Streams};

/// Of a connection that ends as it should (RFC 9114, section 8.1).
pub(super) const NO_ERROR: VarInt = VarInt::from_u32(0x100);
/// Of one whose client makes too much work for nothing.
const EXCESSIVE_LOAD: VarInt = VarInt::from_u32(0x107);
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

/// Takes over new certificates and bounds.
pub(super) fn watch(
    tls: &Tls,
    endpoint: quinn::Endpoint,
    mut limits: watch::Receiver<Limits>,
) -> Task<()> {
    let mut loaded = tls.subscribe();
    spawn("http3-settings", async move {
        loop {
            tokio::select! {
                Ok(()) = loaded.changed() => {}
                Ok(()) = limits.changed() => {}
                else => return,
            }
            let loaded = loaded.borrow_and_update().clone();
            let each = limits.borrow_and_update().each;
            endpoint.set_server_config(Some(server_config(loaded, each)));
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
    let limits = shared.limits();
    let streams = Streams::new(limits.head.told());
    let closing = connection.clone();
    let quic = Connection::new(connection, Arc::clone(&streams));
    let mut serving: h3::server::Connection<_, Bytes> = h3::server::builder()
        .max_field_section_size(limits.head.told())
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
    let mut resets = Resets::new(Instant::now());
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
            Some(ended) = requests.join_next() => {
                // A request that panicked was answered, by its layers.
                let ended = ended.unwrap_or(Ended::Answered);
                if !resets.note(Instant::now(), ended) {
                    tracing::debug!("connection: too many requests taken back");
                    // Before h3 closes it with another code.
                    closing.close(EXCESSIVE_LOAD, b"");
                    return Ok(());
                }
                false
            }
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

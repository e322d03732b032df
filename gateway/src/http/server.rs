//! The accept loop and the connections.
//!
//! Order of the end: stop accepting, let open requests finish, after a while end them with an error that
//! says so, and close what is still open then.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::addresses::{Addresses, Place};
use super::connection::{self, Agreed, ConnectionLimits};
use super::http3;
use super::layers::Answers;
use super::tls::Tls;
use crate::metrics::{Metrics, Refused};

/// After the system refused a connection: no descriptor is free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// For the error of a request that was ended to reach its client.
const LAST_EVENTS: Duration = Duration::from_millis(500);
/// From so many connections on, clients of QUIC have to prove that their address is theirs before
/// anything is kept for them.
const UNPROVEN: usize = 64;
/// Of one connection's plain text that waits to be encrypted.
const TLS_BUFFER: usize = 16 << 10;

/// Bounds of connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Open at once; more wait in the system's queue.
    pub(crate) connections: usize,
    /// Open at once from one address.
    pub(crate) per_address: Option<usize>,
    /// Of each.
    pub(crate) each: ConnectionLimits,
}

/// Where clients come in, and on which terms.
pub(crate) struct Front {
    pub(crate) listener: TcpListener,
    /// `None` where clients are served in the clear.
    pub(crate) tls: Option<Tls>,
    /// HTTP/3's, where it is served.
    pub(crate) quic: Option<quinn::Endpoint>,
    /// Of new connections.
    pub(crate) limits: watch::Receiver<Limits>,
    pub(crate) metrics: Arc<Metrics>,
}

/// What others do at the stages of the end.
pub(crate) struct Stages<A, B> {
    /// No new connections from now on; says how long open requests have to end.
    pub(crate) stopping: A,
    /// Requests that are still open must end.
    pub(crate) halt: B,
}

/// Serves until `shutdown` resolves and connections have ended, or run out of time.
pub(crate) async fn serve(
    front: Front,
    service: impl Answers,
    shutdown: impl Future<Output = ()>,
    stages: Stages<impl FnOnce() -> Duration, impl FnOnce()>,
) {
    let (stop, stopping) = watch::channel(false);
    let mut connections = JoinSet::new();
    let Front {
        listener,
        tls,
        quic,
        mut limits,
        metrics,
    } = front;
    let handshakes = tls.as_ref().map_or(0, |tls| tls.config().max_handshakes);
    let shared = Arc::new(Shared {
        tls,
        handshakes: Semaphore::new(handshakes),
        addresses: Addresses::new(limits.borrow().per_address),
        limits: limits.clone(),
        metrics,
        stopping,
    });
    tokio::pin!(shutdown);
    loop {
        let room = connections.len() < limits.borrow_and_update().connections;
        tokio::select! {
            () = &mut shutdown => break,
            // Fails only where the gateway is gone.
            Ok(()) = limits.changed() => {}
            Some(_) = connections.join_next() => {}
            accepted = listener.accept(), if room => match accepted {
                Ok((socket, address)) => {
                    if let Some(place) = shared.place(address) {
                        let shared = Arc::clone(&shared);
                        connections.spawn(tcp(socket, place, shared, service.clone()));
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(incoming) = next(quic.as_ref()), if room => {
                let proven = incoming.remote_address_validated() || !incoming.may_retry();
                if !proven && connections.len() >= UNPROVEN {
                    // Fails only where it may not be done.
                    let _ = incoming.retry();
                } else if let Some(place) = shared.place(incoming.remote_address()) {
                    let shared = Arc::clone(&shared);
                    connections.spawn(http3::serve(incoming, place, shared, service.clone()));
                } else {
                    incoming.refuse();
                }
            }
        }
    }
    drop(listener);
    if let Some(quic) = &quic {
        quic.set_server_config(None);
    }
    let patience = (stages.stopping)();
    let _ = stop.send(true);
    end(connections, patience, stages.halt).await;
    if let Some(quic) = quic {
        quic.close(http3::NO_ERROR, b"stopping");
        let _ = timeout(LAST_EVENTS, quic.wait_idle()).await;
    }
}

/// Waits for the connections, which have been told.
async fn end(mut connections: JoinSet<()>, patience: Duration, halt: impl FnOnce()) {
    if timeout(patience, all(&mut connections)).await.is_ok() {
        return;
    }
    tracing::warn!(
        open = connections.len(),
        "requests did not end in time; they end with an error"
    );
    halt();
    let _ = timeout(LAST_EVENTS, all(&mut connections)).await;
    connections.shutdown().await;
}

/// Of all connections.
pub(super) struct Shared {
    tls: Option<Tls>,
    handshakes: Semaphore,
    addresses: Arc<Addresses>,
    limits: watch::Receiver<Limits>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) stopping: watch::Receiver<bool>,
}

impl Shared {
    /// Of a connection that begins now.
    pub(super) fn limits(&self) -> ConnectionLimits {
        self.limits.borrow().each
    }

    fn place(&self, address: SocketAddr) -> Option<Place> {
        let place = self.addresses.take(address.ip());
        if place.is_none() {
            self.metrics.http.refused(Refused::Address);
        }
        place
    }

    /// Runs a handshake when it is its turn. `None` where it failed, or took too long.
    pub(super) async fn handshake<T, E: std::fmt::Display>(
        &self,
        handshake: impl Future<Output = Result<T, E>>,
    ) -> Option<T> {
        let limit = self.tls.as_ref()?.config().handshake_timeout;
        let mut stopping = self.stopping.clone();
        let in_turn = async {
            // Fails only once it is closed, which nobody does.
            let _turn = self.handshakes.acquire().await;
            handshake.await
        };
        tokio::select! {
            ended = timeout(limit, in_turn) => match ended {
                Ok(Ok(done)) => Some(done),
                Ok(Err(error)) => {
                    tracing::debug!(%error, "handshake");
                    self.metrics.http.refused(Refused::Handshake);
                    None
                }
                Err(_) => {
                    self.metrics.http.refused(Refused::Slow);
                    None
                }
            },
            _ = stopping.wait_for(|stop| *stop) => None,
        }
    }
}

async fn all(connections: &mut JoinSet<()>) {
    while connections.join_next().await.is_some() {}
}

async fn next(quic: Option<&quinn::Endpoint>) -> Option<quinn::Incoming> {
    match quic {
        Some(quic) => quic.accept().await,
        None => std::future::pending().await,
    }
}

async fn tcp(socket: TcpStream, _place: Place, shared: Arc<Shared>, service: impl Answers) {
    // Fails only where the client has gone already.
    let _ = socket.set_nodelay(true);
    let Some(tls) = &shared.tls else {
        let (limits, stopping) = (shared.limits(), shared.stopping.clone());
        let agreed = Agreed::Nothing;
        return connection::serve(socket, agreed, service, limits, &shared.metrics, stopping).await;
    };
    // On the heap, so that a connection without TLS has no room for it.
    Box::pin(over_tls(socket, tls, &shared, service)).await;
}

async fn over_tls(socket: TcpStream, tls: &Tls, shared: &Shared, service: impl Answers) {
    let accepting = Box::pin(TlsAcceptor::from(tls.loaded().tcp).accept(socket));
    let Some(mut socket) = shared.handshake(accepting).await else {
        return;
    };
    let agreed = agreed(&socket);
    socket.get_mut().1.set_buffer_limit(Some(TLS_BUFFER));
    let (limits, stopping) = (shared.limits(), shared.stopping.clone());
    connection::serve(socket, agreed, service, limits, &shared.metrics, stopping).await;
}

fn agreed(socket: &TlsStream<TcpStream>) -> Agreed {
    match socket.get_ref().1.alpn_protocol() {
        Some(b"h2") => Agreed::Http2,
        Some(_) => Agreed::Http1,
        None => Agreed::Nothing,
    }
}

//! The accept loop and the connections.
//!
//! Order of the end: stop accepting, let open requests finish, after a while end them with an error that
//! says so, and close what is still open then.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tower::{Service, ServiceBuilder};

use super::catch::CatchLayer;
use super::observe::ObserveLayer;
use super::patience::Patient;
use super::request_id::RequestIdLayer;
use super::routes::Routes;
use super::trace_context::TraceLayer;
use crate::app::App;

/// Streams that one HTTP/2 client may have open.
const HTTP2_STREAMS: u32 = 256;
/// After the system refused a connection: no descriptor is free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
const HTTP2_KEEP_ALIVE: Duration = Duration::from_secs(20);
/// For the error of a request that was ended to reach its client.
const LAST_EVENTS: Duration = Duration::from_millis(500);

/// Bounds of connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Open at once; more wait in the system's queue.
    pub(crate) connections: usize,
    /// For a request's headers.
    pub(crate) header_timeout: Duration,
    /// For a client that stops reading.
    pub(crate) write_timeout: Duration,
    /// For open requests after `shutdown`.
    pub(crate) drain_timeout: Duration,
}

/// Serves until `shutdown` resolves and connections have ended, or run out of time.
pub(crate) async fn serve(
    listener: TcpListener,
    app: Arc<App>,
    limits: Limits,
    shutdown: impl Future<Output = ()>,
) {
    let (stop, stopping) = watch::channel(false);
    let mut connections = JoinSet::new();
    tokio::pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept(), if connections.len() < limits.connections => {
                match accepted {
                    Ok((socket, _)) => {
                        let stopping = stopping.clone();
                        connections.spawn(connection(socket, Arc::clone(&app), limits, stopping));
                    }
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept a connection");
                        sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        }
    }
    drop(listener);
    app.stopping.store(true, Ordering::Relaxed);
    let _ = stop.send(true);
    if timeout(limits.drain_timeout, all(&mut connections))
        .await
        .is_ok()
    {
        return;
    }
    tracing::warn!(open = connections.len(), "requests did not end in time");
    app.halt.send_replace(true);
    let _ = timeout(LAST_EVENTS, all(&mut connections)).await;
    connections.shutdown().await;
}

async fn all(connections: &mut JoinSet<()>) {
    while connections.join_next().await.is_some() {}
}

async fn connection(
    socket: TcpStream,
    app: Arc<App>,
    limits: Limits,
    mut stopping: watch::Receiver<bool>,
) {
    // Fails only where the client has gone already.
    let _ = socket.set_nodelay(true);
    let service = ServiceBuilder::new()
        .layer(RequestIdLayer)
        .layer(TraceLayer {
            spans: app.metrics.spans.clone(),
        })
        .layer(ObserveLayer {
            metrics: Arc::clone(&app.metrics),
        })
        .layer(CatchLayer)
        .service(Routes { app });
    let asked = AtomicBool::new(false);
    let service = service_fn(|request: Request<Incoming>| {
        asked.store(true, Ordering::Relaxed);
        service.clone().call(request)
    });
    let builder = builder(limits);
    let socket = TokioIo::new(Patient::new(socket, limits.write_timeout));
    let serving = builder.serve_connection(socket, service);
    tokio::pin!(serving);
    // Before its first bytes hyper does not know the protocol, and has no timeout for them.
    let first = sleep(limits.header_timeout);
    tokio::pin!(first);
    let (mut watch_first, mut watch_stop) = (true, true);
    loop {
        tokio::select! {
            ended = serving.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "connection");
                }
                return;
            }
            () = &mut first, if watch_first => {
                watch_first = false;
                if !asked.load(Ordering::Relaxed) {
                    return;
                }
            }
            _ = stopping.wait_for(|stop| *stop), if watch_stop => {
                watch_stop = false;
                serving.as_mut().graceful_shutdown();
            }
        }
    }
}

fn builder(limits: Limits) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(HTTP2_STREAMS)
        .keep_alive_interval(HTTP2_KEEP_ALIVE)
        .keep_alive_timeout(limits.header_timeout);
    builder
}

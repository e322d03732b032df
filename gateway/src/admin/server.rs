//! Connections of operators.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use tandem_wire::task::{Task, spawn};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::routes;
use crate::app::App;
use crate::http::Tls;

/// Open at once; more wait in the system's queue.
const CONNECTIONS: usize = 64;
/// For a request's headers.
const HEADERS: Duration = Duration::from_secs(10);
/// A connection lives no longer: a new one costs an operator nothing.
const LIFE: Duration = Duration::from_secs(600);
/// After the system refused a connection: no descriptor is free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves until the handle is dropped; that is at the very end of the gateway's, so that operators can
/// watch it.
pub(crate) fn start(listener: TcpListener, tls: Option<Tls>, app: Arc<App>) -> Task<()> {
    spawn("admin", async move {
        let mut connections = JoinSet::new();
        let handshakes = tls.as_ref().map_or(0, |tls| tls.config().max_handshakes);
        let handshakes = Arc::new(Semaphore::new(handshakes));
        loop {
            tokio::select! {
                Some(_) = connections.join_next() => {}
                accepted = listener.accept(), if connections.len() < CONNECTIONS => match accepted {
                    Ok((socket, _)) => {
                        let app = Arc::clone(&app);
                        match tls.clone() {
                            None => connections.spawn(connection(socket, app)),
                            Some(tls) => connections.spawn(secret(socket, tls, Arc::clone(&handshakes), app)),
                        };
                    }
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept an operator's connection");
                        sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
    })
}

/// Over TLS, in which nothing but HTTP/1 is spoken.
async fn secret(socket: TcpStream, tls: Tls, handshakes: Arc<Semaphore>, app: Arc<App>) {
    let mut config = ServerConfig::clone(&tls.loaded().tcp);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let in_turn = async {
        // Fails only once it is closed, which nobody does.
        let _turn = handshakes.acquire().await;
        TlsAcceptor::from(Arc::new(config)).accept(socket).await
    };
    if let Ok(Ok(socket)) = timeout(tls.config().handshake_timeout, in_turn).await {
        connection(socket, app).await;
    }
}

async fn connection(socket: impl AsyncRead + AsyncWrite + Unpin, app: Arc<App>) {
    let service = service_fn(|request: Request<Incoming>| {
        let app = Arc::clone(&app);
        async move { Ok::<_, Infallible>(routes::answer(&app, request).await) }
    });
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS);
    let serving = builder.serve_connection(TokioIo::new(socket), service);
    // What goes wrong with an operator's connection the operator sees.
    let _ = timeout(LIFE, serving).await;
}

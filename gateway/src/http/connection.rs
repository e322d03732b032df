//! One client's connection over TCP, from its first byte to its last.

use std::convert::Infallible;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use http::header::EXPECT;
use http::{Request, Response, Version};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::timeout;
use tower::ServiceExt;

use super::body;
use super::catch::CaughtBody;
use super::http1::{Guard, HeadLimits, Patience};
use super::layers::Answers;
use super::link::{Link, OpenBody};
use super::pace::Pace;
use super::patience::Patient;
use super::prefixed::{Prefixed, is_http2};
use super::reply::Body;
use super::unread;
use crate::metrics::{Metrics, Protocol};

/// hyper's smallest buffer. A head comes through the guard whole, and an answer's events leave as they
/// come.
const LEAST_BUFFER: usize = 8 << 10;
/// Asks silent clients of HTTP/2 whether they are there.
const HTTP2_KEEP_ALIVE: Duration = Duration::from_secs(20);
/// What a client of HTTP/2 may send ahead on one stream, and on all of them: prompts are small, and
/// those that are not go at the pace of their reader.
const HTTP2_STREAM_WINDOW: u32 = 128 << 10;
const HTTP2_WINDOW: u32 = 1 << 20;
/// Of one stream's answer, when its client does not read it.
const HTTP2_SEND_BUFFER: usize = 16 << 10;
/// Streams that a client may reset before it is taken for an attacker: those that nobody has looked at
/// yet, and those that were our mistakes as far as it says.
const HTTP2_RESETS: usize = 64;

/// Bounds of one connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionLimits {
    pub(crate) head: HeadLimits,
    pub(crate) patience: Patience,
    pub(crate) pace: Pace,
    /// For a client that stops reading.
    pub(crate) write_timeout: Duration,
    /// Requests at once, from HTTP/2 on.
    pub(crate) streams: u32,
}

/// Which version the client has agreed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Agreed {
    /// Any: its first bytes tell.
    Nothing,
    /// HTTP/1.
    Http1,
    /// HTTP/2.
    Http2,
}

/// Serves it to its end; `stopping` asks for an orderly one.
///
/// Its parts lie on the heap one by one: a future is as large as the largest part that it may come to,
/// and holds what it hands on to the next one twice.
pub(crate) async fn serve<S: Answers>(
    socket: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    agreed: Agreed,
    service: S,
    limits: ConnectionLimits,
    metrics: &Metrics,
    mut stopping: watch::Receiver<bool>,
) {
    let socket = Patient::new(socket, limits.write_timeout);
    let (http2, socket) = match agreed {
        Agreed::Http1 => (false, Prefixed::new(socket)),
        Agreed::Http2 => (true, Prefixed::new(socket)),
        Agreed::Nothing => {
            let telling = Box::pin(timeout(limits.patience.head, is_http2(socket)));
            let told = tokio::select! {
                told = telling => told,
                _ = stopping.wait_for(|stop| *stop) => return,
            };
            let Ok(Ok(told)) = told else {
                return;
            };
            told
        }
    };
    let service = Edge {
        service,
        link: Link::new(),
        pace: limits.pace,
        // The guard of HTTP/1 has looked at lines already.
        fields: http2.then_some(limits.head),
    };
    if http2 {
        let _counted = metrics.http.connected(Protocol::Http2);
        Box::pin(serve_http2(socket, service, limits, stopping)).await;
    } else {
        let _counted = metrics.http.connected(Protocol::Http1);
        Box::pin(serve_http1(socket, service, limits, stopping)).await;
    }
}

async fn serve_http1<S: Answers>(
    socket: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    service: Edge<S>,
    limits: ConnectionLimits,
    mut stopping: watch::Receiver<bool>,
) {
    let link = Arc::clone(&service.link);
    let guard = Guard::new(socket, limits.head, limits.patience, link);
    let mut serving = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            // The guard's, which says why.
            .header_read_timeout(None)
            .max_headers(limits.head.headers)
            .max_buf_size(LEAST_BUFFER.max(limits.head.bytes + 1))
            .serve_connection(TokioIo::new(guard), service)
    );
    let mut stopped = false;
    loop {
        tokio::select! {
            ended = serving.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "connection");
                }
                return;
            }
            _ = stopping.wait_for(|stop| *stop), if !stopped => {
                stopped = true;
                serving.as_mut().graceful_shutdown();
            }
        }
    }
}

async fn serve_http2<S: Answers>(
    socket: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    service: Edge<S>,
    limits: ConnectionLimits,
    mut stopping: watch::Receiver<bool>,
) {
    let link = Arc::clone(&service.link);
    let header_list = u32::try_from(limits.head.told()).unwrap_or(u32::MAX);
    let mut serving = pin!(
        http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_concurrent_streams(limits.streams)
            .max_header_list_size(header_list)
            .initial_stream_window_size(HTTP2_STREAM_WINDOW)
            .initial_connection_window_size(HTTP2_WINDOW)
            .max_send_buf_size(HTTP2_SEND_BUFFER)
            .max_pending_accept_reset_streams(HTTP2_RESETS)
            .max_local_error_reset_streams(HTTP2_RESETS)
            .keep_alive_interval(HTTP2_KEEP_ALIVE)
            .keep_alive_timeout(limits.patience.head)
            .serve_connection(TokioIo::new(socket), service)
    );
    let mut idle = pin!(link.idle(limits.patience.head, limits.patience.idle));
    let mut stopped = false;
    loop {
        tokio::select! {
            ended = serving.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "connection");
                }
                return;
            }
            () = &mut idle, if !stopped => {}
            _ = stopping.wait_for(|stop| *stop), if !stopped => {}
        }
        stopped = true;
        serving.as_mut().graceful_shutdown();
    }
}

/// Between hyper and the layers.
struct Edge<S> {
    service: S,
    link: Arc<Link>,
    pace: Pace,
    /// Bounds of heads that nobody has looked at.
    fields: Option<HeadLimits>,
}

impl<S: Answers> hyper::service::Service<Request<Incoming>> for Edge<S> {
    type Response = Response<OpenBody<CaughtBody<Body>>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let (open, refusal) = self.link.ask();
        let refuse = |limits: HeadLimits| limits.refuse_fields(request.headers());
        let refusal = refusal.or_else(|| self.fields.and_then(refuse));
        let waits = request.headers().contains_key(EXPECT);
        let lends = request.version() == Version::HTTP_2 && !waits;
        let mut unread = None;
        let mut request = request.map(|body| {
            let body = body::incoming(body, self.pace);
            if !lends {
                return body;
            }
            let (body, kept) = unread::lend(body);
            unread = Some(kept);
            body
        });
        if let Some(refusal) = refusal {
            request.extensions_mut().insert(refusal);
        }
        let reply = self.service.clone().oneshot(request);
        Box::pin(async move {
            let reply = reply.await?;
            if let Some(unread) = unread {
                unread.read_out().await;
            }
            Ok(reply.map(|body| OpenBody::new(CaughtBody::new(body), open)))
        })
    }
}

#[cfg(test)]
mod tests;

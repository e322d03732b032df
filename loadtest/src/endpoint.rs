//! A server, and the connections to it: kept open, taken by one request at a time, in HTTP/1.1 or HTTP/2,
//! with TLS or without.
//!
//! What must hold: there are no more connections than requests under way. A request is never sent twice,
//! but where its connection turned out to be closed before a byte of it was written.

mod connect;
mod connection;
mod reply;
mod shared;
mod target;
mod tls;

pub use target::{Target, TargetError, Url};

pub(crate) use reply::Reply;

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request};
use http_body_util::Full;

use connection::Connection;
use shared::Shared;
use tls::Tls;

/// Why a request got no answer's head, or not all of its body.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HttpError {
    /// No connection.
    #[error("cannot connect to {authority}: {reason}")]
    Connect {
        /// Host and port.
        authority: String,
        /// In words.
        reason: String,
    },
    /// The connection broke, or what came was no HTTP.
    #[error("{}", explained(.0))]
    Broken(#[from] hyper::Error),
    /// The request cannot be said in HTTP.
    #[error("the request cannot be built: {0}")]
    Request(#[from] http::Error),
    /// An answer without an end.
    #[error("a body of more than {0} bytes")]
    TooLong(usize),
}

/// An error with what caused it: hyper's own words alone say little.
fn explained(error: &hyper::Error) -> String {
    use std::error::Error;
    if error.is_incomplete_message() {
        return "the server closed the connection before its answer ended".to_owned();
    }
    if error.is_parse() {
        return format!(
            "what came is no HTTP/1.1 ({error}): does it speak TLS? Then ask with https://"
        );
    }
    match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

/// A server that was found, and its open connections.
pub(crate) struct Endpoint {
    target: Target,
    addresses: Vec<SocketAddr>,
    tls: Option<Tls>,
    headers: HeaderMap,
    idle: Mutex<Vec<Idle>>,
    shared: Shared,
}

struct Idle {
    connection: Connection,
    since: Instant,
}

/// Servers close connections that are idle (some after five seconds): one that was idle for longer than this
/// is not used, for a request on it could meet its end.
const LONGEST_IDLE: Duration = Duration::from_secs(3);

/// How long a look at whether the server is still there may take.
const LONGEST_LOOK: Duration = Duration::from_secs(2);

impl Endpoint {
    /// Finds the server's addresses. Does not connect yet.
    pub(crate) async fn find(target: Target) -> Result<Self, TargetError> {
        let tls = Tls::of(&target)?;
        let url = &target.url;
        let unknown = |reason: String| TargetError::Unknown {
            host: url.host().to_owned(),
            reason,
        };
        let found = tokio::net::lookup_host((url.host(), url.port())).await;
        let addresses: Vec<SocketAddr> = found.map_err(|e| unknown(e.to_string()))?.collect();
        if addresses.is_empty() {
            return Err(unknown("it has no address".to_owned()));
        }
        Ok(Self {
            headers: headers(&target)?,
            addresses,
            tls,
            idle: Mutex::default(),
            shared: Shared::default(),
            target,
        })
    }

    pub(crate) const fn target(&self) -> &Target {
        &self.target
    }

    /// Asks, and waits for the answer's head.
    pub(crate) async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        more: &HeaderMap,
    ) -> Result<Reply, HttpError> {
        let request = self.request(method, path, body, more)?;
        if self.target.http2 {
            return self.shared.ask(self, request).await;
        }
        let request = match self.take_idle() {
            Some(connection) => match connection.ask(request.clone()).await {
                // It was closed, and no byte of the request was sent.
                Err(HttpError::Broken(error)) if error.is_canceled() => request,
                answered => return answered,
            },
            None => request,
        };
        let stream = connect::connect(self).await?;
        Connection::over(stream).await?.ask(request).await
    }

    /// Whether nobody takes a connection. A server that only takes its time is not gone.
    pub(crate) async fn is_gone(&self) -> bool {
        let connected = tokio::time::timeout(LONGEST_LOOK, connect::connect(self)).await;
        matches!(connected, Ok(Err(_)))
    }

    /// Keeps a connection whose answer has been read to its end.
    pub(crate) fn keep(&self, reply: Reply) {
        let Some(connection) = reply.into_connection() else {
            return;
        };
        let since = Instant::now();
        self.idle().push(Idle { connection, since });
    }

    /// The one that was used last: it is the least likely to have been closed.
    fn take_idle(&self) -> Option<Connection> {
        loop {
            let Idle { connection, since } = self.idle().pop()?;
            if since.elapsed() < LONGEST_IDLE {
                if let Some(connection) = connection.still_open() {
                    return Some(connection);
                }
            } else {
                // Those below it have been idle for longer.
                self.idle().clear();
            }
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Idle>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        more: &HeaderMap,
    ) -> Result<Request<Full<Bytes>>, HttpError> {
        let url = &self.target.url;
        let path = format!("{}{path}", url.base());
        let uri = if self.target.http2 {
            format!("{}://{}{path}", url.scheme(), url.authority())
        } else {
            path
        };
        let mut request = Request::builder()
            .method(method)
            .uri(uri)
            .body(Full::new(body))?;
        *request.headers_mut() = self.headers.clone();
        request.headers_mut().extend(more.clone());
        Ok(request)
    }
}

/// What every request says.
fn headers(target: &Target) -> Result<HeaderMap, TargetError> {
    let mut headers = HeaderMap::new();
    let value = |name: &str, text: &str| {
        HeaderValue::from_str(text).map_err(|_| TargetError::Header(name.to_owned()))
    };
    if !target.http2 {
        headers.insert(HOST, value("host", &target.url.authority())?);
    }
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(
        ACCEPT,
        HeaderValue::from_static("text/event-stream, application/json"),
    );
    let program = concat!("tandem-loadtest/", env!("CARGO_PKG_VERSION"));
    headers.insert(USER_AGENT, HeaderValue::from_static(program));
    if let Some(key) = &target.key {
        let mut bearer = value("authorization", &format!("Bearer {key}"))?;
        bearer.set_sensitive(true);
        headers.insert(AUTHORIZATION, bearer);
    }
    for (name, text) in &target.headers {
        let name = http::HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| TargetError::Header(name.clone()))?;
        let text = value(name.as_str(), text)?;
        headers.insert(name, text);
    }
    Ok(headers)
}

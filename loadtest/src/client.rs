//! An HTTP client for OpenAI-compatible endpoints, one connection a request.

use std::net::SocketAddr;
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tandem_wire::task::{self, Task};
use tokio::net::TcpStream;

/// Why a request got no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens, or the connection broke.
    #[error("connection: {0}")]
    Connection(#[from] std::io::Error),
    /// What came back is no HTTP.
    #[error("HTTP: {0}")]
    Http(#[from] hyper::Error),
    /// The request could not be built.
    #[error("request: {0}")]
    Request(#[from] http::Error),
    /// What came back is no JSON.
    #[error("JSON: {0}")]
    Json(#[from] serde_json::Error),
}

/// A server's address.
#[derive(Clone, Copy, Debug)]
pub struct Client {
    address: SocketAddr,
}

/// A whole answer.
#[derive(Debug)]
pub struct Answer {
    /// HTTP status.
    pub status: StatusCode,
    /// HTTP headers.
    pub headers: HeaderMap,
    /// The body's bytes.
    pub body: Bytes,
}

impl Answer {
    /// The body as JSON.
    pub fn json(&self) -> Result<Value, ClientError> {
        Ok(serde_json::from_slice(&self.body)?)
    }
}

/// One server-sent event's data.
#[derive(Clone, Debug)]
pub struct Event {
    /// What follows `data: `.
    pub data: String,
    /// When its last byte had been read.
    pub at: Instant,
}

/// A streamed answer. Dropping it closes the connection.
#[derive(Debug)]
pub struct Events {
    /// HTTP status.
    pub status: StatusCode,
    /// HTTP headers.
    pub headers: HeaderMap,
    body: Incoming,
    buffer: Vec<u8>,
    _connection: Task<()>,
}

impl Client {
    /// A client of the server at `address`.
    #[must_use]
    pub const fn new(address: SocketAddr) -> Self {
        Self { address }
    }

    /// GETs a path.
    pub async fn get(&self, path: &str) -> Result<Answer, ClientError> {
        self.whole(Method::GET, path, Bytes::new()).await
    }

    /// POSTs JSON and waits for the whole answer.
    pub async fn post(&self, path: &str, body: &Value) -> Result<Answer, ClientError> {
        self.post_bytes(path, body.to_string().into()).await
    }

    /// POSTs any bytes as `application/json`.
    pub async fn post_bytes(&self, path: &str, body: Bytes) -> Result<Answer, ClientError> {
        self.whole(Method::POST, path, body).await
    }

    /// POSTs JSON and reads the answer event by event.
    pub async fn stream(&self, path: &str, body: &Value) -> Result<Events, ClientError> {
        let (response, connection) = self
            .send(Method::POST, path, body.to_string().into())
            .await?;
        let (parts, body) = response.into_parts();
        Ok(Events {
            status: parts.status,
            headers: parts.headers,
            body,
            buffer: Vec::new(),
            _connection: connection,
        })
    }

    async fn whole(&self, method: Method, path: &str, body: Bytes) -> Result<Answer, ClientError> {
        let (response, _connection) = self.send(method, path, body).await?;
        let (parts, body) = response.into_parts();
        let body = body.collect().await?.to_bytes();
        Ok(Answer {
            status: parts.status,
            headers: parts.headers,
            body,
        })
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<(http::Response<Incoming>, Task<()>), ClientError> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let connection = task::spawn("http connection", async move {
            // What breaks it shows in the request.
            let _ = connection.await;
        });
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", self.address.to_string())
            .header("content-type", "application/json")
            .body(Full::new(body))?;
        Ok((sender.send_request(request).await?, connection))
    }
}

impl Events {
    /// The next event's data, `[DONE]` among them; comments are skipped. `None` at the clean end.
    pub async fn next(&mut self) -> Result<Option<Event>, ClientError> {
        loop {
            if let Some(data) = self.take_event() {
                return Ok(Some(Event {
                    data,
                    at: Instant::now(),
                }));
            }
            let Some(frame) = self.body.frame().await else {
                return Ok(None);
            };
            if let Ok(data) = frame?.into_data() {
                self.buffer.extend_from_slice(&data);
            }
        }
    }

    /// Reads to the end without looking at events: the body of an answer that is no stream.
    pub async fn rest(mut self) -> Result<Bytes, ClientError> {
        let more = self.body.collect().await?.to_bytes();
        self.buffer.extend_from_slice(&more);
        Ok(self.buffer.into())
    }

    fn take_event(&mut self) -> Option<String> {
        loop {
            let end = self.buffer.windows(2).position(|w| w == b"\n\n")?;
            let event: Vec<u8> = self.buffer.drain(..end + 2).collect();
            let event = String::from_utf8_lossy(&event);
            let data: Vec<&str> = event
                .lines()
                .filter_map(|line| line.strip_prefix("data: "))
                .collect();
            if !data.is_empty() {
                return Some(data.join("\n"));
            }
        }
    }
}

//! An HTTP client that hides nothing.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tandem_wire::task::{Task, spawn};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::conformance::{check_event, check_reply};

const PATIENCE: Duration = Duration::from_secs(30);

/// A whole reply.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.body))
    }

    pub(crate) fn error(&self) -> Value {
        let error = self.json()["error"].clone();
        for member in ["message", "type", "param", "code"] {
            assert!(
                error.get(member).is_some(),
                "{member} is missing: {}",
                self.body
            );
        }
        error
    }

    pub(crate) fn code(&self) -> String {
        self.error()["code"].as_str().unwrap().to_owned()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

/// A reply whose body comes bit by bit. Dropping it closes the connection.
pub(crate) struct Stream {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    path: String,
    body: Incoming,
    buffer: String,
    _connection: Task<()>,
}

impl Stream {
    /// The next event's data; `None` at the clean end.
    pub(crate) async fn event(&mut self) -> Option<String> {
        loop {
            if let Some((event, rest)) = self.buffer.split_once("\n\n") {
                let event = event.to_owned();
                self.buffer = rest.to_owned();
                if !event.starts_with(':') {
                    return Some(self.data(&event));
                }
                continue;
            }
            let frame = timeout(PATIENCE, self.body.frame())
                .await
                .expect("an event in time");
            let Some(frame) = frame else {
                assert_eq!(self.buffer, "");
                return None;
            };
            let data = frame.expect("a clean end").into_data().unwrap();
            self.buffer
                .push_str(std::str::from_utf8(&data).expect("whole characters"));
        }
    }

    /// An event's data, which is of the form that it should have.
    fn data(&self, event: &str) -> String {
        let (name, data) = match event.split_once('\n') {
            Some((name, data)) => (Some(name.strip_prefix("event: ").unwrap()), data),
            None => (None, event),
        };
        let data = data
            .strip_prefix("data: ")
            .unwrap_or_else(|| panic!("{event}"));
        if data != "[DONE]" {
            let value: Value = serde_json::from_str(data).unwrap();
            check_event(&self.path, &value);
            assert!(name.is_none_or(|name| value["type"] == name), "{event}");
        }
        data.to_owned()
    }

    pub(crate) async fn json(&mut self) -> Value {
        serde_json::from_str(&self.event().await.expect("an event")).unwrap()
    }

    /// All events to the end.
    pub(crate) async fn rest(&mut self) -> Vec<String> {
        let mut events = Vec::new();
        while let Some(event) = self.event().await {
            events.push(event);
        }
        events
    }
}

pub(crate) async fn open(address: SocketAddr, request: Request<Full<Bytes>>) -> Stream {
    let path = request.uri().path().to_owned();
    let socket = TcpStream::connect(address).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(socket))
        .await
        .unwrap();
    let connection = spawn("client", async move {
        let _ = connection.await;
    });
    let sending = sender.send_request(request);
    let response = timeout(PATIENCE, sending)
        .await
        .expect("a reply in time")
        .unwrap();
    let (head, body) = response.into_parts();
    Stream {
        status: head.status,
        headers: head.headers,
        path,
        body,
        buffer: String::new(),
        _connection: connection,
    }
}

pub(crate) async fn send(address: SocketAddr, request: Request<Full<Bytes>>) -> Reply {
    let stream = open(address, request).await;
    let collecting = stream.body.collect();
    let body = timeout(PATIENCE, collecting)
        .await
        .expect("a body in time")
        .unwrap()
        .to_bytes();
    let reply = Reply {
        status: stream.status,
        headers: stream.headers,
        body: String::from_utf8(body.to_vec()).unwrap(),
    };
    if stream.path.starts_with("/v1/") && reply.header("content-type") == Some("application/json") {
        check_reply(&stream.path, reply.status, &reply.json());
    }
    reply
}

pub(crate) fn request(method: Method, path: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    Request::builder()
        .method(method)
        .uri(path)
        .header("host", "localhost")
        .header("content-type", "application/json")
        .body(Full::new(body.into()))
        .unwrap()
}

pub(crate) async fn get(address: SocketAddr, path: &str) -> Reply {
    send(address, request(Method::GET, path, Bytes::new())).await
}

pub(crate) async fn post(address: SocketAddr, path: &str, body: &Value) -> Reply {
    send(address, request(Method::POST, path, body.to_string())).await
}

pub(crate) async fn post_stream(address: SocketAddr, path: &str, body: &Value) -> Stream {
    open(address, request(Method::POST, path, body.to_string())).await
}

/// A connection of HTTP/2, for as long as the task is kept.
pub(crate) async fn http2(address: SocketAddr) -> (SendRequest<String>, Task<()>) {
    let socket = TcpStream::connect(address).await.unwrap();
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(socket))
            .await
            .unwrap();
    let connection = spawn("client", async move {
        let _ = connection.await;
    });
    (sender, connection)
}

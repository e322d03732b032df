//! HTTP/3, by a client of another making than the server's streams.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use h3::client::{RequestStream, SendRequest};
use h3::error::Code;
use h3_quinn::{BidiStream, OpenStreams};
use http::{Method, Request, Response};
use quinn::crypto::rustls::QuicClientConfig;
use serde_json::{Value, json};
use tandem_config::GatewayConfig;
use tandem_wire::proto;
use tandem_wire::proto::FinishReason;
use tandem_wire::task::{Task, spawn};
use tempfile::TempDir;
use tokio::time::timeout;

use crate::harness::{CHAT, Gateway, chat, config, eventually, pki, with};
use crate::raw::Raw;
use crate::scripted_worker::{ScriptedWorker, welcome};
use crate::tls_client::Site;

const PATIENCE: Duration = Duration::from_secs(20);

type Stream = RequestStream<BidiStream<Bytes>, Bytes>;

struct Client {
    sender: SendRequest<OpenStreams, Bytes>,
    endpoint: quinn::Endpoint,
    quic: quinn::Connection,
    _connection: Task<()>,
}

impl Client {
    async fn connect(site: &Site, address: SocketAddr) -> Self {
        let tls = QuicClientConfig::try_from(site.client(&["h3"], false)).unwrap();
        let local = SocketAddr::from(([127, 0, 0, 1], 0));
        let endpoint = quinn::Endpoint::client(local).unwrap();
        let config = quinn::ClientConfig::new(Arc::new(tls));
        let connecting = endpoint.connect_with(config, address, "localhost").unwrap();
        let quic = connecting.await.unwrap();
        let connection = h3_quinn::Connection::new(quic.clone());
        let (mut driver, sender) = h3::client::new(connection).await.unwrap();
        let _connection = spawn("client", async move {
            let _ = std::future::poll_fn(|context| driver.poll_close(context)).await;
        });
        Self {
            sender,
            endpoint,
            quic,
            _connection,
        }
    }

    /// Sends a request and its body, to their end.
    async fn ask(&mut self, request: Request<()>, body: impl Into<Bytes>) -> Stream {
        let mut stream = self.sender.send_request(request).await.unwrap();
        let body = body.into();
        if !body.is_empty() {
            // Fails where the reply came first.
            let _ = stream.send_data(body).await;
        }
        let _ = stream.finish().await;
        stream
    }

    async fn get(&mut self, path: &str) -> (Response<()>, String) {
        let mut stream = self.ask(request(Method::GET, path), "").await;
        whole(&mut stream).await
    }
}

fn request(method: Method, path: &str) -> Request<()> {
    let uri = format!("https://localhost{path}");
    Request::builder().method(method).uri(uri).body(()).unwrap()
}

async fn whole(stream: &mut Stream) -> (Response<()>, String) {
    let reading = async {
        let head = stream.recv_response().await.unwrap();
        let mut body = Vec::new();
        while let Some(mut data) = stream.recv_data().await.unwrap() {
            body.extend_from_slice(&data.copy_to_bytes(data.remaining()));
        }
        (head, String::from_utf8(body).unwrap())
    };
    timeout(PATIENCE, reading).await.expect("a reply in time")
}

/// Reads up to some text.
async fn until(stream: &mut Stream, end: &str) {
    let mut text = String::new();
    while !text.contains(end) {
        let data = timeout(PATIENCE, stream.recv_data())
            .await
            .expect("in time");
        let mut data = data.unwrap().expect("more");
        let data = data.copy_to_bytes(data.remaining());
        text.push_str(std::str::from_utf8(&data).unwrap());
    }
}

fn code(body: &str) -> String {
    let json: Value = serde_json::from_str(body).unwrap_or_else(|e| panic!("{e}: {body}"));
    json["error"]["code"].as_str().unwrap().to_owned()
}

async fn start(
    change: impl FnOnce(&mut GatewayConfig),
) -> (Site, TempDir, Gateway, ScriptedWorker, Client) {
    let (site, pki) = (Site::new(), pki());
    let worker = ScriptedWorker::start(pki.path(), welcome("both-0", proto::Role::Both));
    let mut config = config(&pki, vec![worker.address]);
    config.tls = Some(site.config());
    config.http.http3 = true;
    change(&mut config);
    let gateway = Gateway::start(config).await;
    let mut client = Client::connect(&site, gateway.address).await;
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while client.get("/ready").await.0.status() != 200 {
        assert!(tokio::time::Instant::now() < deadline, "ready in time");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    (site, pki, gateway, worker, client)
}

fn streamed() -> String {
    with(chat(), json!({"stream": true})).to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_is_served_and_clients_of_tcp_are_told_of_it() {
    let (site, _pki, gateway, mut worker, mut client) = start(|_| {}).await;
    let (head, body) = client.get("/health").await;
    assert_eq!(head.status(), 200);
    assert_eq!(body, r#"{"status":"ok"}"#);
    assert_eq!(head.headers()["x-content-type-options"], "nosniff");
    assert_eq!(head.headers()["content-length"], "15");
    assert!(head.headers().contains_key("x-request-id"));
    assert!(!head.headers().contains_key("alt-svc"));
    let mut stream = client.ask(request(Method::HEAD, "/health"), "").await;
    assert_eq!(whole(&mut stream).await.1, "");
    assert_eq!(code(&client.get("/nowhere").await.1), "unknown_url");

    let mut raw = Raw::over(site.connect(gateway.address, &[], false).await.unwrap());
    raw.write("GET /health HTTP/1.1\r\nhost: g\r\n\r\n").await;
    let port = gateway.address.port();
    let alternative = format!("h3=\":{port}\"; ma=3600");
    assert_eq!(
        raw.reply(false).await.header("alt-svc"),
        Some(alternative.as_str())
    );

    let mut stream = client.ask(request(Method::POST, CHAT), streamed()).await;
    let mut call = worker.call().await;
    call.start().await;
    call.token(1, "first").await;
    let head = stream.recv_response().await.unwrap();
    assert_eq!(head.headers()["content-type"], "text/event-stream");
    until(&mut stream, "first").await;
    call.token(2, "second").await;
    until(&mut stream, "second").await;
    call.finish("", FinishReason::Stop).await;
    until(&mut stream, "[DONE]\n\n").await;
    assert!(stream.recv_data().await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_wants_no_more_cancels_its_request_at_every_stage() {
    let (site, _pki, gateway, mut worker, mut client) = start(|_| {}).await;
    for stage in 0..3 {
        let mut stream = client.ask(request(Method::POST, CHAT), streamed()).await;
        let mut call = worker.call().await;
        if stage > 0 {
            call.start().await;
        }
        if stage > 1 {
            call.token(1, "first").await;
            stream.recv_response().await.unwrap();
            until(&mut stream, "first").await;
            // Says so to the server; the client's own call panics while it reads.
            drop(stream);
        } else {
            stream.stop_sending(Code::H3_REQUEST_CANCELLED);
        }
        call.cancelled().await;
    }
    // Another way to leave.
    let mut leaving = Client::connect(&site, gateway.address).await;
    let stream = leaving
        .ask(request(Method::POST, CHAT), chat().to_string())
        .await;
    let mut call = worker.call().await;
    call.start().await;
    leaving.endpoint.close(0_u32.into(), b"");
    call.cancelled().await;
    drop(stream);
    let (head, _) = client.get("/health").await;
    assert_eq!(head.status(), 200);
    eventually("at rest", || async {
        let status = status(&site, &gateway).await;
        status["gateway"]["in_flight"] == 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_takes_back_what_it_asks_for_is_sent_away() {
    let (site, _pki, gateway, _worker, mut client) = start(|_| {}).await;
    let flood = async {
        // Fails once it is sent away.
        while let Ok(mut stream) = client
            .sender
            .send_request(request(Method::POST, CHAT))
            .await
        {
            stream.stop_sending(Code::H3_REQUEST_CANCELLED);
            stream.stop_stream(Code::H3_REQUEST_CANCELLED);
        }
    };
    timeout(PATIENCE, flood).await.expect("an end in time");
    let end = timeout(PATIENCE, client.quic.closed()).await.unwrap();
    match end {
        quinn::ConnectionError::ApplicationClosed(close) => {
            assert_eq!(close.error_code, 0x107_u32.into(), "too much for nothing");
        }
        other => panic!("{other}"),
    }
    let mut other = Client::connect(&site, gateway.address).await;
    assert_eq!(other.get("/health").await.0.status(), 200);
    eventually("at rest", || async {
        let status = status(&site, &gateway).await;
        status["gateway"]["in_flight"] == 0
    })
    .await;
}

async fn status(site: &Site, gateway: &Gateway) -> Value {
    let mut raw = Raw::over(site.connect(gateway.address, &[], false).await.unwrap());
    raw.write("GET /tandem/status HTTP/1.1\r\nhost: g\r\n\r\n")
        .await;
    serde_json::from_str(&raw.reply(false).await.body).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heads_have_the_same_bounds() {
    let (_site, _pki, _gateway, _worker, mut client) = start(|_| {}).await;
    let (head, body) = client.get(&format!("/{}", "x".repeat(9000))).await;
    assert_eq!(
        (head.status().as_u16(), code(&body).as_str()),
        (414, "uri_too_long")
    );
    let mut large = request(Method::GET, "/health");
    large
        .headers_mut()
        .insert("x", "y".repeat(40_000).parse().unwrap());
    let mut stream = client.ask(large, "").await;
    let (head, body) = whole(&mut stream).await;
    assert_eq!(
        (head.status().as_u16(), code(&body).as_str()),
        (431, "headers_too_large")
    );

    assert_eq!(client.get("/health").await.0.status(), 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_have_the_same_bounds() {
    let (_site, _pki, _gateway, _worker, mut client) = start(|config| {
        config.header_timeout = Duration::from_secs(1);
    })
    .await;
    let mut announced = request(Method::POST, CHAT);
    announced
        .headers_mut()
        .insert("content-length", "5".parse().unwrap());
    let mut stream = client.ask(announced, "{}").await;
    let (head, body) = whole(&mut stream).await;
    assert_eq!(
        (head.status().as_u16(), code(&body).as_str()),
        (400, "invalid_http")
    );

    // Whatever pieces it comes in.
    let mut stream = client
        .sender
        .send_request(request(Method::POST, CHAT))
        .await
        .unwrap();
    for _ in 0..2000 {
        stream
            .send_data(Bytes::from_static(b"          "))
            .await
            .unwrap();
    }
    stream.finish().await.unwrap();
    let (head, body) = whole(&mut stream).await;
    assert_eq!(
        (head.status().as_u16(), code(&body).as_str()),
        (400, "invalid_json")
    );

    let mut stream = client
        .ask(request(Method::POST, CHAT), vec![b' '; 4 << 20])
        .await;
    let (head, body) = whole(&mut stream).await;
    assert_eq!(
        (head.status().as_u16(), code(&body).as_str()),
        (413, "request_too_large")
    );

    let mut stream = client
        .sender
        .send_request(request(Method::POST, CHAT))
        .await
        .unwrap();
    stream.send_data(Bytes::from_static(b"{")).await.unwrap();
    let (head, body) = whole(&mut stream).await;
    assert_eq!(
        (head.status().as_u16(), code(&body).as_str()),
        (408, "incomplete_body")
    );
    assert_eq!(client.get("/health").await.0.status(), 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_stops_lets_answers_end_and_takes_no_more_requests() {
    let (_site, _pki, gateway, mut worker, mut client) = start(|config| {
        config.drain_timeout = Duration::from_secs(10);
    })
    .await;
    let mut stream = client.ask(request(Method::POST, CHAT), streamed()).await;
    let mut call = worker.call().await;
    call.start().await;
    call.token(1, "first").await;
    stream.recv_response().await.unwrap();
    until(&mut stream, "first").await;
    let stopping = spawn("stop", gateway.stop());
    // The client is told, and does not even ask.
    let refused = async {
        while let Ok(mut late) = client
            .sender
            .send_request(request(Method::GET, "/health"))
            .await
        {
            let _ = late.finish().await;
            let _ = late.recv_response().await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, refused).await.expect("a GOAWAY in time");
    call.token(2, "second").await;
    until(&mut stream, "second").await;
    call.finish("", FinishReason::Stop).await;
    until(&mut stream, "[DONE]\n\n").await;
    let took = stopping.join().await.unwrap();
    assert!(took < Duration::from_secs(8), "{took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_certificates_are_seen_over_udp_too() {
    let (site, _pki, gateway, _worker, _client) = start(|_| {}).await;
    let new = site.renew();
    let seen = || async {
        let tls = QuicClientConfig::try_from(site.client(&["h3"], false)).unwrap();
        let endpoint = quinn::Endpoint::client(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let config = quinn::ClientConfig::new(Arc::new(tls));
        let connecting = endpoint
            .connect_with(config, gateway.address, "localhost")
            .unwrap();
        let chain = connecting.await.unwrap().peer_identity().unwrap();
        let chain = chain
            .downcast::<Vec<rustls_pki_types::CertificateDer<'static>>>()
            .unwrap();
        chain[0].clone()
    };
    eventually("renewed", || async { seen().await == new }).await;
}

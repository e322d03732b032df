//! HTTP/2: its bounds, and what streams of one connection cost each other.

use std::time::Duration;

use http_body_util::BodyExt;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use tandem_config::GatewayConfig;
use tandem_wire::proto::FinishReason;
use tandem_wire::task::spawn;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::client::{get, http2};
use crate::harness::{CHAT, Gateway, chat, with, with_one_worker, with_one_worker_and};

const PATIENCE: Duration = Duration::from_secs(20);
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// `GET /health`, whole.
fn health(stream: u32) -> Vec<u8> {
    let block = [&[0x82, 0x86, 0x41, 1, b'g', 0x04, 7], b"/health".as_slice()].concat();
    frame(HEADERS, 5, stream, &block)
}

/// A connection by prior knowledge, frame by frame.
struct Frames(TcpStream);

impl Frames {
    async fn connect(gateway: &Gateway) -> Self {
        let mut socket = TcpStream::connect(gateway.address).await.unwrap();
        socket
            .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            .await
            .unwrap();
        socket.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
        Self(socket)
    }

    /// The next frame of that kind; `None` where the connection ends before.
    async fn next(&mut self, kind: u8) -> Option<Vec<u8>> {
        let reading = async {
            loop {
                let mut head = [0; 9];
                self.0.read_exact(&mut head).await.ok()?;
                let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
                let mut payload = vec![0; length as usize];
                self.0.read_exact(&mut payload).await.ok()?;
                let is_ack = kind == SETTINGS && head[4] & 1 == 1;
                if head[3] == kind && !is_ack {
                    return Some(payload);
                }
            }
        };
        timeout(PATIENCE, reading).await.expect("a frame in time")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_is_told_its_bounds() {
    let (_pki, gateway, _worker) = with_one_worker_and(|config: &mut GatewayConfig| {
        config.http.max_streams = 17;
    })
    .await;
    let mut frames = Frames::connect(&gateway).await;
    let settings = frames.next(SETTINGS).await.unwrap();
    let setting = |id: u16| {
        settings.chunks(6).find_map(|entry| {
            let found = u16::from_be_bytes([entry[0], entry[1]]) == id;
            found.then(|| u32::from_be_bytes([entry[2], entry[3], entry[4], entry[5]]))
        })
    };
    assert_eq!(setting(3), Some(17), "streams");
    assert_eq!(setting(4), Some(128 << 10), "window");
    assert_eq!(setting(6), Some(64 << 10), "headers, twice what is taken");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_resets_what_it_asks_for_is_sent_away() {
    let (_pki, gateway, _worker) = with_one_worker().await;
    let mut frames = Frames::connect(&gateway).await;
    let mut flood = Vec::new();
    for n in 0..2000 {
        let stream = 2 * n + 1;
        flood.extend(health(stream));
        flood.extend(frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()));
    }
    // Fails where it is sent away before it has written all.
    let _ = frames.0.write_all(&flood).await;
    let goaway = frames.next(GOAWAY).await;
    if let Some(payload) = goaway {
        assert_eq!(payload[4..8], 11_u32.to_be_bytes(), "calm down");
    }
    assert_eq!(get(gateway.address, "/health").await.status, 200);
    gateway.at_rest().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heads_over_the_bounds_are_refused_and_the_connection_goes_on() {
    let (_pki, gateway, _worker) = with_one_worker().await;
    let (mut sender, _connection) = http2(gateway.address).await;
    let uri = |path: &str| format!("http://{}{path}", gateway.address);
    let get = |path: &str| http::Request::get(uri(path)).body(String::new()).unwrap();
    let mut large = get("/health");
    for n in 0..50 {
        let name: http::HeaderName = format!("x-{n}").parse().unwrap();
        large
            .headers_mut()
            .insert(name, "y".repeat(1000).parse().unwrap());
    }
    let reply = sender.send_request(large).await.unwrap();
    assert_eq!(reply.status(), 431);
    let body = reply.into_body().collect().await.unwrap().to_bytes();
    let error: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(error["error"]["code"], "headers_too_large");
    let mut larger = get("/health");
    larger
        .headers_mut()
        .insert("x", "y".repeat(70_000).parse().unwrap());
    let reply = sender.send_request(larger).await.unwrap();
    assert_eq!(reply.status(), 431, "the library's own, without a body");
    let mut many = get("/health");
    for n in 0..101 {
        let name: http::HeaderName = format!("x-{n}").parse().unwrap();
        many.headers_mut().insert(name, "y".parse().unwrap());
    }
    assert_eq!(sender.send_request(many).await.unwrap().status(), 431);
    let long = get(&format!("/{}", "x".repeat(9000)));
    assert_eq!(sender.send_request(long).await.unwrap().status(), 414);
    assert_eq!(
        sender.send_request(get("/health")).await.unwrap().status(),
        200
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_nobody_reads_slows_no_other_of_its_connection() {
    let (_pki, gateway, mut worker) = with_one_worker().await;
    let socket = TcpStream::connect(gateway.address).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(16 << 10)
        .handshake(TokioIo::new(socket))
        .await
        .unwrap();
    let _connection = spawn("client", connection);
    let body = with(chat(), json!({"stream": true})).to_string();
    let mut ask = || {
        let uri = format!("http://{}{CHAT}", gateway.address);
        sender.send_request(http::Request::post(uri).body(body.clone()).unwrap())
    };
    let begin = async {
        let mut call = worker.call().await;
        call.start().await;
        call.token(1, "a").await;
        call
    };
    let (unread, mut stalled) = tokio::join!(ask(), begin);
    let _unread = unread.unwrap();
    let pour = spawn("pour", async move {
        let text = "x".repeat(1000);
        while stalled.try_say_token(2, &text).await {}
    });
    for _ in 0..5 {
        let serve = async {
            let mut call = worker.call().await;
            call.start().await;
            for n in 0..200 {
                call.token(n, "some words ").await;
            }
            call.finish("", FinishReason::Stop).await;
        };
        let read = async { ask().await.unwrap().into_body().collect().await.unwrap() };
        let both = async { tokio::join!(read, serve).0 };
        let events = timeout(PATIENCE, both).await.expect("an answer in time");
        assert!(events.to_bytes().ends_with(b"data: [DONE]\n\n"));
    }
    drop(pour);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_connection_is_closed_in_good_order() {
    let (_pki, gateway, _worker) = with_one_worker_and(|config: &mut GatewayConfig| {
        config.http.idle_timeout = Duration::from_millis(200);
    })
    .await;
    let mut frames = Frames::connect(&gateway).await;
    frames.0.write_all(&health(1)).await.unwrap();
    assert!(frames.next(HEADERS).await.is_some());
    let goaway = frames.next(GOAWAY).await.unwrap();
    assert_eq!(goaway[4..8], 0_u32.to_be_bytes());
}

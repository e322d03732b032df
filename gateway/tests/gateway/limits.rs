//! Bounds of bodies, connections and starts.

use std::time::Duration;

use serde_json::json;
use tandem_gateway::{StartError, run};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use crate::client::{get, post};
use crate::harness::{CHAT, Gateway, chat, config, pki, with, with_one_worker};

/// Sends bytes as they are, and reads until the connection ends or falls silent.
async fn raw(address: std::net::SocketAddr, bytes: &[u8]) -> String {
    let mut socket = TcpStream::connect(address).await.unwrap();
    socket.write_all(bytes).await.unwrap();
    let mut reply = Vec::new();
    let mut chunk = [0; 4096];
    while let Ok(Ok(1..)) = timeout(Duration::from_secs(1), async {
        let n = socket.read(&mut chunk).await?;
        reply.extend_from_slice(&chunk[..n]);
        std::io::Result::Ok(n)
    })
    .await
    {}
    String::from_utf8(reply).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_over_the_limit_is_refused_however_it_comes() {
    let (_pki, gateway, _worker) = with_one_worker().await;
    let messages = json!([{"role": "user", "content": "x".repeat(4 << 20)}]);
    let reply = post(
        gateway.address,
        CHAT,
        &with(chat(), json!({"messages": messages})),
    )
    .await;
    assert_eq!(
        (reply.status.as_u16(), reply.code()),
        (413, "request_too_large".into())
    );

    let head = format!("POST {CHAT} HTTP/1.1\r\nhost: g\r\n");
    let mut chunked = format!("{head}transfer-encoding: chunked\r\n\r\n").into_bytes();
    for _ in 0..33 {
        chunked.extend_from_slice(b"8000\r\n");
        chunked.extend_from_slice(&[b' '; 0x8000]);
        chunked.extend_from_slice(b"\r\n");
    }
    chunked.extend_from_slice(b"0\r\n\r\n");
    let reply = raw(gateway.address, &chunked).await;
    assert!(reply.starts_with("HTTP/1.1 413"), "{reply}");
    assert!(reply.contains("\"code\":\"request_too_large\""), "{reply}");

    // A client that waits for a go-ahead gets the refusal in its place.
    let waiting = format!("{head}content-length: 99999999\r\nexpect: 100-continue\r\n\r\n");
    let started = Instant::now();
    let reply = raw(gateway.address, waiting.as_bytes()).await;
    assert!(reply.starts_with("HTTP/1.1 413"), "{reply}");
    assert!(started.elapsed() < Duration::from_secs(3));
    gateway.at_rest().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_breaks_off_leaves_nothing_behind() {
    let (_pki, gateway, _worker) = with_one_worker().await;
    let mut socket = TcpStream::connect(gateway.address).await.unwrap();
    let head = format!("POST {CHAT} HTTP/1.1\r\nhost: g\r\ncontent-length: 100\r\n\r\n{{");
    socket.write_all(head.as_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(gateway.status().await["gateway"]["in_flight"], 1);
    drop(socket);
    gateway.at_rest().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_says_nothing_is_shown_the_door() {
    let (_pki, gateway, _worker) = with_one_worker().await;
    for words in ["", "PRI", "POST /v1/chat", "GET /health HTTP/1.1\r\nhost:"] {
        let mut socket = TcpStream::connect(gateway.address).await.unwrap();
        socket.write_all(words.as_bytes()).await.unwrap();
        let mut rest = Vec::new();
        let ended = timeout(Duration::from_secs(5), socket.read_to_end(&mut rest)).await;
        assert!(ended.is_ok(), "still open after {words:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_workers_everybody_is_told_when_to_come_back() {
    let pki = pki();
    let gateway = Gateway::start(config(&pki, vec![])).await;
    let reply = post(gateway.address, CHAT, &chat()).await;
    assert_eq!(
        (reply.status.as_u16(), reply.code()),
        (503, "no_worker".into())
    );
    assert_eq!(reply.header("retry-after"), Some("1"));
    let reply = get(gateway.address, "/ready").await;
    assert_eq!(reply.status, 503);
    assert_eq!(reply.json()["missing"], json!(["prefill", "decode"]));
    assert!(reply.header("retry-after").is_some());
    assert_eq!(get(gateway.address, "/health").await.status, 200);
    // What is wrong with the request is told first.
    let reply = post(
        gateway.address,
        CHAT,
        &with(chat(), json!({"max_tokens": 0})),
    )
    .await;
    assert_eq!(reply.status, 400);
    assert!(gateway.stop().await < Duration::from_secs(2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_keeps_a_gateway_from_starting_is_one_line() {
    let pki = pki();
    let gateway = Gateway::start(config(&pki, vec![])).await;
    let start = |change: fn(&mut tandem_config::GatewayConfig)| {
        let mut config = config(&pki, vec![]);
        config.listen = gateway.address;
        change(&mut config);
        run(config, std::future::pending(), |_| panic!("it started"))
    };
    let error = start(|_| {}).await.unwrap_err();
    assert!(matches!(error, StartError::Listen { .. }));
    assert!(
        error.to_string().contains(&gateway.address.to_string()),
        "{error}"
    );
    let error = start(|config| config.tokenizer = "/nowhere.gguf".into())
        .await
        .unwrap_err();
    assert!(matches!(error, StartError::Model(_)));
    assert!(error.to_string().contains("/nowhere.gguf"), "{error}");
    let error = start(|config| config.identity.name = "nobody".into())
        .await
        .unwrap_err();
    assert!(matches!(error, StartError::Identity(_)));
    assert!(!error.to_string().contains('\n'));
}

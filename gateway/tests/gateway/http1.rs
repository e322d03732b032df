//! HTTP/1 byte by byte: what is served, what is refused, and how long anybody waits for the rest.

use std::io::Write;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;
use tandem_config::GatewayConfig;
use tandem_wire::proto::FinishReason;
use tandem_wire::task::spawn;

use crate::client::{post, request, send};
use crate::harness::{CHAT, chat, with, with_one_worker, with_one_worker_and};
use crate::raw::Raw;

fn head(path: &str, headers: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nhost: g\r\n{headers}\r\n")
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_connection_serves_requests_one_after_the_other_also_when_sent_at_once() {
    let (_pki, gateway, _worker) = with_one_worker().await;
    let mut raw = Raw::connect(gateway.address).await;
    let health = "GET /health HTTP/1.1\r\nhost: g\r\n\r\n";
    for _ in 0..3 {
        raw.write(health).await;
        assert_eq!(raw.reply(false).await.status, 200);
    }
    let ready = "HEAD /ready HTTP/1.1\r\nhost: g\r\n\r\n";
    let wrong = format!("{}{{", head(CHAT, "content-length: 1\r\n"));
    let chunked = format!(
        "{}1\r\n{{\r\n0\r\nx-sum: 1\r\n\r\n",
        head(CHAT, "transfer-encoding: chunked\r\n")
    );
    raw.write([health, ready, &wrong, &chunked, "\r\n", health].concat())
        .await;
    assert_eq!(raw.reply(false).await.status, 200);
    let reply = raw.reply(true).await;
    assert_eq!(reply.status, 200);
    assert_ne!(reply.header("content-length"), Some("0"));
    assert_eq!(raw.reply(false).await.code(), "invalid_json");
    assert_eq!(raw.reply(false).await.code(), "invalid_json");
    assert_eq!(raw.reply(false).await.status, 200);
    assert_eq!(reply.header("server"), None);
    assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
}

/// Bytes that are no request, and what their sender is told.
fn no_requests() -> Vec<(String, u16, &'static str)> {
    let long = "x".repeat(40_000);
    vec![
        ("\x16\x03\x01\x02\0\x01\0".to_owned(), 400, "invalid_http"),
        ("GET / HTTP/1.1\n\n".to_owned(), 400, "invalid_http"),
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), 400, "invalid_http"),
        (
            "GET / HTTP/3.0\r\n\r\n".to_owned(),
            505,
            "http_version_not_supported",
        ),
        (format!("GET /{long} HTTP/1.1\r\n"), 414, "uri_too_long"),
        (
            head(CHAT, &format!("x: {long}\r\n")),
            431,
            "headers_too_large",
        ),
        (
            head(CHAT, &"x: y\r\n".repeat(101)),
            431,
            "headers_too_large",
        ),
        (head(CHAT, "x : y\r\n"), 400, "invalid_http"),
        (head(CHAT, "x: y\r\n z\r\n"), 400, "invalid_http"),
        (
            head(CHAT, "content-length: 1\r\ntransfer-encoding: chunked\r\n"),
            400,
            "invalid_http",
        ),
        (
            head(CHAT, "content-length: 1\r\ncontent-length: 2\r\n"),
            400,
            "invalid_http",
        ),
        (
            head(CHAT, "transfer-encoding: gzip, chunked\r\n"),
            400,
            "invalid_http",
        ),
        (
            head(CHAT, "transfer-encoding: chunked\r\n") + "zz\r\n",
            400,
            "invalid_chunk",
        ),
        (
            head(CHAT, "transfer-encoding: chunked\r\n") + "1\r\nab",
            400,
            "invalid_chunk",
        ),
        (
            head(CHAT, "transfer-encoding: chunked\r\n") + "1;\x01\r\n",
            400,
            "invalid_chunk",
        ),
        (
            head(CHAT, "content-length: 1\r\nexpect: more\r\n"),
            417,
            "expectation_failed",
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_request_is_told_in_json_behind_the_replies_before_it() {
    let (_pki, gateway, _worker) = with_one_worker().await;
    let health = "GET /health HTTP/1.1\r\nhost: g\r\n\r\n";
    for (bytes, status, code) in no_requests() {
        let mut raw = Raw::connect(gateway.address).await;
        raw.write(health).await;
        // What follows may never be taken for a request.
        raw.write(bytes.clone() + health).await;
        assert_eq!(raw.reply(false).await.status, 200);
        let reply = raw.reply(false).await;
        let shown: String = bytes.chars().take(200).collect();
        assert_eq!(
            (reply.status, reply.code().as_str()),
            (status, code),
            "{shown:?}"
        );
        assert!(reply.header("x-request-id").is_some());
        if status != 417 {
            assert_eq!(raw.rest().await, "", "{shown:?}");
        }
    }
    gateway.at_rest().await;
    let total = r#"tandem_requests_total{endpoint="unknown",code="431"}"#;
    assert_eq!(gateway.metric(total).await, Some(2.0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_of_http_1_0_gets_a_stream_that_ends_with_its_connection() {
    let (_pki, gateway, mut worker) = with_one_worker().await;
    let body = with(chat(), json!({"stream": true})).to_string();
    let serve = async {
        let mut call = worker.call().await;
        call.start().await;
        call.token(1, "a").await;
        call.finish("", FinishReason::Stop).await;
    };
    let ask = async {
        let mut raw = Raw::connect(gateway.address).await;
        let length = body.len();
        let head = format!("POST {CHAT} HTTP/1.0\r\ncontent-length: {length}\r\n\r\n");
        raw.write(head + &body).await;
        let head = raw.until("\r\n\r\n").await.to_lowercase();
        (head, raw.rest().await)
    };
    let ((head, events), ()) = tokio::join!(ask, serve);
    assert!(head.contains(" 200 "), "{head}");
    for never in [
        "transfer-encoding",
        "content-length",
        "content-encoding",
        "keep-alive",
    ] {
        assert!(!head.contains(never), "{head}");
    }
    assert!(events.starts_with("data: {"), "{events}");
    assert!(events.ends_with("data: [DONE]\n\n"), "{events}");

    let mut raw = Raw::connect(gateway.address).await;
    raw.write("GET /health HTTP/1.0\r\nconnection: keep-alive\r\n\r\n")
        .await;
    let reply = raw.reply(false).await;
    assert_eq!(reply.header("connection"), Some("keep-alive"));
    raw.write("GET /health HTTP/1.0\r\n\r\n").await;
    assert_eq!(raw.reply(false).await.status, 200);
    assert_eq!(raw.rest().await, "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_is_never_compressed_whatever_the_client_takes() {
    let (_pki, gateway, mut worker) = with_one_worker().await;
    let body = with(chat(), json!({"stream": true})).to_string();
    let serve = async {
        let mut call = worker.call().await;
        call.start().await;
        call.token(1, "a").await;
        call.finish("", FinishReason::Stop).await;
    };
    let ask = async {
        let mut raw = Raw::connect(gateway.address).await;
        let headers = format!(
            "accept-encoding: gzip, br\r\nconnection: close\r\ncontent-length: {}\r\n",
            body.len()
        );
        raw.write(head(CHAT, &headers) + &body).await;
        raw.rest().await.to_lowercase()
    };
    let (reply, ()) = tokio::join!(ask, serve);
    assert!(
        reply.contains("\r\ntransfer-encoding: chunked\r\n"),
        "{reply}"
    );
    assert!(!reply.contains("content-encoding"), "{reply}");
    assert!(
        reply.contains("\ndata: [done]\n\n") && reply.ends_with("\r\n0\r\n\r\n"),
        "{reply}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gzipped_body_is_read_and_one_that_is_none_or_too_large_is_refused() {
    let (_pki, gateway, mut worker) = with_one_worker().await;
    let ask = |encoding: &'static str, body: Vec<u8>| {
        let mut request = request(http::Method::POST, CHAT, body);
        let value = encoding.parse().unwrap();
        request.headers_mut().insert("content-encoding", value);
        send(gateway.address, request)
    };
    for encoding in ["gzip", "x-gzip", "GZIP", "identity, gzip"] {
        let serve = async {
            let mut call = worker.call().await;
            call.start().await;
            call.finish("a", FinishReason::Stop).await;
        };
        let (reply, ()) = tokio::join!(ask(encoding, gzip(chat().to_string().as_bytes())), serve);
        assert_eq!(reply.status, 200, "{encoding} {}", reply.body);
    }
    let bomb = gzip(&vec![b' '; 8 << 20]);
    assert!(bomb.len() < 32 << 10);
    for (encoding, body, status, code) in [
        ("gzip", bomb, 413, "request_too_large"),
        (
            "gzip",
            chat().to_string().into_bytes(),
            400,
            "invalid_encoding",
        ),
        ("gzip", gzip(b"{}")[..12].to_vec(), 400, "invalid_encoding"),
        ("br", b"{}".to_vec(), 415, "unsupported_encoding"),
        ("deflate", b"{}".to_vec(), 415, "unsupported_encoding"),
        ("gzip, gzip", b"{}".to_vec(), 415, "unsupported_encoding"),
    ] {
        let reply = ask(encoding, body).await;
        assert_eq!(
            (reply.status.as_u16(), reply.code().as_str()),
            (status, code)
        );
    }
    gateway.at_rest().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_go_ahead_is_given_where_it_is_asked_for() {
    let (_pki, gateway, _worker) = with_one_worker().await;
    let mut raw = Raw::connect(gateway.address).await;
    let headers = "content-length: 1\r\nexpect: 100-continue\r\n";
    raw.write(head(CHAT, headers)).await;
    assert_eq!(raw.reply(false).await.status, 100);
    raw.write("{").await;
    assert_eq!(raw.reply(false).await.code(), "invalid_json");
    // Who is refused sends no body, so the connection cannot go on.
    raw.write(head("/nowhere", headers)).await;
    assert_eq!(raw.reply(false).await.status, 404);
    assert_eq!(raw.rest().await, "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_waited_for_longer_than_the_bounds() {
    let (_pki, gateway, _worker) = with_one_worker_and(|config: &mut GatewayConfig| {
        config.header_timeout = Duration::from_secs(1);
        config.http.idle_timeout = Duration::from_secs(1);
        config.http.min_body_rate = 1 << 20;
    })
    .await;
    let health = "GET /health HTTP/1.1\r\nhost: g\r\n\r\n";
    // The next request does not come.
    let mut raw = Raw::connect(gateway.address).await;
    raw.write(health).await;
    assert_eq!(raw.reply(false).await.status, 200);
    assert_eq!(raw.rest().await, "");
    // Its head does not end.
    let mut raw = Raw::connect(gateway.address).await;
    raw.write([health, "GET /health HTTP/1.1\r\nx: "].concat())
        .await;
    assert_eq!(raw.reply(false).await.status, 200);
    while raw.try_write("y").await {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // Its body comes too slowly.
    let mut raw = Raw::connect(gateway.address).await;
    raw.write(head(CHAT, "content-length: 100\r\n") + "{").await;
    let reply = raw.reply(false).await;
    assert_eq!(
        (reply.status, reply.code().as_str()),
        (408, "incomplete_body")
    );
    assert_eq!(raw.rest().await, "");
    gateway.at_rest().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_head_is_told_that_it_was() {
    let (_pki, gateway, _worker) = with_one_worker_and(|config: &mut GatewayConfig| {
        config.header_timeout = Duration::from_secs(1);
    })
    .await;
    let mut raw = Raw::connect(gateway.address).await;
    raw.write("GET /health HTTP/1.1\r\nhost:").await;
    let reply = raw.reply(false).await;
    assert_eq!(
        (reply.status, reply.code().as_str()),
        (408, "incomplete_headers")
    );
    assert_eq!(raw.rest().await, "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_is_noticed_also_when_it_had_sent_more() {
    let (_pki, gateway, mut worker) = with_one_worker().await;
    let body = chat().to_string();
    let ask = head(CHAT, &format!("content-length: {}\r\n", body.len())) + &body;
    let mut raw = Raw::connect(gateway.address).await;
    raw.write([ask.as_str(), "GET /health HTTP/1.1\r\nhost: g\r\n\r\n"].concat())
        .await;
    let mut call = worker.call().await;
    call.start().await;
    drop(raw);
    call.cancelled().await;
    gateway.at_rest().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_has_so_many_connections_and_no_more() {
    let (_pki, gateway, _worker) = with_one_worker_and(|config: &mut GatewayConfig| {
        config.http.max_connections_per_address = Some(3);
        config.http.idle_timeout = Duration::from_secs(60);
    })
    .await;
    let health = "GET /health HTTP/1.1\r\nhost: g\r\n\r\n";
    let mut held = Vec::new();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while held.len() < 3 {
        // The gateway may not know yet that those who asked whether it is ready have gone.
        assert!(
            tokio::time::Instant::now() < deadline,
            "three places in time"
        );
        let mut raw = Raw::connect(gateway.address).await;
        raw.try_write(health).await;
        if let Some(reply) = raw.try_reply().await {
            assert_eq!(reply.status, 200);
            held.push(raw);
        }
    }
    let mut raw = Raw::connect(gateway.address).await;
    raw.try_write(health).await;
    assert_eq!(raw.rest().await, "");
    held.pop();
    let refused = r#"tandem_http_connections_refused_total{reason="address"}"#;
    crate::harness::eventually("a free place", || async {
        let mut raw = Raw::connect(gateway.address).await;
        raw.try_write("GET /metrics HTTP/1.1\r\nhost: g\r\nconnection: close\r\n\r\n")
            .await;
        let metrics = raw.rest().await;
        metrics.lines().any(|line| line.starts_with(refused))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_of_100_mb_is_refused_while_others_are_served() {
    let (_pki, gateway, _worker) = with_one_worker().await;
    let address = gateway.address;
    let large = spawn("large", async move {
        let mut raw = Raw::connect(address).await;
        raw.write(head(CHAT, "content-length: 104857600\r\n")).await;
        let piece = vec![b' '; 1 << 20];
        for _ in 0..100 {
            if !raw.try_write(&piece).await {
                break;
            }
        }
        raw.reply(false).await
    });
    assert_eq!(post(address, CHAT, &json!({})).await.status, 400);
    let reply = large.join().await.unwrap();
    assert_eq!(
        (reply.status, reply.code().as_str()),
        (413, "request_too_large")
    );
    gateway.at_rest().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_share_their_memory_and_one_too_many_is_told_to_come_back() {
    let (_pki, gateway, _worker) = with_one_worker_and(|config: &mut GatewayConfig| {
        config.http.max_bodies_bytes = 1 << 20;
        config.queue_limit = 64;
    })
    .await;
    let half = head(CHAT, "content-length: 700000\r\n") + &" ".repeat(600_000);
    let mut first = Raw::connect(gateway.address).await;
    first.write(&half).await;
    crate::harness::eventually("read", || async {
        gateway.status().await["gateway"]["in_flight"] == 1
    })
    .await;
    // The first one's bytes are with the gateway, or will be: only one of the two fits.
    let mut second = Raw::connect(gateway.address).await;
    second.write(&half).await;
    let told = tokio::select! {
        reply = first.reply(false) => reply,
        reply = second.reply(false) => reply,
    };
    assert_eq!((told.status, told.code().as_str()), (503, "overloaded"));
    assert!(told.header("retry-after").is_some());
    drop((first, second));
    gateway.at_rest().await;
    assert_eq!(post(gateway.address, CHAT, &json!({})).await.status, 400);
}

//! TLS towards clients, and certificates that change while it runs.

use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::CertificateDer;
use tandem_config::{AdminConfig, GatewayConfig, TlsConfig};
use tandem_gateway::run;
use tandem_wire::identity::{Authority, Certificate};
use tandem_wire::proto;
use tandem_wire::task::spawn;
use tokio::net::TcpStream;

use crate::harness::{Gateway, config, eventually, pki, with_one_worker};
use crate::raw::Raw;
use crate::scripted_worker::{PAGES, ScriptedWorker, free_pages, welcome};
use crate::tls_client::Site;

const HEALTH: &str = "GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n";

async fn start(site: &Site, change: impl FnOnce(&mut GatewayConfig)) -> Gateway {
    let pki = pki();
    let mut config = config(&pki, Vec::new());
    config.tls = Some(site.config());
    change(&mut config);
    Gateway::start(config).await
}

fn tls(config: &mut GatewayConfig) -> &mut TlsConfig {
    config.tls.as_mut().unwrap()
}

/// A sample of `/metrics`, over TLS.
async fn metric(site: &Site, gateway: &Gateway, sample: &str) -> Option<f64> {
    let socket = site.connect(gateway.address, &[], true).await.unwrap();
    let mut raw = Raw::over(socket);
    raw.write("GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .await;
    let body = raw.reply(false).await.body;
    let value = body
        .lines()
        .find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '))?;
    Some(value.parse().unwrap())
}

/// The certificate that a client sees now.
async fn seen(site: &Site, gateway: &Gateway) -> CertificateDer<'static> {
    let socket = site.connect(gateway.address, &[], false).await.unwrap();
    socket.get_ref().1.peer_certificates().unwrap()[0]
        .clone()
        .into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_chooses_the_version_in_the_handshake_or_by_its_first_bytes() {
    let site = Site::new();
    let gateway = start(&site, |_| {}).await;
    for offered in [&["http/1.1"][..], &[]] {
        let socket = site.connect(gateway.address, offered, false).await.unwrap();
        let mut raw = Raw::over(socket);
        for _ in 0..2 {
            raw.write(HEALTH).await;
            assert_eq!(raw.reply(false).await.status, 200);
        }
    }
    for offered in [&["h2", "http/1.1"][..], &["h2"], &[]] {
        let socket = site.connect(gateway.address, offered, false).await.unwrap();
        let agreed = socket.get_ref().1.alpn_protocol().map(<[u8]>::to_vec);
        assert_eq!(agreed, offered.first().map(|name| name.as_bytes().to_vec()));
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(socket))
                .await
                .unwrap();
        let _connection = spawn("client", connection);
        let uri = "https://localhost/health";
        let request = http::Request::get(uri).body(String::new()).unwrap();
        let reply = sender.send_request(request).await.unwrap();
        assert_eq!(reply.status(), 200);
        assert!(reply.headers().get("alt-svc").is_none());
    }
    assert!(
        site.connect(gateway.address, &["spdy/3"], false)
            .await
            .is_err()
    );
    // Plain HTTP is no handshake.
    let mut plain = Raw::connect(gateway.address).await;
    plain.write(HEALTH).await;
    assert!(!plain.rest().await.contains("HTTP/1.1 200"));
    let refused = r#"tandem_http_connections_refused_total{reason="handshake"}"#;
    assert_eq!(metric(&site, &gateway, refused).await, Some(2.0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_certificate_is_taken_over_and_a_broken_one_is_not() {
    let site = Site::new();
    let first = site.renew();
    let gateway = start(&site, |_| {}).await;
    assert_eq!(seen(&site, &gateway).await, first);
    let expiry = metric(&site, &gateway, "tandem_tls_certificate_expiry_seconds").await;
    assert!(expiry.unwrap() > 1e9, "{expiry:?}");
    // A connection lives on with what it began with.
    let mut old = Raw::over(site.connect(gateway.address, &[], false).await.unwrap());
    let second = site.renew();
    eventually("renewed", || async {
        seen(&site, &gateway).await == second
    })
    .await;
    old.write(HEALTH).await;
    assert_eq!(old.reply(false).await.status, 200);
    let ok = r#"tandem_tls_reloads_total{result="ok"}"#;
    let taken = metric(&site, &gateway, ok).await.unwrap();
    assert!(taken >= 1.0);

    // The halves of two pairs do not go together, and are looked at once.
    let before = metric(
        &site,
        &gateway,
        r#"tandem_tls_reloads_total{result="failed"}"#,
    )
    .await;
    let key = std::fs::read(site.path("key.pem")).unwrap();
    std::fs::write(site.path("key.pem"), "no key").unwrap();
    let failed = || {
        metric(
            &site,
            &gateway,
            r#"tandem_tls_reloads_total{result="failed"}"#,
        )
    };
    eventually("refused", || async { failed().await > before }).await;
    let once = failed().await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(failed().await, once);
    assert_eq!(seen(&site, &gateway).await, second);
    std::fs::write(site.path("key.pem"), key).unwrap();
    let third = site.renew();
    eventually("mended", || async { seen(&site, &gateway).await == third }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operators_have_a_certificate_of_their_own_that_is_exchanged_too() {
    let site = Site::new();
    let first = site.renew();
    let pki = pki();
    let mut config = config(&pki, Vec::new());
    config.admin = Some(AdminConfig {
        listen: "127.0.0.1:0".parse().unwrap(),
        key_hashes: Vec::new(),
        tls: Some(site.config()),
    });
    let gateway = Gateway::start(config).await;
    let shown = async || {
        let socket = site.connect(gateway.admin(), &["http/1.1"], false).await;
        let socket = socket.unwrap();
        let chain = socket.get_ref().1.peer_certificates().unwrap();
        let first = chain[0].clone().into_owned();
        let mut raw = Raw::over(socket);
        raw.write("GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n")
            .await;
        (first, raw.reply(false).await.body)
    };
    let (seen, metrics) = shown().await;
    assert_eq!(seen, first);
    let expiry = "tandem_certificate_expiry_seconds{role=\"operators\",name=\"listener\"} ";
    assert!(metrics.contains(expiry), "{metrics}");
    // Clients have none.
    assert!(
        metrics.contains("\ntandem_tls_certificate_expiry_seconds 0\n"),
        "{metrics}"
    );
    assert!(site.connect(gateway.admin(), &["h2"], false).await.is_err());
    let second = site.renew();
    eventually("renewed", async || shown().await.0 == second).await;
    let mut plain = Raw::connect(gateway.admin()).await;
    plain.write(HEALTH).await;
    assert!(!plain.rest().await.contains("HTTP/1.1 200"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_show_a_certificate_where_an_authority_is_named() {
    let site = Site::new();
    let gateway = start(&site, |config| {
        tls(config).client_ca = Some(site.path("ca.pem"));
    })
    .await;
    let socket = site.connect(gateway.address, &[], true).await.unwrap();
    let mut raw = Raw::over(socket);
    raw.write(HEALTH).await;
    assert_eq!(raw.reply(false).await.status, 200);
    // In TLS 1.3 a client learns of it with the first bytes that it reads.
    if let Ok(socket) = site.connect(gateway.address, &[], false).await {
        let mut raw = Raw::over(socket);
        raw.try_write(HEALTH).await;
        assert_eq!(raw.rest().await, "");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handshakes_that_stall_end_and_cost_others_only_their_time() {
    let site = Site::new();
    let gateway = start(&site, |config| {
        tls(config).max_handshakes = 2;
        tls(config).handshake_timeout = Duration::from_millis(1500);
    })
    .await;
    let mut stalled = Vec::new();
    for _ in 0..2 {
        stalled.push(Raw::<TcpStream>::connect(gateway.address).await);
    }
    for mut raw in stalled {
        assert_eq!(raw.rest().await, "");
    }
    let slow = r#"tandem_http_connections_refused_total{reason="slow_handshake"}"#;
    assert_eq!(metric(&site, &gateway, slow).await, Some(2.0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_that_cannot_be_used_ends_the_start_and_is_named() {
    let site = Site::new();
    let pki = pki();
    let other = Site::new();
    let start = |change: &dyn Fn(&mut TlsConfig)| {
        let mut config = config(&pki, Vec::new());
        let mut tls = site.config();
        change(&mut tls);
        config.tls = Some(tls);
        async {
            let ended = run(config, std::future::pending(), |_| {}).await;
            ended.expect_err("no start").to_string()
        }
    };
    let error = start(&|tls| tls.key = other.path("key.pem")).await;
    assert!(
        error.contains("cert.pem and /") && error.contains("key.pem: "),
        "{error}"
    );
    let error = start(&|tls| tls.certificate = site.path("none.pem")).await;
    assert!(error.contains("none.pem: No such file"), "{error}");
    let error = start(&|tls| tls.certificate = site.path("key.pem")).await;
    assert!(error.contains("key.pem: holds no certificate"), "{error}");
    let error = start(&|tls| tls.client_ca = Some(site.path("key.pem"))).await;
    assert!(error.contains("key.pem: holds no certificate"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_over_tls_comes_event_by_event() {
    let site = Site::new();
    let pki = pki();
    let mut worker = ScriptedWorker::start(pki.path(), welcome("both-0", proto::Role::Both));
    let mut config = config(&pki, vec![worker.address]);
    config.tls = Some(site.config());
    let gateway = Gateway::start(config).await;
    eventually("ready", || async {
        let mut raw = Raw::over(site.connect(gateway.address, &[], false).await.unwrap());
        raw.write("GET /ready HTTP/1.1\r\nhost: g\r\n\r\n").await;
        raw.reply(false).await.status == 200
    })
    .await;
    let body = crate::harness::with(crate::harness::chat(), serde_json::json!({"stream": true}));
    let body = body.to_string();
    let mut raw = Raw::over(site.connect(gateway.address, &[], false).await.unwrap());
    let head = format!(
        "POST {} HTTP/1.1\r\nhost: g\r\ncontent-length: {}\r\n\r\n",
        crate::harness::CHAT,
        body.len()
    );
    raw.write(head + &body).await;
    let mut call = worker.call().await;
    call.start().await;
    call.token(1, "first").await;
    raw.until("first").await;
    call.token(2, "second").await;
    raw.until("second").await;
    drop(raw);
    call.cancelled().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn until_when_gateway_authority_and_workers_know_one_another_is_told() {
    let (pki, gateway, worker) = with_one_worker().await;
    let expiry = |role: &str, name: &str| {
        format!("tandem_certificate_expiry_seconds{{role=\"{role}\",name=\"{name}\"}}")
    };
    let read = |file: &str| Certificate::read(&pki.path().join(file)).unwrap().not_after as f64;
    let own = gateway.metric(&expiry("gateway", "gateway")).await;
    assert_eq!(own, Some(read("gateway.pem")));
    let authority = gateway.metric(&expiry("authority", "ca")).await;
    assert_eq!(authority, Some(read("ca.pem")));
    // A worker tells its own; one that does not is left out.
    let workers = expiry("worker", "both-0");
    assert_eq!(gateway.metric(&workers).await, None);
    worker.report(proto::Load {
        certificate_expiry: 4_000_000_000,
        ..free_pages(PAGES)
    });
    eventually("told", async || gateway.metric(&workers).await == Some(4e9)).await;
    let renewed = Authority::open(pki.path()).unwrap();
    renewed.renew("gateway", Some(9), false).unwrap();
    eventually("renewed", async || {
        let now = gateway.metric(&expiry("gateway", "gateway")).await;
        now == Some(read("gateway.pem"))
    })
    .await;
}

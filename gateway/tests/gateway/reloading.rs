//! Configuration that changes under a running gateway.

use std::net::SocketAddr;
use std::path::Path;

use http::Method;
use serde_json::{Value, json};
use tandem_config::LogLevel;
use tandem_wire::proto;
use tandem_wire::proto::FinishReason;

use crate::client::{Reply, get, open, post, request, send};
use crate::harness::{CHAT, Follows, Gateway, chat, config_file, eventually, pki, with};
use crate::raw::Raw;
use crate::scripted_worker::{ScriptedWorker, welcome};
use crate::security::{entry, key, with_key, write_keys};
use crate::tls_client::Site;

const ADMIN: &str = "[admin]\nlisten = \"127.0.0.1:0\"\n";

async fn start(rest: &str) -> (tempfile::TempDir, Gateway, Follows, ScriptedWorker) {
    let pki = pki();
    let worker = ScriptedWorker::start(pki.path(), welcome("both-0", proto::Role::Both));
    let file = config_file(pki.path(), &[worker.address], rest);
    let (gateway, follows) = Gateway::start_from(&file).await;
    gateway.ready().await;
    (pki, gateway, follows, worker)
}

async fn reload(gateway: &Gateway) -> Reply {
    post(gateway.admin(), "/admin/reload", &Value::Null).await
}

/// The keys that wait for a restart, after one more reload.
async fn waiting(gateway: &Gateway) -> Value {
    assert_eq!(reload(gateway).await.status, 200);
    get(gateway.admin(), "/admin/config").await.json()["needs_restart"].clone()
}

async fn figure(gateway: &Gateway, sample: &str) -> Option<f64> {
    let text = get(gateway.admin(), "/metrics").await.body;
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
    value.map(|value| value.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_is_taken_out_opens_nothing_any_more_and_its_open_stream_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys.toml");
    let (old, new) = (key(1), key(2));
    write_keys(&keys, &[entry(&old)]);
    let (_pki, gateway, follows, mut worker) =
        start(&format!("{ADMIN}[auth]\nkeys = {keys:?}\n")).await;
    let ask = |key: &tandem_config::ApiKey, body: Value| {
        with_key(
            request(Method::POST, CHAT, body.to_string()),
            "x-api-key",
            key.reveal(),
        )
    };
    let streamed = with(chat(), json!({"stream": true}));
    let begin = async {
        let mut call = worker.call().await;
        call.start().await;
        call.token(1, "a").await;
        call
    };
    let asked = ask(&old, streamed);
    let (mut stream, mut call) = tokio::join!(open(gateway.address, asked), begin);
    assert_eq!(stream.status, 200);

    write_keys(&keys, &[entry(&new)]);
    follows.hang_up().await;
    eventually("reloaded", async || {
        figure(&gateway, "tandem_config_reloads_total{result=\"reloaded\"}").await == Some(1.0)
    })
    .await;
    assert_eq!(send(gateway.address, ask(&old, chat())).await.status, 401);
    let serve = async {
        let mut call = worker.call().await;
        call.start().await;
        call.finish("x", FinishReason::Stop).await;
    };
    let (reply, ()) = tokio::join!(send(gateway.address, ask(&new, chat())), serve);
    assert_eq!(reply.status, 200);
    call.token(2, "b").await;
    call.finish("", FinishReason::Stop).await;
    assert_eq!(stream.rest().await.last().unwrap(), "[DONE]");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_file_changes_nothing_and_no_request_fails() {
    let (pki, gateway, _follows, mut worker) = start(ADMIN).await;
    let file = pki.path().join("gateway.toml");
    let right = std::fs::read_to_string(&file).unwrap();
    let before = get(gateway.admin(), "/admin/config").await.json();
    let address = gateway.address;
    let ask = tandem_wire::task::spawn("ask", async move {
        let mut statuses = Vec::new();
        for _ in 0..20 {
            statuses.push(post(address, CHAT, &chat()).await.status.as_u16());
        }
        statuses
    });
    let serve = tandem_wire::task::spawn("serve", async move {
        while let Some(mut call) = worker.maybe_call().await {
            call.start().await;
            call.finish("x", FinishReason::Stop).await;
        }
    });
    let bad = [
        right.replace("workers", "wrokers"),
        right.clone() + "[auth]\nkeys = \"nowhere.toml\"\n",
        "x = = 1".to_owned(),
        String::new(),
    ];
    for text in bad {
        std::fs::write(&file, text).unwrap();
        let reply = reload(&gateway).await;
        assert_eq!(
            (reply.status.as_u16(), reply.code()),
            (400, "invalid_configuration".into())
        );
        let message = reply.error()["message"].to_string();
        assert!(message.contains("Nothing was changed: "), "{message}");
        assert!(message.contains(".toml"), "{message}");
    }
    assert_eq!(ask.join().await.unwrap(), [200; 20]);
    drop(serve);
    assert_eq!(
        figure(&gateway, "tandem_config_reload_success").await,
        Some(0.0)
    );
    let failed = figure(&gateway, "tandem_config_reloads_total{result=\"failed\"}").await;
    assert!(failed >= Some(4.0), "{failed:?}");
    let after = get(gateway.admin(), "/admin/config").await.json();
    assert_eq!(
        (&after["hash"], &after["config"]),
        (&before["hash"], &before["config"])
    );
    std::fs::write(&file, right).unwrap();
    let reply = reload(&gateway).await;
    assert_eq!(reply.json()["result"], "unchanged");
    assert_eq!(
        figure(&gateway, "tandem_config_reload_success").await,
        Some(1.0)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_followed_changes_and_what_is_not_is_named() {
    let (pki, gateway, follows, worker) = start(&format!("tokenizer_threads = 2\n{ADMIN}")).await;
    let hash = get(gateway.admin(), "/admin/policy").await.json()["hash"].clone();
    let rest = "tokenizer_threads = 3\nrequest_timeout_ms = 200\n[admin]\nlisten = \"127.0.0.1:0\"\n\
                [policy.decode]\nchoose = \"random\"\n[log]\nlevel = \"debug\"\n";
    // Nobody asks: the file's change is noticed.
    config_file(pki.path(), &[worker.address], rest);
    eventually("noticed", async || {
        get(gateway.admin(), "/admin/policy").await.json()["policy"]["decode"]["choose"] == "random"
    })
    .await;
    let config = get(gateway.admin(), "/admin/config").await.json();
    assert_ne!(config["hash"], hash);
    assert_eq!(
        config["needs_restart"],
        json!(["gateway.tokenizer_threads"])
    );
    assert_eq!(config["last_reload"]["by"], "file");
    assert_eq!(
        config["last_reload"]["changed"],
        json!([
            "gateway.request_timeout_ms",
            "gateway.tokenizer_threads",
            "log.level",
            "policy.decode.choose"
        ])
    );
    assert_eq!(
        figure(&gateway, "tandem_config_needs_restart").await,
        Some(1.0)
    );
    let info = format!("tandem_config_info{{hash={}}}", config["hash"]);
    assert_eq!(figure(&gateway, &info).await, Some(1.0));
    let levels: Vec<_> = follows
        .levels
        .lock()
        .unwrap()
        .iter()
        .map(|log| log.level)
        .collect();
    assert_eq!(levels, [LogLevel::Debug]);
    // The new time is that of new requests.
    let reply = post(gateway.address, CHAT, &chat()).await;
    assert_eq!(reply.code(), "timeout");
    // It stays named until the file is as at the start, or the gateway starts anew.
    config_file(pki.path(), &[worker.address], &rest.replace("200", "300"));
    assert_eq!(
        waiting(&gateway).await,
        json!(["gateway.tokenizer_threads"])
    );
    config_file(pki.path(), &[worker.address], &rest.replace("= 3", "= 2"));
    assert_eq!(waiting(&gateway).await, json!([]));
}

fn names(status: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let workers = status["workers"].as_array().unwrap().iter();
    let mut names: Vec<_> = workers
        .map(|w| (text(&w["id"]), text(&w["state"])))
        .collect();
    names.sort();
    names
}

async fn change_workers(gateway: &Gateway, folder: &Path, workers: &[SocketAddr]) {
    config_file(folder, workers, ADMIN);
    let reply = reload(gateway).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_come_and_go_with_the_file_and_one_that_goes_ends_what_it_has() {
    let (pki, gateway, _follows, mut first) = start(ADMIN).await;
    let mut second = ScriptedWorker::start(pki.path(), welcome("both-1", proto::Role::Both));
    change_workers(&gateway, pki.path(), &[first.address, second.address]).await;
    let state = |id: &str, state: &str| (id.to_owned(), state.to_owned());
    let both = [state("both-0", "ready"), state("both-1", "ready")];
    eventually("two", async || names(&gateway.status().await) == both).await;

    let address = gateway.address;
    let body = with(chat(), json!({"stream": true}));
    let drained = post(gateway.admin(), "/admin/workers/both-1/drain", &Value::Null).await;
    assert_eq!(drained.status, 200);
    let begin = async {
        let mut call = first.call().await;
        call.start().await;
        call.token(1, "a").await;
        call
    };
    let (mut stream, mut call) = tokio::join!(
        open(address, request(Method::POST, CHAT, body.to_string())),
        begin
    );
    let enabled = post(
        gateway.admin(),
        "/admin/workers/both-1/enable",
        &Value::Null,
    )
    .await;
    assert_eq!(enabled.json()["drained"], false);

    // It leaves: new ones go to the other, its own goes on.
    change_workers(&gateway, pki.path(), &[second.address]).await;
    let leaving = [state("both-0", "draining"), state("both-1", "ready")];
    eventually("draining", async || {
        names(&gateway.status().await) == leaving
    })
    .await;
    for _ in 0..3 {
        let serve = async {
            let mut call = second.call().await;
            call.start().await;
            call.finish("x", FinishReason::Stop).await;
        };
        let body = chat();
        let (reply, ()) = tokio::join!(post(address, CHAT, &body), serve);
        assert_eq!(reply.status, 200);
    }
    // Back before it has left: as it was.
    change_workers(&gateway, pki.path(), &[first.address, second.address]).await;
    eventually("back", async || names(&gateway.status().await) == both).await;
    change_workers(&gateway, pki.path(), &[second.address]).await;
    call.finish("b", FinishReason::Stop).await;
    assert_eq!(stream.rest().await.last().unwrap(), "[DONE]");
    eventually("one", async || names(&gateway.status().await) == both[1..]).await;
    // And back after it has left: not drained.
    change_workers(&gateway, pki.path(), &[first.address, second.address]).await;
    eventually("two again", async || names(&gateway.status().await) == both).await;
}

/// A chat request of that class, without waiting for its reply.
fn asked(gateway: &Gateway, class: &'static str, body: Value) -> tandem_wire::task::Task<Reply> {
    let address = gateway.address;
    let asked = request(Method::POST, CHAT, body.to_string());
    let asked = with_key(asked, "x-tandem-class", class);
    tandem_wire::task::spawn("ask", async move { send(address, asked).await })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn classes_limits_and_bounds_follow_the_file_and_requests_in_flight_stay_what_they_were() {
    let two = "[admission]\ndefault_class = \"chat\"\n[admission.class.chat]\n[admission.class.batch]\n\
               priority = 5\n";
    let (pki, gateway, _follows, mut worker) = start(&format!("{ADMIN}{two}")).await;
    let begun = asked(&gateway, "batch", chat());
    let mut call = worker.call().await;
    call.start().await;
    let address = worker.address;
    let change = async |rest: &str| {
        config_file(pki.path(), &[address], rest);
        let reply = reload(&gateway).await;
        assert_eq!(reply.status, 200, "{}", reply.body);
        assert_eq!(reply.json()["needs_restart"], json!([]));
    };
    let other = "default_max_tokens = 3\n[admin]\nlisten = \"127.0.0.1:0\"\n[admission]\n\
                 default_class = \"bulk\"\n[admission.class.bulk]\n[admission.class.chat]\n\
                 [admission.any_tenant]\nconcurrency = 1\n";
    change(other).await;
    // One that is gone cannot be named, one that is new can.
    let reply = asked(&gateway, "batch", chat()).join().await.unwrap();
    let message = reply.error()["message"].to_string();
    assert_eq!(reply.status, 400);
    assert!(message.contains("only chat, bulk."), "{message}");
    // The one in flight counts.
    let reply = asked(&gateway, "bulk", chat()).join().await.unwrap();
    assert_eq!(
        (reply.status.as_u16(), reply.code()),
        (429, "rate_limit_exceeded".into())
    );
    let rejected = "tandem_rejections_total{class=\"bulk\",reason=\"limited\"}";
    assert_eq!(figure(&gateway, rejected).await, Some(1.0));
    call.finish("x", FinishReason::Stop).await;
    assert_eq!(begun.join().await.unwrap().status, 200);
    gateway.at_rest().await;
    // A request that does not say gets what the new file says.
    let mut body = chat();
    body.as_object_mut().unwrap().remove("max_tokens");
    let reply = asked(&gateway, "bulk", body);
    let mut call = worker.call().await;
    assert_eq!(call.generate.stop.as_ref().unwrap().max_tokens, 3);
    call.start().await;
    call.finish("x", FinishReason::Stop).await;
    assert_eq!(reply.join().await.unwrap().status, 200);
    gateway.at_rest().await;
    // And back to what it was.
    change(&format!("{ADMIN}{two}")).await;
    let reply = asked(&gateway, "batch", chat());
    let mut call = worker.call().await;
    call.start().await;
    call.finish("x", FinishReason::Stop).await;
    assert_eq!(reply.join().await.unwrap().status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bounds_of_connections_follow_the_file() {
    let (pki, gateway, _follows, worker) = start(&format!("max_connections = 2\n{ADMIN}")).await;
    let mut held = Raw::connect(gateway.address).await;
    held.write("GET /health HTTP/1.1\r\nhost: g\r\n\r\n").await;
    assert_eq!(held.reply(false).await.status, 200);
    let one = format!("max_connections = 1\nheader_timeout_ms = 200\n{ADMIN}");
    config_file(pki.path(), &[worker.address], &one);
    let reply = reload(&gateway).await;
    assert_eq!(reply.json()["needs_restart"], json!([]), "{}", reply.body);
    // The one that is open is the one that may be: another waits until it is gone.
    let mut waits = Raw::connect(gateway.address).await;
    waits.write("GET /health HTTP/1.1\r\n").await;
    held.write("GET /health HTTP/1.1\r\nhost: g\r\n\r\n").await;
    assert_eq!(held.reply(false).await.status, 200);
    drop(held);
    // A new connection has the new time for its head.
    let reply = waits.reply(false).await;
    assert_eq!(reply.status, 408);
    drop(waits);
    // More from now on: who waits is let in.
    let mut held = Raw::connect(gateway.address).await;
    held.write("GET /health HTTP/1.1\r\nhost: g\r\n\r\n").await;
    assert_eq!(held.reply(false).await.status, 200);
    let mut waits = Raw::connect(gateway.address).await;
    waits.write("GET /health HTTP/1.1\r\nhost: g\r\n\r\n").await;
    let three = format!("max_connections = 3\n{ADMIN}");
    config_file(pki.path(), &[worker.address], &three);
    assert_eq!(reload(&gateway).await.status, 200);
    assert_eq!(waits.reply(false).await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_takes_a_new_certificate_and_fails_with_one_that_is_not_right() {
    let site = Site::new();
    let tls = format!(
        "[tls]\ncertificate = {:?}\nkey = {:?}\nreload_interval_ms = 86400000\n",
        site.path("cert.pem"),
        site.path("key.pem"),
    );
    let pki = pki();
    let file = config_file(pki.path(), &[], &format!("{ADMIN}{tls}"));
    let (gateway, _follows) = Gateway::start_from(&file).await;
    let seen = async || {
        let socket = site.connect(gateway.address, &[], false).await.unwrap();
        socket.get_ref().1.peer_certificates().unwrap()[0].clone()
    };
    assert_eq!(reload(&gateway).await.json()["result"], "unchanged");
    let new = site.renew();
    let reply = reload(&gateway).await.json();
    assert_eq!(reply["result"], "reloaded");
    assert_eq!(reply["changed"], json!([site.path("cert.pem")]));
    assert_eq!(seen().await, new);
    // A key that is another's, and a file of keys that is not there: both are named, nothing changes.
    let key = std::fs::read(site.path("key.pem")).unwrap();
    site.renew();
    std::fs::write(site.path("key.pem"), key).unwrap();
    let rest = format!("{ADMIN}[auth]\nkeys = \"nowhere.toml\"\n{tls}");
    config_file(pki.path(), &[], &rest);
    let reply = reload(&gateway).await;
    let message = reply.error()["message"].to_string();
    assert_eq!(reply.status, 400);
    assert!(
        message.contains("[tls] ") && message.contains("nowhere.toml"),
        "{message}"
    );
    assert_eq!(seen().await, new);
    assert_eq!(
        figure(&gateway, "tandem_config_reload_success").await,
        Some(0.0)
    );
}

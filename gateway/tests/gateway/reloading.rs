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
use crate::scripted_worker::{ScriptedWorker, welcome};
use crate::security::{entry, key, with_key, write_keys};

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
    let (pki, gateway, follows, worker) = start(&format!("queue_limit = 7\n{ADMIN}")).await;
    let hash = get(gateway.admin(), "/admin/policy").await.json()["hash"].clone();
    let rest = "queue_limit = 8\nrequest_timeout_ms = 200\n[admin]\nlisten = \"127.0.0.1:0\"\n\
                [policy.decode]\nchoose = \"random\"\n[log]\nlevel = \"debug\"\n";
    // Nobody asks: the file's change is noticed.
    config_file(pki.path(), &[worker.address], rest);
    eventually("noticed", async || {
        get(gateway.admin(), "/admin/policy").await.json()["policy"]["decode"]["choose"] == "random"
    })
    .await;
    let config = get(gateway.admin(), "/admin/config").await.json();
    assert_ne!(config["hash"], hash);
    assert_eq!(config["needs_restart"], json!(["gateway.queue_limit"]));
    assert_eq!(config["last_reload"]["by"], "file");
    assert_eq!(
        config["last_reload"]["changed"],
        json!([
            "gateway.queue_limit",
            "gateway.request_timeout_ms",
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
    assert_eq!(waiting(&gateway).await, json!(["gateway.queue_limit"]));
    config_file(pki.path(), &[worker.address], &rest.replace("= 8", "= 7"));
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

//! Who comes in, what the others are told, and what is never written down.

use std::path::Path;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::Full;
use serde_json::json;
use tandem_config::{ApiKey, AuthConfig, GatewayConfig, KeyEntry, Limits, Required};
use tandem_wire::proto::FinishReason;

use crate::client::{Reply, post, request, send};
use crate::harness::{CHAT, Gateway, chat, with_one_worker_and};
use crate::log::Log;
use crate::scripted_worker::{MODEL, ScriptedWorker};

pub(crate) fn key(n: u8) -> ApiKey {
    ApiKey::from_random([n; ApiKey::RANDOM_BYTES])
}

pub(crate) fn entry(key: &ApiKey) -> KeyEntry {
    KeyEntry {
        id: key.id().to_owned(),
        tenant: "acme".to_owned(),
        name: None,
        hash: ApiKey::hash_of(key.reveal()),
        expires: None,
        class: None,
        classes: None,
        models: None,
        limits: Limits::default(),
    }
}

pub(crate) fn write_keys(path: &Path, entries: &[KeyEntry]) {
    let text: String = entries.iter().map(|entry| entry.to_toml() + "\n").collect();
    std::fs::write(path, text).unwrap();
}

/// `request` with a key.
pub(crate) fn with_key(
    mut request: Request<Full<Bytes>>,
    header: &'static str,
    value: &str,
) -> Request<Full<Bytes>> {
    request.headers_mut().insert(header, value.parse().unwrap());
    request
}

async fn get(gateway: &Gateway, path: &str, key: Option<&ApiKey>) -> Reply {
    let mut asked = request(Method::GET, path, "");
    if let Some(key) = key {
        asked = with_key(asked, "authorization", &format!("Bearer {}", key.reveal()));
    }
    send(gateway.address, asked).await
}

async fn guarded(entries: &[KeyEntry]) -> (tempfile::TempDir, Gateway, ScriptedWorker) {
    let keys = tempfile::NamedTempFile::new().unwrap();
    write_keys(keys.path(), entries);
    let path = keys.path().to_owned();
    let change = |config: &mut GatewayConfig| {
        config.auth = AuthConfig::Keys(Required {
            keys: Some(path),
            ..Required::default()
        });
    };
    with_one_worker_and(change).await
}

async fn served(
    gateway: &Gateway,
    worker: &mut ScriptedWorker,
    asked: Request<Full<Bytes>>,
) -> Reply {
    let serve = async {
        let mut call = worker.call().await;
        call.start().await;
        call.token(1, "Hello").await;
        call.finish("", FinishReason::Stop).await;
    };
    let (reply, ()) = tokio::join!(send(gateway.address, asked), serve);
    reply
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_comes_in_without_a_key() {
    let key = key(1);
    let (_pki, gateway, mut worker) = guarded(&[entry(&key)]).await;
    let body = chat().to_string();
    let asked = || request(Method::POST, CHAT, body.clone());

    let reply = send(gateway.address, asked()).await;
    assert_eq!(
        (reply.status.as_u16(), reply.code()),
        (401, "invalid_api_key".into())
    );
    assert_eq!(
        reply.header("www-authenticate"),
        Some("Bearer realm=\"tandem\"")
    );
    assert!(reply.header("x-request-id").is_some());

    let mut wrong = key.reveal().to_owned();
    wrong.replace_range(wrong.len() - 1.., "e");
    for value in [
        format!("Bearer {wrong}"),
        "Basic dTpw".into(),
        key.reveal().into(),
    ] {
        let reply = send(gateway.address, with_key(asked(), "authorization", &value)).await;
        assert_eq!(reply.status, 401, "{value}");
        let challenge = reply.header("www-authenticate").unwrap();
        assert!(challenge.contains("error=\"invalid_token\""), "{challenge}");
        assert!(!reply.body.contains(&wrong), "{}", reply.body);
    }
    let bearer = with_key(
        asked(),
        "authorization",
        &format!("Bearer {}", key.reveal()),
    );
    assert_eq!(served(&gateway, &mut worker, bearer).await.status, 200);
    let anthropic = with_key(asked(), "x-api-key", key.reveal());
    assert_eq!(served(&gateway, &mut worker, anthropic).await.status, 200);

    let reply = send(
        gateway.address,
        request(Method::POST, "/v1/messages", body.clone()),
    )
    .await;
    assert_eq!(reply.status, 401);
    assert_eq!(reply.json()["type"], "error");
    assert_eq!(reply.json()["error"]["type"], "authentication_error");
    assert!(reply.json()["request_id"].is_string(), "{}", reply.body);

    for (path, status) in [
        ("/health", 200),
        ("/ready", 200),
        ("/metrics", 401),
        ("/tandem/status", 401),
    ] {
        assert_eq!(get(&gateway, path, None).await.status, status, "{path}");
    }
    for path in ["/metrics", "/tandem/status", "/v1/models"] {
        assert_eq!(get(&gateway, path, Some(&key)).await.status, 200, "{path}");
    }
    let figures = get(&gateway, "/metrics", Some(&key)).await.body;
    assert!(figures.contains("tandem_auth_keys 1"), "{figures}");
    let counted = "tandem_requests_total{endpoint=\"chat\",code=\"401\"} 4";
    assert!(figures.contains(counted), "{figures}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_for_other_models_or_of_the_past_is_told_so() {
    let (other, past) = (key(1), key(2));
    let entries = [
        KeyEntry {
            models: Some(vec!["another".into()]),
            ..entry(&other)
        },
        KeyEntry {
            expires: Some(1),
            ..entry(&past)
        },
    ];
    let (_pki, gateway, mut worker) = guarded(&entries).await;
    let ask = async |key: &ApiKey| {
        let asked = request(Method::POST, CHAT, chat().to_string());
        send(gateway.address, with_key(asked, "x-api-key", key.reveal())).await
    };
    let reply = ask(&other).await;
    assert_eq!(
        (reply.status.as_u16(), reply.code()),
        (403, "model_not_allowed".into())
    );
    assert_eq!(reply.error()["param"], "model");
    let reply = ask(&past).await;
    assert_eq!(reply.status, 401);
    assert_eq!(reply.error()["message"], "The API key has expired.");
    let models = get(&gateway, "/v1/models", Some(&other)).await.json();
    assert_eq!(models["data"], json!([]));
    let one = get(&gateway, &format!("/v1/models/{MODEL}"), Some(&other)).await;
    assert_eq!(one.status, 404);
    let alone = worker
        .is_left_alone(std::time::Duration::from_millis(50))
        .await;
    assert!(alone);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neither_keys_nor_texts_are_ever_logged() {
    let log = Log::default();
    // Of every library. This is the only test of this file that may do so for its process.
    log.take_all();
    let key = key(7);
    let (_pki, gateway, mut worker) = guarded(&[entry(&key)]).await;
    let mut body = chat();
    body["messages"][0]["content"] = json!("the prompt's own words");
    for header in ["authorization", "x-api-key"] {
        let asked = request(Method::POST, CHAT, body.to_string());
        let value = if header == "authorization" {
            format!("Bearer {}", key.reveal())
        } else {
            key.reveal().to_owned()
        };
        let asked = with_key(asked, header, &value);
        assert_eq!(served(&gateway, &mut worker, asked).await.status, 200);
    }
    let mut wrong = key.reveal().to_owned();
    wrong.replace_range(wrong.len() - 1.., "e");
    let asked = with_key(
        request(Method::POST, CHAT, body.to_string()),
        "x-api-key",
        &wrong,
    );
    assert_eq!(send(gateway.address, asked).await.status, 401);
    // What is wrong with a body is told without its words, too.
    let broken = with_key(
        request(
            Method::POST,
            CHAT,
            "{\"messages\": \"the prompt's own words\"",
        ),
        "x-api-key",
        key.reveal(),
    );
    assert_eq!(send(gateway.address, broken).await.status, 400);
    let unguarded = post(gateway.address, CHAT, &body).await;
    assert_eq!(unguarded.status, 401);
    gateway.stop().await;
    let text = log.text();
    let secret = &key.reveal()[key.reveal().len() - 40..key.reveal().len() - 2];
    assert!(
        text.contains("tenant=\"acme\"") && text.contains(key.id()),
        "the log is there"
    );
    for hidden in [secret, "the prompt's own words", "Hello"] {
        let line = text.lines().find(|line| line.contains(hidden));
        assert_eq!(line, None, "{hidden}");
    }
}

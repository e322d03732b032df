//! What makes no sense is refused in OpenAI's form, before any worker hears of it.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use crate::client::{get, post, request, send};
use crate::harness::{CHAT, COMPLETIONS, chat, with, with_one_worker};
use crate::scripted_worker::MODEL;

/// Code, param and members of each line.
pub(crate) fn cases(
    table: &'static str,
) -> impl Iterator<Item = (&'static str, &'static str, Value)> {
    table
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let mut columns = line.splitn(3, " | ");
            let mut column = || columns.next().unwrap();
            (column(), column(), serde_json::from_str(column()).unwrap())
        })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_makes_no_sense_is_refused_before_a_worker_hears_of_it() {
    let (_pki, gateway, mut worker) = with_one_worker().await;
    let completion = json!({"model": MODEL, "prompt": "Hi", "max_tokens": 8});
    let chats = cases(include_str!("bad_chats.txt"))
        .map(|(code, param, bad)| (CHAT, with(chat(), bad), code, param));
    let completions = cases(include_str!("bad_completions.txt"))
        .map(|(code, param, bad)| (COMPLETIONS, with(completion.clone(), bad), code, param));
    let filled = with(completion.clone(), json!({"prompt": vec![5; 8192]}));
    let filled = (COMPLETIONS, filled, "context_length_exceeded", "prompt");
    for (path, body, code, param) in chats.chain(completions).chain([filled]) {
        let reply = post(gateway.address, path, &body).await;
        let shown: String = body.to_string().chars().take(300).collect();
        let status = if code == "model_not_found" { 404 } else { 400 };
        let error = reply.error();
        assert_eq!(reply.status, status, "{shown}: {error}");
        assert_eq!(error["type"], "invalid_request_error", "{shown}");
        assert_eq!(
            (&error["code"], &error["param"]),
            (&json!(code), &json!(param)),
            "{shown}"
        );
        assert!(reply.header("x-request-id").is_some());
    }
    for body in ["", "{", "[]", "null", "{\"model\":", "\u{0}"] {
        let reply = send(
            gateway.address,
            request(Method::POST, CHAT, body.to_owned()),
        )
        .await;
        assert_eq!(
            (reply.status.as_u16(), reply.code()),
            (400, "invalid_json".into()),
            "{body}"
        );
    }
    assert!(worker.is_left_alone(Duration::from_millis(100)).await);
    gateway.at_rest().await;
    let total = r#"tandem_requests_total{endpoint="chat",code="404"}"#;
    assert_eq!(gateway.metric(total).await, Some(1.0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prompt_over_the_context_is_refused_with_both_figures_streamed_or_not() {
    let (_pki, gateway, mut worker) = with_one_worker().await;
    let long = "the cat sat on a mat. ".repeat(2000);
    for stream in [false, true] {
        let messages = json!([{"role": "user", "content": long}]);
        let body = with(chat(), json!({"messages": messages, "stream": stream}));
        let reply = post(gateway.address, CHAT, &body).await;
        let error = reply.error();
        assert_eq!(
            (reply.status.as_u16(), &error["param"]),
            (400, &json!("messages"))
        );
        assert_eq!(error["code"], "context_length_exceeded");
        let message = error["message"].as_str().unwrap();
        let head = "This model's maximum context length is 8192 tokens. However, your prompt has 1";
        assert!(message.starts_with(head), "{message}");
    }
    assert!(worker.is_left_alone(Duration::from_millis(100)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_paths_and_methods_are_told_in_json() {
    let (_pki, gateway, _worker) = with_one_worker().await;
    for path in ["/", "/v1", "/v1/chat/completions/"] {
        let reply = get(gateway.address, path).await;
        assert_eq!(
            (reply.status.as_u16(), reply.code()),
            (404, "unknown_url".into()),
            "{path}"
        );
    }
    for path in [
        "/v1/embeddings",
        "/v1/audio/speech",
        "/rerank",
        "/v1/images/generations",
    ] {
        let reply = post(gateway.address, path, &json!({})).await;
        assert_eq!(
            (reply.status.as_u16(), reply.code()),
            (501, "not_implemented".into()),
            "{path}"
        );
    }
    let reply = get(gateway.address, CHAT).await;
    assert_eq!(
        (reply.status.as_u16(), reply.code()),
        (405, "method_not_allowed".into())
    );
    assert_eq!(reply.header("allow"), Some("POST"));
    let reply = send(gateway.address, request(Method::DELETE, "/health", "")).await;
    assert_eq!(
        (reply.status.as_u16(), reply.header("allow")),
        (405, Some("GET, HEAD"))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_id_is_echoed_where_it_is_fit() {
    let (_pki, gateway, _worker) = with_one_worker().await;
    let named = |name: &str| {
        let mut request = request(Method::GET, "/health", "");
        request
            .headers_mut()
            .insert("x-request-id", name.parse().unwrap());
        request
    };
    let reply = send(gateway.address, named("abc-123")).await;
    assert_eq!(reply.header("x-request-id"), Some("abc-123"));
    for bad in ["a b", &"x".repeat(129)] {
        let reply = send(gateway.address, named(bad)).await;
        let name = reply.header("x-request-id").unwrap();
        assert!(name.starts_with("req-") && name.len() == 36, "{name}");
    }
}

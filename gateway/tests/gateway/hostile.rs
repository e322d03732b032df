//! Bodies that are meant to harm: each is a 4xx, soon, and others are served meanwhile.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::client::{post, request, send};
use crate::harness::{CHAT, COMPLETIONS, MESSAGES, RESPONSES, chat, with, with_one_worker_and};
use crate::scripted_worker::MODEL;

/// A chat's body with `members` as they are written.
fn raw(members: &str) -> String {
    let messages = r#"[{"role":"user","content":"Hi"}]"#;
    if members.contains("\"messages\"") {
        return format!(r#"{{"model":"{MODEL}",{members}}}"#);
    }
    format!(r#"{{"model":"{MODEL}","messages":{messages},{members}}}"#)
}

fn deep(depth: usize) -> String {
    "[".repeat(depth) + &"]".repeat(depth)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_that_are_no_json_or_too_deep_are_told_so() {
    let (_pki, gateway, mut worker) =
        with_one_worker_and(|config| config.max_body_bytes = 32 << 20).await;
    let deep = deep(20_000);
    let tool = format!(
        r#""tools":[{{"type":"function","function":{{"name":"f","parameters":{{"x":{deep}}}}}}}]"#
    );
    for (members, param) in [
        (format!("\"x\":{deep}"), "x"),
        (tool, "tools"),
        (
            format!(r#""messages":[{{"role":"user","content":{deep}}}]"#),
            "messages",
        ),
        (r#""user":"\ud800""#.to_owned(), "user"),
        (r#""user":"\udfff\ud800x""#.to_owned(), "user"),
        (r#""temperature":1e400"#.to_owned(), "temperature"),
        (r#""temperature":NaN"#.to_owned(), "temperature"),
        (r#""seed":1,"seed":2"#.to_owned(), "seed"),
        (
            r#""messages":[{"role":"user","role":"system","content":"x"}]"#.to_owned(),
            "role",
        ),
        (format!("\"x\":[{}0]", "0,".repeat(3 << 20)), "x"),
    ] {
        for path in [CHAT, COMPLETIONS, RESPONSES, MESSAGES, "/tokenize"] {
            let started = Instant::now();
            let reply = send(gateway.address, request(Method::POST, path, raw(&members))).await;
            let shown: String = members.chars().take(60).collect();
            assert_eq!(reply.status, 400, "{path} {shown}");
            if path != MESSAGES {
                assert_eq!(reply.code(), "invalid_json", "{path} {shown}");
                assert_eq!(reply.error()["param"], param, "{path} {shown}");
            }
            assert!(
                started.elapsed() < Duration::from_secs(10),
                "{path} {shown}"
            );
        }
    }
    assert!(worker.is_left_alone(Duration::from_millis(50)).await);
    gateway.at_rest().await;
}

/// Members, and the code and the param that they are refused with.
fn excesses() -> Vec<(Value, &'static str, &'static str)> {
    let message = json!({"role": "user", "content": "x"});
    let biases: serde_json::Map<String, Value> = (0..40_000)
        .map(|token: u32| (token.to_string(), json!(1)))
        .collect();
    let tool = |n: usize| json!({"type": "function", "function": {"name": format!("f{n}")}});
    vec![
        (
            json!({"messages": vec![message; 90_000]}),
            "context_length_exceeded",
            "messages",
        ),
        (
            json!({"stop": "x".repeat(1 << 20)}),
            "invalid_value",
            "stop",
        ),
        (json!({"stop": vec!["x"; 100_000]}), "invalid_value", "stop"),
        (json!({"logit_bias": biases}), "invalid_value", "logit_bias"),
        (
            json!({"stop_token_ids": vec![1; 100_000]}),
            "invalid_value",
            "stop_token_ids",
        ),
        (
            json!({"tools": (0..1000).map(tool).collect::<Vec<_>>()}),
            "invalid_value",
            "tools",
        ),
        (
            json!({"guided_regex": "x".repeat(1 << 20)}),
            "invalid_value",
            "guided_regex",
        ),
        (
            json!({"guided_choice": vec!["x"; 5000]}),
            "invalid_value",
            "guided_choice",
        ),
        (json!({"n": 1_000_000}), "invalid_value", "n"),
        (
            json!({"max_tokens": 1e30}),
            "context_length_exceeded",
            "max_tokens",
        ),
        (
            json!({"model": "x".repeat(1 << 20)}),
            "model_not_found",
            "model",
        ),
        (
            json!({"user": 1e308, "temperature": 1e308}),
            "invalid_value",
            "temperature",
        ),
        (json!({"seed": 1e30}), "invalid_value", "seed"),
        (json!({"x".repeat(1 << 20): 1}), "unknown_parameter", "x"),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_than_anyone_needs_is_refused_with_the_field_to_blame() {
    let (_pki, gateway, mut worker) =
        with_one_worker_and(|config| config.max_body_bytes = 32 << 20).await;
    for (members, code, param) in excesses() {
        let started = Instant::now();
        let reply = post(gateway.address, CHAT, &with(chat(), members)).await;
        let error = reply.error();
        assert!(reply.status.is_client_error(), "{code} {param}");
        assert_eq!(error["code"], code, "{param}");
        assert!(
            error["param"].as_str().unwrap().starts_with(param),
            "{param}"
        );
        assert!(
            reply.body.len() < 2048,
            "{param}: an error of {} bytes",
            reply.body.len()
        );
        assert!(started.elapsed() < Duration::from_secs(10), "{param}");
    }
    assert!(worker.is_left_alone(Duration::from_millis(50)).await);
    gateway.at_rest().await;
}

//! The main job: an OpenAI client gets a real model's answer from a disaggregated fleet.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::{Fleet, at_rest, chat};

const CHAT: &str = "/v1/chat/completions";

/// The texts and the finish reason of a streamed chat.
async fn streamed(fleet: &Fleet, mut body: Value) -> (Vec<(Instant, String)>, String) {
    body["stream"] = json!(true);
    let mut events = fleet.client().stream(CHAT, &body).await.unwrap();
    assert_eq!(events.status, 200);
    let (mut texts, mut reason, mut done) = (Vec::new(), String::new(), 0);
    while let Some(event) = events.next().await.unwrap() {
        assert_eq!(done, 0, "nothing follows [DONE]");
        if event.data == "[DONE]" {
            done += 1;
            continue;
        }
        let chunk: Value = serde_json::from_str(&event.data).unwrap();
        assert_eq!(chunk["object"], "chat.completion.chunk");
        let choice = &chunk["choices"][0];
        if let Some(text) = choice["delta"]["content"]
            .as_str()
            .filter(|t| !t.is_empty())
        {
            texts.push((event.at, text.to_owned()));
        }
        if let Some(why) = choice["finish_reason"].as_str() {
            reason = why.to_owned();
        }
    }
    assert_eq!(done, 1);
    (texts, reason)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disaggregated_fleet_chats_streamed_and_not_over_tcp_and_shm() {
    for provider in ["tcp", "shm"] {
        let fleet = Fleet::up(&["--provider", provider]);
        let question = chat("What is the capital of France?", 24);
        let answer = fleet.client().post(CHAT, &question).await.unwrap();
        assert_eq!(answer.status, 200, "{answer:?}");
        let answer = answer.json().unwrap();
        let text = answer["choices"][0]["message"]["content"]
            .as_str()
            .unwrap()
            .to_owned();
        assert!(text.contains("Paris"), "{text}");
        let usage = &answer["usage"];
        assert!(usage["prompt_tokens"].as_u64() > Some(10), "{usage}");
        let (texts, reason) = streamed(&fleet, question).await;
        let joined: String = texts.iter().map(|(_, t)| t.as_str()).collect();
        assert_eq!(joined, text, "streamed and whole answers are the same");
        assert_eq!(reason, answer["choices"][0]["finish_reason"]);
        // Both answers' prompts were computed in one process and pushed into another.
        let pushed = fleet.metric("tandem_worker_pushed_bytes_total").await;
        let bytes = |role: &str| -> f64 {
            pushed
                .iter()
                .filter(|(l, _)| l.contains(role))
                .map(|(_, v)| v)
                .sum()
        };
        assert!(bytes("prefill") > 0.0, "{pushed:?}");
        fleet
            .wait_for("rest", Duration::from_secs(2), at_rest)
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn three_chats_stream_at_once() {
    let fleet = Fleet::up(&[]);
    let ask = |text: &str| {
        let mut body = chat(text, 48);
        body["ignore_eos"] = json!(true);
        streamed(&fleet, body)
    };
    let (a, b, c) = tokio::join!(
        ask("Tell me a story about a fox."),
        ask("Explain how rain forms."),
        ask("Write a poem about the sea."),
    );
    let spans: Vec<(Instant, Instant)> = [a, b, c]
        .iter()
        .map(|(texts, reason)| {
            assert_eq!(reason, "length");
            (texts.first().unwrap().0, texts.last().unwrap().0)
        })
        .collect();
    let last_start = spans.iter().map(|s| s.0).max().unwrap();
    let first_end = spans.iter().map(|s| s.1).min().unwrap();
    assert!(
        last_start < first_end,
        "every stream had begun before any had ended"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn chats_that_say_no_length_run_side_by_side() {
    let fleet = Fleet::up(&[]);
    let mut open = Vec::new();
    for n in 0..6 {
        let mut body = chat(&format!("Tell story number {n}."), 1);
        body["max_tokens"] = Value::Null;
        body["ignore_eos"] = json!(true);
        body["stream"] = json!(true);
        // A stream's headers come with its first token, so with its lease.
        let stream = fleet.client().stream(CHAT, &body).await.unwrap();
        assert_eq!(stream.status, 200);
        open.push(stream);
    }
    assert_eq!(fleet.status().await["gateway"]["in_flight"], 6);
    drop(open);
    fleet
        .wait_for("every page is free", Duration::from_secs(5), at_rest)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_input_is_refused_before_any_page_is_leased() {
    let fleet = Fleet::up(&["--decode", "1"]);
    let with = |key: &str, value: Value| {
        let mut body = chat("Hello", 8);
        body[key] = value;
        body.to_string()
    };
    let long = "word ".repeat(9000);
    let cases = [
        ("malformed", "{".to_owned(), 400, Value::Null),
        (
            "wrong type",
            with("temperature", json!("hot")),
            400,
            json!("temperature"),
        ),
        (
            "unknown model",
            with("model", json!("gpt-4")),
            404,
            json!("model"),
        ),
        (
            "no messages",
            with("messages", json!([])),
            400,
            json!("messages"),
        ),
        (
            "too long",
            chat(&long, 8).to_string(),
            400,
            json!("messages"),
        ),
        (
            "max_tokens 0",
            with("max_tokens", json!(0)),
            400,
            json!("max_tokens"),
        ),
        (
            "max_tokens huge",
            with("max_tokens", json!(1_000_000)),
            400,
            json!("max_tokens"),
        ),
    ];
    for (name, body, status, param) in cases {
        let answer = fleet.client().post_bytes(CHAT, body.into()).await.unwrap();
        assert_eq!(answer.status, status, "{name}: {answer:?}");
        let error = &answer.json().unwrap()["error"];
        for key in ["message", "type"] {
            assert!(error[key].is_string(), "{name}: {error}");
        }
        assert!(error.get("code").is_some(), "{name}: {error}");
        assert_eq!(error["param"], param, "{name}: {error}");
    }
    // An answer may be here a moment before the gateway has counted it off.
    let rest = Duration::from_secs(5);
    fleet.wait_for("rest", rest, at_rest).await;
}

//! A decode worker is killed in mid-answer: the client's text is that of an undisturbed answer.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::time::Duration;

use serde_json::{Value, json};
use support::{Fleet, at_rest, chat};

const CHAT: &str = "/v1/chat/completions";
/// Events after which the worker is killed.
const KILLED_AFTER: usize = 8;

/// A request whose tokens are halves of characters and beginnings of stop texts too.
fn request(seed: Option<u64>) -> Value {
    let mut body = chat(
        "Write a poem with many emoji 🦊🌧️ about foxes and rain.",
        64,
    );
    body["stream"] = json!(true);
    body["ignore_eos"] = json!(true);
    body["stop"] = json!(["the rain is purple", "\n\n\n\n"]);
    if let Some(seed) = seed {
        body["temperature"] = json!(1.0);
        body["seed"] = json!(seed);
    }
    body
}

/// The answer's text and finish reason; the decode worker at work is killed in between where `kill` says so.
async fn answer(fleet: &Fleet, body: &Value, kill: bool) -> (String, String) {
    let mut events = fleet.client().stream(CHAT, body).await.unwrap();
    assert_eq!(events.status, 200);
    let (mut text, mut reason, mut pieces) = (String::new(), String::new(), 0);
    while let Some(event) = events.next().await.unwrap() {
        if event.data == "[DONE]" {
            break;
        }
        let chunk: Value = serde_json::from_str(&event.data).unwrap();
        assert!(chunk.get("error").is_none(), "{chunk}");
        let choice = &chunk["choices"][0];
        let piece = choice["delta"]["content"].as_str().unwrap_or_default();
        text.push_str(piece);
        reason.push_str(choice["finish_reason"].as_str().unwrap_or_default());
        pieces += 1;
        if kill && pieces == KILLED_AFTER {
            let name = decoding(&fleet.status().await);
            fleet.signal(fleet.pid_of(&name).unwrap(), "-KILL");
        }
    }
    (text, reason)
}

/// The decode worker that has pages in use.
fn decoding(status: &Value) -> String {
    let workers = status["workers"].as_array().unwrap();
    let busy = workers
        .iter()
        .find(|w| w["role"] == "decode" && w["pages"]["free"] != w["pages"]["total"]);
    busy.expect("one decodes")["id"]
        .as_str()
        .unwrap()
        .to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decode_worker_killed_in_mid_stream_costs_time_and_not_a_letter() {
    let fleet = Fleet::up(&["--decode", "2"]);
    for (kills, seed) in [(1.0, None), (2.0, Some(7))] {
        let body = request(seed);
        let undisturbed = answer(&fleet, &body, false).await;
        let rest = Duration::from_secs(10);
        fleet.wait_for("rest", rest, at_rest).await;
        let disturbed = answer(&fleet, &body, true).await;
        assert_eq!(disturbed, undisturbed);
        let moved = fleet.metric("tandem_migrations_total").await;
        let decode = moved.iter().find(|(labels, _)| labels.contains("decode"));
        assert_eq!(decode.unwrap().1, kills, "{moved:?}");
        // The killed one is started again.
        let restart = Duration::from_secs(60);
        fleet.wait_for("all are back", restart, at_rest).await;
    }
}

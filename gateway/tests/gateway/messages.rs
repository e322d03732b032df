//! Anthropic's messages, with their own events and errors.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tandem_wire::proto::generate_reply::Kind;
use tandem_wire::proto::{self, FinishReason};

use crate::bad_input::cases;
use crate::client::{Reply, get, post, post_stream, request, send};
use crate::harness::{Gateway, MESSAGES, config, pki, with, with_one_worker};
use crate::scripted_worker::{CACHED_TOKENS, MODEL};

const COUNT: &str = "/v1/messages/count_tokens";

fn asked() -> Value {
    json!({
        "model": MODEL, "max_tokens": 8, "system": "Be short.",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
    })
}

/// The error of a reply in Anthropic's form.
fn error(reply: &Reply) -> String {
    let body = reply.json();
    assert_eq!(body["type"], "error", "{body}");
    assert_eq!(body["request_id"], reply.header("request-id").unwrap());
    assert_eq!(reply.header("request-id"), reply.header("x-request-id"));
    assert!(!body["error"]["message"].as_str().unwrap().is_empty());
    body["error"]["type"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_is_answered_whole_with_the_reason_of_its_end() {
    let (_pki, gateway, mut worker) = with_one_worker().await;
    let more = json!({"stop_sequences": ["END"], "temperature": 0.5, "top_k": 5, "top_p": 0.5,
        "metadata": {"user_id": "u"}, "thinking": {"type": "disabled"}, "tools": [],
        "service_tier": "auto", "cache_control": {"type": "ephemeral"}});
    for (reason, stop_text, stop_reason, sequence) in [
        (FinishReason::Stop, "", "end_turn", Value::Null),
        (FinishReason::Length, "", "max_tokens", Value::Null),
        (FinishReason::Stop, "END", "stop_sequence", json!("END")),
    ] {
        let serve = async {
            let mut call = worker.call().await;
            call.start().await;
            call.token(1, "Par").await;
            call.token(2, "is").await;
            let finished = proto::Finished {
                reason: reason.into(),
                cached_tokens: CACHED_TOKENS,
                stop_text: stop_text.into(),
                ..proto::Finished::default()
            };
            call.say(Kind::Finished(finished)).await;
            call.generate
        };
        let body = with(asked(), more.clone());
        let (reply, generate) = tokio::join!(post(gateway.address, MESSAGES, &body), serve);
        assert_eq!(reply.status, 200, "{}", reply.body);
        assert!(reply.header("request-id").is_some());
        let message = reply.json();
        assert!(message["id"].as_str().unwrap().starts_with("msg_"));
        assert_eq!(
            (&message["type"], &message["role"]),
            (&json!("message"), &json!("assistant"))
        );
        assert_eq!(
            message["content"],
            json!([{"type": "text", "text": "Paris"}])
        );
        assert_eq!(message["stop_reason"], stop_reason);
        assert_eq!(message["stop_sequence"], sequence);
        let cached = u64::from(CACHED_TOKENS);
        let usage = json!({
            "input_tokens": generate.tokens.len() as u64 - cached,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": cached,
            "output_tokens": 2,
        });
        assert_eq!(message["usage"], usage);
        let sampling = generate.sampling.unwrap();
        assert_eq!(
            (sampling.temperature, sampling.top_k, sampling.top_p),
            (0.5, 5, 0.5)
        );
        assert_eq!(generate.stop.unwrap().texts, ["END"]);
    }
    gateway.at_rest().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_streamed_message_has_anthropics_events() {
    let (_pki, gateway, mut worker) = with_one_worker().await;
    let body = with(asked(), json!({"stream": true}));
    let serve = async {
        let mut call = worker.call().await;
        call.start().await;
        for (token, text) in [(1, "Par"), (2, ""), (3, "is")] {
            call.token(token, text).await;
        }
        call.say(Kind::Finished(proto::Finished {
            reason: FinishReason::Stop.into(),
            cached_tokens: CACHED_TOKENS,
            ..proto::Finished::default()
        }))
        .await;
        call.generate.tokens.len() as u64
    };
    let (mut stream, prompt) = tokio::join!(post_stream(gateway.address, MESSAGES, &body), serve);
    assert!(stream.headers.contains_key("request-id"));
    let events: Vec<Value> = stream
        .rest()
        .await
        .iter()
        .map(|event| serde_json::from_str(event).unwrap())
        .collect();
    let kinds: Vec<&str> = events
        .iter()
        .map(|event| event["type"].as_str().unwrap())
        .collect();
    let want = [
        "message_start",
        "ping",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ];
    assert_eq!(kinds, want);
    assert_eq!(events[0]["message"]["content"], json!([]));
    assert_eq!(events[0]["message"]["stop_reason"], Value::Null);
    assert_eq!(
        events[3]["delta"],
        json!({"type": "text_delta", "text": "Par"})
    );
    assert_eq!(
        events[6]["delta"],
        json!({"stop_reason": "end_turn", "stop_sequence": null})
    );
    // What somebody held is known at the end only; then it counts.
    let begun = &events[0]["message"]["usage"];
    assert_eq!(
        (&begun["input_tokens"], &begun["cache_read_input_tokens"]),
        (&json!(prompt), &json!(0))
    );
    let cached = u64::from(CACHED_TOKENS);
    let usage = json!({
        "input_tokens": prompt - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": 3,
    });
    assert_eq!(events[6]["usage"], usage);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_fails_in_mid_stream_ends_with_anthropics_error() {
    let (_pki, gateway, mut worker) = with_one_worker().await;
    let body = with(asked(), json!({"stream": true}));
    let serve = async {
        let mut call = worker.call().await;
        call.start().await;
        call.token(1, "a").await;
        call.fail("engine_failed", true).await;
    };
    let (mut stream, ()) = tokio::join!(post_stream(gateway.address, MESSAGES, &body), serve);
    let events = stream.rest().await;
    let last: Value = serde_json::from_str(events.last().unwrap()).unwrap();
    assert_eq!(last["type"], "error");
    assert_eq!(last["error"]["type"], "overloaded_error");
    assert_eq!(last["error"]["message"], "It broke.");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_answer_goes_on_from_what_the_assistant_is_said_to_have_begun() {
    let (_pki, gateway, mut worker) = with_one_worker().await;
    let mut body = asked();
    let begun = json!({"role": "assistant", "content": "The answer is ("});
    body["messages"].as_array_mut().unwrap().push(begun);
    let serve = async {
        let mut call = worker.call().await;
        call.answer(&["B"], FinishReason::Stop).await;
        call.generate.tokens
    };
    let (reply, tokens) = tokio::join!(post(gateway.address, MESSAGES, &body), serve);
    assert_eq!(reply.status, 200, "{}", reply.body);
    let text = post(gateway.address, "/detokenize", &json!({"tokens": tokens})).await;
    let prompt = text.json()["prompt"].as_str().unwrap().to_owned();
    assert!(prompt.ends_with("The answer is ("), "{prompt}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_may_be_held_to_a_schema() {
    let (_pki, gateway, mut worker) = with_one_worker().await;
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    let format = json!({"type": "json_schema", "schema": schema});
    let body = with(
        asked(),
        json!({"output_config": {"format": format, "effort": null}}),
    );
    let serve = async {
        let mut call = worker.call().await;
        call.answer(&["{}"], FinishReason::Stop).await;
        call.generate
    };
    let (reply, generate) = tokio::join!(post(gateway.address, MESSAGES, &body), serve);
    assert_eq!(reply.status, 200, "{}", reply.body);
    let constraint = generate.sampling.unwrap().constraint.unwrap().kind;
    let Some(proto::constraint::Kind::JsonSchema(text)) = constraint else {
        panic!("no schema: {constraint:?}");
    };
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), schema);
    let free = with(asked(), json!({"output_config": {}}));
    let serve = async {
        let mut call = worker.call().await;
        call.answer(&["x"], FinishReason::Stop).await;
        call.generate
    };
    let (_, generate) = tokio::join!(post(gateway.address, MESSAGES, &free), serve);
    assert_eq!(generate.sampling.unwrap().constraint, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schema_that_cannot_be_followed_is_refused_before_a_lease() {
    let (_pki, gateway, mut worker) = with_one_worker().await;
    let schema = json!({"type": "object", "not": {"required": ["a"]}});
    let format = json!({"type": "json_schema", "schema": schema});
    let body = with(asked(), json!({"output_config": {"format": format}}));
    for body in [body.clone(), with(body, json!({"stream": true}))] {
        let reply = post(gateway.address, MESSAGES, &body).await;
        assert_eq!(reply.status, 400, "{}", reply.body);
        assert_eq!(error(&reply), "invalid_request_error");
        let message = reply.json()["error"]["message"].to_string();
        assert!(message.contains("output_config.format.schema"), "{message}");
    }
    assert!(worker.is_left_alone(Duration::from_millis(50)).await);
    gateway.at_rest().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_are_counted_without_a_worker() {
    let (_pki, gateway, mut worker) = with_one_worker().await;
    let mut body = asked();
    let serve = async {
        let mut call = worker.call().await;
        call.answer(&["x"], FinishReason::Stop).await;
        call.generate.tokens.len()
    };
    let (_, tokens) = tokio::join!(post(gateway.address, MESSAGES, &body), serve);
    body.as_object_mut().unwrap().remove("max_tokens");
    let reply = post(gateway.address, COUNT, &body).await;
    assert_eq!(reply.json(), json!({"input_tokens": tokens}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_error_is_anthropics() {
    let (_pki, gateway, mut worker) = with_one_worker().await;
    for (code, param, bad) in cases(include_str!("bad_messages.txt")) {
        let reply = post(gateway.address, MESSAGES, &with(asked(), bad.clone())).await;
        let status = if code == "model_not_found" { 404 } else { 400 };
        assert_eq!(reply.status, status, "{bad}: {}", reply.body);
        let want = if status == 404 {
            "not_found_error"
        } else {
            "invalid_request_error"
        };
        assert_eq!(error(&reply), want, "{bad}");
        let message = reply.json()["error"]["message"]
            .as_str()
            .unwrap()
            .to_owned();
        assert!(message.contains(param), "{bad}: {message}");
    }
    let address = gateway.address;
    let reply = get(address, MESSAGES).await;
    assert_eq!(
        (reply.status.as_u16(), reply.header("allow")),
        (405, Some("POST"))
    );
    assert_eq!(error(&reply), "invalid_request_error");
    let reply = send(address, request(Method::POST, "/v1/messages/nothing", "{}")).await;
    assert_eq!(
        (reply.status.as_u16(), error(&reply).as_str()),
        (404, "not_found_error")
    );
    let long = "x".repeat(2 << 20);
    let reply = send(address, request(Method::POST, MESSAGES, long)).await;
    assert_eq!(
        (reply.status.as_u16(), error(&reply).as_str()),
        (413, "request_too_large")
    );
    let reply = send(address, request(Method::POST, COUNT, "{")).await;
    assert_eq!(
        (reply.status.as_u16(), error(&reply).as_str()),
        (400, "invalid_request_error")
    );
    let fail = async {
        let mut call = worker.call().await;
        call.start().await;
        call.fail("odd", false).await;
    };
    let body = asked();
    let (reply, ()) = tokio::join!(post(address, MESSAGES, &body), fail);
    assert_eq!(
        (reply.status.as_u16(), error(&reply).as_str()),
        (502, "api_error")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_without_room_is_overloaded_in_anthropics_words() {
    let pki = pki();
    let gateway = Gateway::start(config(&pki, vec![])).await;
    let reply = post(gateway.address, MESSAGES, &asked()).await;
    assert_eq!(
        (reply.status.as_u16(), error(&reply).as_str()),
        (529, "overloaded_error")
    );
    assert!(reply.header("retry-after").is_some());
}

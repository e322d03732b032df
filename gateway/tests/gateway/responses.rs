//! OpenAI's responses, without memory.

use http::Method;
use serde_json::{Value, json};
use tandem_wire::proto::FinishReason;

use crate::bad_input::cases;
use crate::client::{get, post, post_stream, request, send};
use crate::harness::{RESPONSES, with, with_one_worker};
use crate::scripted_worker::{CACHED_TOKENS, MODEL};

fn asked() -> Value {
    json!({"model": MODEL, "input": "Hi", "max_output_tokens": 8})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_response_is_answered_whole_and_repeats_its_request() {
    let (_pki, gateway, mut worker) = with_one_worker().await;
    let more = json!({
        "instructions": "Be short.", "metadata": {"a": "b"}, "temperature": 0, "user": "u",
        "text": {"format": {"type": "json_object"}}, "store": false, "truncation": "disabled",
        "include": ["reasoning.encrypted_content"],
    });
    for (reason, status, details) in [
        (FinishReason::Stop, "completed", Value::Null),
        (
            FinishReason::Length,
            "incomplete",
            json!({"reason": "max_output_tokens"}),
        ),
    ] {
        let serve = async {
            let mut call = worker.call().await;
            call.answer(&["Par", "is"], reason).await;
            call.generate
        };
        let body = with(asked(), more.clone());
        let (reply, generate) = tokio::join!(post(gateway.address, RESPONSES, &body), serve);
        assert_eq!(reply.status, 200, "{}", reply.body);
        assert!(generate.sampling.unwrap().constraint.is_some());
        assert_eq!(generate.stop.unwrap().max_tokens, 8);
        let response = reply.json();
        assert!(response["id"].as_str().unwrap().starts_with("resp_"));
        assert_eq!(
            (&response["status"], &response["incomplete_details"]),
            (&json!(status), &details)
        );
        let item = &response["output"][0];
        assert_eq!(
            (&item["type"], &item["status"]),
            (&json!("message"), &json!(status))
        );
        assert_eq!(item["content"][0]["text"], "Paris");
        assert_eq!(response["usage"]["output_tokens"], 2);
        assert_eq!(
            response["usage"]["input_tokens_details"]["cached_tokens"],
            CACHED_TOKENS
        );
        assert_eq!(response["instructions"], "Be short.");
        assert_eq!(response["metadata"], json!({"a": "b"}));
        assert_eq!(response["temperature"], 0);
        assert_eq!(response["store"], false);
        assert_eq!(response["text"]["format"]["type"], "json_object");
    }
    gateway.at_rest().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_streamed_response_is_numbered_from_0_and_ends_with_the_whole() {
    let (_pki, gateway, mut worker) = with_one_worker().await;
    let body = with(asked(), json!({"stream": true}));
    let serve = async {
        let mut call = worker.call().await;
        call.start().await;
        call.token(1, "Par").await;
        call.token(2, "").await;
        call.token(3, "is").await;
        call.finish("!", FinishReason::Stop).await;
    };
    let (mut stream, ()) = tokio::join!(post_stream(gateway.address, RESPONSES, &body), serve);
    assert_eq!(stream.headers["content-type"], "text/event-stream");
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
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ];
    assert_eq!(kinds, want);
    let numbers: Vec<u64> = events
        .iter()
        .map(|event| event["sequence_number"].as_u64().unwrap())
        .collect();
    assert_eq!(numbers, (0..events.len() as u64).collect::<Vec<_>>());
    let text: String = events
        .iter()
        .filter_map(|event| event["delta"].as_str())
        .collect();
    assert_eq!(text, "Paris!");
    let whole = &events[10]["response"];
    assert_eq!(whole["output"][0]["content"][0]["text"], "Paris!");
    assert_eq!(whole["id"], events[0]["response"]["id"]);
    assert_eq!(whole["output"][0]["id"], events[4]["item_id"]);
    assert_eq!(whole["usage"]["output_tokens"], 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_response_that_fails_says_so_in_an_event_of_its_own() {
    let (_pki, gateway, mut worker) = with_one_worker().await;
    let body = with(asked(), json!({"stream": true}));
    let serve = async {
        let mut call = worker.call().await;
        call.start().await;
        call.token(1, "a").await;
        call.fail("engine_failed", true).await;
    };
    let (mut stream, ()) = tokio::join!(post_stream(gateway.address, RESPONSES, &body), serve);
    let events = stream.rest().await;
    let last: Value = serde_json::from_str(events.last().unwrap()).unwrap();
    assert_eq!(last["type"], "response.failed");
    assert_eq!(last["response"]["status"], "failed");
    assert_eq!(last["response"]["error"]["message"], "It broke.");
    assert_eq!(last["response"]["output"][0]["status"], "incomplete");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_would_need_a_memory_is_refused() {
    let (_pki, gateway, _worker) = with_one_worker().await;
    for (code, param, bad) in cases(include_str!("bad_responses.txt")) {
        let reply = post(gateway.address, RESPONSES, &with(asked(), bad.clone())).await;
        let error = reply.error();
        assert_eq!(reply.status, 400, "{bad}: {error}");
        assert_eq!(
            (&error["code"], &error["param"]),
            (&json!(code), &json!(param)),
            "{bad}"
        );
    }
    for method in [Method::GET, Method::DELETE] {
        let path = format!("{RESPONSES}/resp_1");
        let reply = send(gateway.address, request(method, &path, "")).await;
        assert_eq!(
            (reply.status.as_u16(), reply.code()),
            (404, "not_found".into())
        );
    }
    assert_eq!(get(gateway.address, RESPONSES).await.status, 405);
}

//! Answers with all that can be in them: each reply and each event has the form that OpenAI describes,
//! which the client checks.

use serde_json::{Value, json};
use tandem_wire::proto;
use tandem_wire::proto::FinishReason;
use tandem_wire::proto::generate_reply::Kind;

use crate::client::{post, post_stream};
use crate::harness::{CHAT, COMPLETIONS, RESPONSES, with};
use crate::scripted_worker::{Call, MODEL, ScriptedWorker};
use crate::tools::{ANSWER, function, tooled, with_hermes};

/// An answer whose tokens have probabilities, of the token itself and of two others.
async fn answer(call: &mut Call, reason: FinishReason) {
    call.start().await;
    for (token, text) in (1..).zip(ANSWER) {
        let logprob = |token: u32, bytes: &str, logprob: f32| proto::Logprob {
            token,
            bytes: bytes.as_bytes().to_vec().into(),
            logprob,
        };
        let logprobs = vec![
            logprob(token, text, -0.5),
            logprob(70, "F", -0.25),
            logprob(195, "\u{c3}", -9.5),
        ];
        call.say(Kind::Token(proto::Token {
            token,
            text: text.into(),
            logprobs,
        }))
        .await;
    }
    call.finish("", reason).await;
}

async fn serve(worker: &mut ScriptedWorker, answers: usize) {
    for _ in 0..answers {
        let mut call = worker.call().await;
        answer(&mut call, FinishReason::Stop).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chat() {
    let (_model, _pki, gateway, mut worker) = with_hermes().await;
    let all =
        json!({"n": 2, "logprobs": true, "top_logprobs": 2, "seed": 1, "metadata": {"a": "b"}});
    let body = with(tooled(), all);
    let (reply, ()) = tokio::join!(post(gateway.address, CHAT, &body), serve(&mut worker, 2));
    assert_eq!(reply.status, 200, "{}", reply.body);
    for choice in reply.json()["choices"].as_array().unwrap() {
        let message = &choice["message"];
        assert!(message["reasoning_content"].is_string() && message["content"].is_string());
        assert_eq!(message["tool_calls"][0]["type"], "function");
        let tokens = choice["logprobs"]["content"].as_array().unwrap();
        assert_eq!(tokens.len(), ANSWER.len());
        assert_eq!(tokens[0]["top_logprobs"].as_array().unwrap().len(), 2);
    }

    let options = json!({"include_usage": true, "include_obfuscation": false});
    let body = with(body, json!({"stream": true, "stream_options": options}));
    let streamed = async {
        let mut stream = post_stream(gateway.address, CHAT, &body).await;
        stream.rest().await
    };
    let (events, ()) = tokio::join!(streamed, serve(&mut worker, 2));
    let events: Vec<Value> = events
        .iter()
        .filter_map(|event| serde_json::from_str(event).ok())
        .collect();
    let has = |pointer: &str| events.iter().any(|event| event.pointer(pointer).is_some());
    for pointer in [
        "/choices/0/delta/role",
        "/choices/0/delta/reasoning_content",
        "/choices/0/delta/content",
        "/choices/0/delta/tool_calls/0/function/name",
        "/choices/0/logprobs/content/0/top_logprobs/1",
        "/choices/0/finish_reason",
        "/usage/completion_tokens_details/reasoning_tokens",
    ] {
        assert!(has(pointer), "{pointer}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn completions() {
    let (_model, _pki, gateway, mut worker) = with_hermes().await;
    let body = json!({
        "model": MODEL, "prompt": ["ab", "c"], "n": 2, "logprobs": 2, "user": "u", "max_tokens": 9,
    });
    let (reply, ()) = tokio::join!(
        post(gateway.address, COMPLETIONS, &body),
        serve(&mut worker, 4)
    );
    assert_eq!(reply.status, 200, "{}", reply.body);
    let answer = reply.json();
    assert_eq!(answer["choices"].as_array().unwrap().len(), 4);
    let logprobs = &answer["choices"][3]["logprobs"];
    assert_eq!(logprobs["tokens"].as_array().unwrap().len(), ANSWER.len());

    let options = json!({"include_usage": true});
    let body = with(body, json!({"stream": true, "stream_options": options}));
    let streamed = async {
        let mut stream = post_stream(gateway.address, COMPLETIONS, &body).await;
        stream.rest().await
    };
    let (events, ()) = tokio::join!(streamed, serve(&mut worker, 4));
    assert_eq!(events.last().unwrap(), "[DONE]");
    let usage: Value = serde_json::from_str(&events[events.len() - 2]).unwrap();
    assert_eq!(usage["usage"]["completion_tokens"], 4 * ANSWER.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_response() {
    let (_model, _pki, gateway, mut worker) = with_hermes().await;
    let tool = with(function(), json!({"type": "function", "strict": false}));
    let body = json!({
        "model": MODEL, "input": "Hi", "tools": [tool], "instructions": "i", "metadata": {"a": "b"},
        "stream": true, "temperature": 0.5, "max_output_tokens": 50, "prompt_cache_key": "k",
    });
    let streamed = async {
        let mut stream = post_stream(gateway.address, RESPONSES, &body).await;
        stream.rest().await
    };
    let (events, ()) = tokio::join!(streamed, serve(&mut worker, 1));
    let events: Vec<Value> = events
        .iter()
        .map(|event| serde_json::from_str(event).unwrap())
        .collect();
    let mut kinds: Vec<&str> = events
        .iter()
        .map(|event| event["type"].as_str().unwrap())
        .collect();
    kinds.dedup();
    assert_eq!(
        kinds,
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            "response.reasoning_text.delta",
            "response.reasoning_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.output_item.added",
            "response.function_call_arguments.delta",
            "response.function_call_arguments.done",
            "response.output_item.done",
            "response.completed",
        ]
    );
    let numbers: Vec<u64> = events
        .iter()
        .map(|event| event["sequence_number"].as_u64().unwrap())
        .collect();
    assert_eq!(numbers, (0..events.len() as u64).collect::<Vec<_>>());
    let whole = &events.last().unwrap()["response"];
    let output = whole["output"].as_array().unwrap();
    let kinds: Vec<&Value> = output.iter().map(|item| &item["type"]).collect();
    assert_eq!(kinds, ["reasoning", "message", "function_call"]);
    for (index, item) in output.iter().enumerate() {
        let of = |event: &&Value| event["output_index"] == index && event.get("item_id").is_some();
        let mut ids = events.iter().filter(of).map(|event| &event["item_id"]);
        assert!(ids.all(|id| *id == item["id"]), "item {index}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_response_that_is_cut_off_or_fails() {
    let (_model, _pki, gateway, mut worker) = with_hermes().await;
    let body = json!({"model": MODEL, "input": "Hi", "stream": true});
    for (fails, kind) in [(false, "response.incomplete"), (true, "response.failed")] {
        let serve = async {
            let mut call = worker.call().await;
            call.start().await;
            call.token(1, "<think>Hm").await;
            call.token(2, ".</think>Ye").await;
            if fails {
                call.fail("engine_failed", false).await;
            } else {
                call.finish("s", FinishReason::Length).await;
            }
        };
        let streamed = async {
            let mut stream = post_stream(gateway.address, RESPONSES, &body).await;
            stream.rest().await
        };
        let (events, ()) = tokio::join!(streamed, serve);
        let last: Value = serde_json::from_str(events.last().unwrap()).unwrap();
        assert_eq!(last["type"], kind, "{last:#}");
    }
    gateway.at_rest().await;
}

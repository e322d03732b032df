//! Answers that may call once: the generation ends with the first call.

use serde_json::{Value, json};
use tandem_wire::proto::FinishReason;

use crate::client::{Reply, post, post_stream};
use crate::harness::{CHAT, Gateway, MESSAGES, RESPONSES, with};
use crate::scripted_worker::{CACHED_TOKENS, MODEL, ScriptedWorker};
use crate::tools::{function, tooled, with_hermes};

/// A call in four tokens, and the beginning of a second one that nobody waits for.
const FIRST: [&str; 4] = [
    "One.",
    "<tool_call>\n{\"name\": \"weather\",",
    " \"arguments\": {\"city\"",
    ": \"Paris\"}}",
];
const SECOND: &str = "\n</tool_call>\n<tool_call>\n{\"name\": \"weather\", ";

/// Serves the call; its worker is told to stop.
async fn cut_off(worker: &mut ScriptedWorker) {
    let mut call = worker.call().await;
    call.start().await;
    for (token, text) in (1..).zip(FIRST) {
        call.token(token, text).await;
    }
    // It may still be on its way.
    call.try_say_token(9, SECOND).await;
    call.cancelled().await;
}

fn chats() -> Value {
    with(tooled(), json!({"parallel_tool_calls": false}))
}

fn responses() -> Value {
    let tool = with(function(), json!({"type": "function"}));
    json!({"model": MODEL, "input": "Hi", "tools": [tool], "parallel_tool_calls": false})
}

fn messages() -> Value {
    let tool = json!({"name": "weather", "input_schema": function()["parameters"]});
    let choice = json!({"type": "auto", "disable_parallel_tool_use": true});
    json!({
        "model": MODEL, "max_tokens": 99, "messages": [{"role": "user", "content": "Hi"}],
        "tools": [tool], "tool_choice": choice,
    })
}

async fn whole(gateway: &Gateway, worker: &mut ScriptedWorker, path: &str, body: &Value) -> Value {
    let (reply, ()) = tokio::join!(post(gateway.address, path, body), cut_off(worker));
    let reply: Reply = reply;
    assert_eq!(reply.status, 200, "{}", reply.body);
    gateway.at_rest().await;
    reply.json()
}

async fn events(
    gateway: &Gateway,
    worker: &mut ScriptedWorker,
    path: &str,
    body: &Value,
) -> Vec<Value> {
    let body = with(body.clone(), json!({"stream": true}));
    let (mut stream, ()) = tokio::join!(
        async {
            let mut stream = post_stream(gateway.address, path, &body).await;
            let events = stream.rest().await;
            (stream, events)
        },
        cut_off(worker)
    );
    gateway.at_rest().await;
    assert_eq!(stream.0.event().await, None);
    let json = |event: &String| serde_json::from_str(event).ok();
    stream.1.iter().filter_map(json).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chat_ends_with_its_only_call() {
    let (_model, _pki, gateway, mut worker) = with_hermes().await;
    let answer = whole(&gateway, &mut worker, CHAT, &chats()).await;
    let choice = &answer["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls");
    assert_eq!(choice["message"]["content"], "One.");
    assert_eq!(choice["message"]["tool_calls"].as_array().unwrap().len(), 1);
    let usage = &answer["usage"];
    assert_eq!(usage["completion_tokens"], FIRST.len());
    let cached = &usage["prompt_tokens_details"]["cached_tokens"];
    assert_eq!(*cached, CACHED_TOKENS);

    let options = json!({"stream_options": {"include_usage": true}});
    let body = with(chats(), options);
    let events = events(&gateway, &mut worker, CHAT, &body).await;
    let (usage, events) = events.split_last().unwrap();
    assert_eq!(usage["usage"]["completion_tokens"], FIRST.len());
    let last = &events.last().unwrap()["choices"][0];
    assert_eq!(last["finish_reason"], "tool_calls");
    let begun = events
        .iter()
        .filter(|event| !event["choices"][0]["delta"]["tool_calls"][0]["id"].is_null());
    assert_eq!(begun.count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_response_ends_with_its_only_call() {
    let (_model, _pki, gateway, mut worker) = with_hermes().await;
    let response = whole(&gateway, &mut worker, RESPONSES, &responses()).await;
    assert_eq!(response["status"], "completed");
    assert_eq!(response["output"].as_array().unwrap().len(), 2);
    assert_eq!(response["usage"]["output_tokens"], FIRST.len());

    let events = events(&gateway, &mut worker, RESPONSES, &responses()).await;
    let last = events.last().unwrap();
    assert_eq!(last["type"], "response.completed");
    assert_eq!(last["response"]["output"][1]["type"], "function_call");
    assert_eq!(last["response"]["usage"]["output_tokens"], FIRST.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_ends_with_its_only_call() {
    let (_model, _pki, gateway, mut worker) = with_hermes().await;
    let message = whole(&gateway, &mut worker, MESSAGES, &messages()).await;
    assert_eq!(message["stop_reason"], "tool_use");
    assert_eq!(message["content"].as_array().unwrap().len(), 2);
    assert_eq!(message["usage"]["output_tokens"], FIRST.len());

    let events = events(&gateway, &mut worker, MESSAGES, &messages()).await;
    let (last, events) = events.split_last().unwrap();
    assert_eq!(last["type"], "message_stop");
    let delta = events.last().unwrap();
    assert_eq!(delta["delta"]["stop_reason"], "tool_use");
    assert_eq!(delta["usage"]["output_tokens"], FIRST.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_without_a_call_goes_on_to_its_end() {
    let (_model, _pki, gateway, mut worker) = with_hermes().await;
    let serve = async {
        let mut call = worker.call().await;
        call.answer(&["No ", "call."], FinishReason::Length).await;
    };
    let body = chats();
    let (reply, ()) = tokio::join!(post(gateway.address, CHAT, &body), serve);
    let answer = reply.json();
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    assert_eq!(answer["choices"][0]["message"]["content"], "No call.");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_answers_only_call_leaves_the_others_alone() {
    let (_model, _pki, gateway, mut worker) = with_hermes().await;
    let body = with(chats(), json!({"n": 2, "seed": 1}));
    let serve = async {
        let (mut a, mut b) = (worker.call().await, worker.call().await);
        if a.generate.sampling.as_ref().unwrap().seed != 1 {
            std::mem::swap(&mut a, &mut b);
        }
        b.start().await;
        a.start().await;
        for (token, text) in (1..).zip(FIRST) {
            a.token(token, text).await;
        }
        a.cancelled().await;
        b.token(1, "Still here.").await;
        b.finish("", FinishReason::Stop).await;
    };
    let (reply, ()) = tokio::join!(post(gateway.address, CHAT, &body), serve);
    let answer = reply.json();
    assert_eq!(answer["choices"][0]["finish_reason"], "tool_calls");
    assert_eq!(answer["choices"][1]["message"]["content"], "Still here.");
    assert_eq!(answer["usage"]["completion_tokens"], FIRST.len() + 1);
    gateway.at_rest().await;
}

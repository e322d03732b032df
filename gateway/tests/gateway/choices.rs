//! One request, several answers.

use std::time::Duration;

use serde_json::{Value, json};
use tandem_wire::proto::FinishReason;

use crate::client::{post, post_stream};
use crate::harness::{CHAT, COMPLETIONS, chat, with, with_one_worker, with_one_worker_and};
use crate::scripted_worker::{CACHED_TOKENS, Call, MODEL, ScriptedWorker};

/// `n` calls, in the order of their prompts and seeds.
async fn calls(worker: &mut ScriptedWorker, n: usize) -> Vec<Call> {
    let mut calls = Vec::new();
    while calls.len() < n {
        calls.push(worker.call().await);
    }
    calls
}

fn seed(call: &Call) -> u64 {
    call.generate.sampling.as_ref().unwrap().seed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chat_with_several_answers_has_them_all_under_their_index() {
    let (_pki, gateway, mut worker) = with_one_worker().await;
    let body = with(chat(), json!({"n": 3, "seed": 5}));
    let serve = async {
        let mut calls = calls(&mut worker, 3).await;
        let seeds: std::collections::BTreeSet<u64> = calls.iter().map(seed).collect();
        assert_eq!(seeds.len(), 3, "each answer has a seed of its own");
        for call in &mut calls {
            let first = seed(call) == 5;
            let text = if first { "first" } else { "other" };
            call.answer(&[text, "."], FinishReason::Stop).await;
        }
        calls[0].generate.tokens.len()
    };
    let (reply, prompt) = tokio::join!(post(gateway.address, CHAT, &body), serve);
    assert_eq!(reply.status, 200, "{}", reply.body);
    let answer = reply.json();
    let choices = answer["choices"].as_array().unwrap();
    let indexes: Vec<&Value> = choices.iter().map(|choice| &choice["index"]).collect();
    assert_eq!(indexes, [0, 1, 2]);
    assert_eq!(choices[0]["message"]["content"], "first.");
    assert_eq!(choices[2]["message"]["content"], "other.");
    let usage = &answer["usage"];
    assert_eq!(
        (&usage["prompt_tokens"], &usage["completion_tokens"]),
        (&json!(prompt), &json!(6))
    );
    assert_eq!(
        usage["prompt_tokens_details"]["cached_tokens"],
        CACHED_TOKENS
    );
    gateway.at_rest().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prompts_and_answers_are_numbered_prompt_by_prompt() {
    let (_pki, gateway, mut worker) = with_one_worker().await;
    let body = json!({"model": MODEL, "prompt": [[5], [6, 7]], "n": 2, "seed": 1, "echo": true});
    let serve = async {
        for call in &mut calls(&mut worker, 4).await {
            let which = format!(
                "{}-{}",
                call.generate.tokens.len(),
                u8::from(seed(call) != 1)
            );
            call.answer(&[&which], FinishReason::Length).await;
        }
    };
    let (reply, ()) = tokio::join!(post(gateway.address, COMPLETIONS, &body), serve);
    let answer = reply.json();
    let texts = answer["choices"].as_array().unwrap().iter().map(|choice| {
        let text = choice["text"].as_str().unwrap();
        text[text.len() - 3..].to_owned()
    });
    assert_eq!(texts.collect::<Vec<_>>(), ["1-0", "1-1", "2-0", "2-1"]);
    assert!(
        answer["choices"][3]["text"].as_str().unwrap().len() > 3,
        "the prompt is repeated"
    );
    assert_eq!(answer["usage"]["prompt_tokens"], 3);
    assert_eq!(answer["usage"]["completion_tokens"], 4);
    // One prompt of one token, one of two, and all of them were cached.
    assert_eq!(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streamed_answers_are_interleaved_and_end_with_one_usage_and_one_done() {
    let (_pki, gateway, mut worker) = with_one_worker().await;
    let options = json!({"include_usage": true, "continuous_usage_stats": true});
    let body = with(
        chat(),
        json!({"n": 2, "stream": true, "stream_options": options}),
    );
    let serve = async {
        let mut calls = calls(&mut worker, 2).await;
        for call in &mut calls {
            call.start().await;
            call.token(1, "a").await;
        }
        for call in calls.iter_mut().rev() {
            call.token(2, "b").await;
            call.finish("", FinishReason::Stop).await;
        }
    };
    let (mut stream, ()) = tokio::join!(post_stream(gateway.address, CHAT, &body), serve);
    let events = stream.rest().await;
    assert_eq!(events.iter().filter(|event| *event == "[DONE]").count(), 1);
    assert_eq!(events.last().unwrap(), "[DONE]");
    let events: Vec<Value> = events[..events.len() - 1]
        .iter()
        .map(|event| serde_json::from_str(event).unwrap())
        .collect();
    let (last, events) = events.split_last().unwrap();
    assert_eq!(last["choices"], json!([]));
    assert_eq!(last["usage"]["completion_tokens"], 4);
    for index in 0..2 {
        let mine: Vec<&Value> = events
            .iter()
            .filter(|event| event["choices"][0]["index"] == index)
            .collect();
        let delta = |n: usize| &mine[n]["choices"][0]["delta"];
        assert_eq!(mine.len(), 4);
        assert_eq!(delta(0), &json!({"role": "assistant", "content": ""}));
        assert_eq!(
            (delta(1), delta(2)),
            (&json!({"content": "a"}), &json!({"content": "b"}))
        );
        assert_eq!(mine[3]["choices"][0]["finish_reason"], "stop");
        assert_eq!(mine[1]["usage"]["completion_tokens"], 1);
        assert_eq!(mine[2]["usage"]["completion_tokens"], 2);
    }
    gateway.at_rest().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_answer_that_fails_ends_the_others() {
    let (_pki, gateway, mut worker) = with_one_worker().await;
    for stream in [false, true] {
        let body = with(chat(), json!({"n": 3, "stream": stream}));
        let serve = async {
            let mut calls = calls(&mut worker, 3).await;
            for call in &mut calls {
                call.start().await;
            }
            calls[1].fail("engine_failed", false).await;
            calls.remove(1);
            for call in &mut calls {
                call.cancelled().await;
            }
        };
        let (reply, ()) = tokio::join!(post(gateway.address, CHAT, &body), serve);
        assert_eq!(
            (reply.status.as_u16(), reply.code()),
            (502, "engine_failed".into())
        );
        gateway.at_rest().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_there_is_no_place_for_all_none_is_begun() {
    let change = |config: &mut tandem_config::GatewayConfig| {
        config.max_connections = 3;
        config.queue_limit = 1;
    };
    let (_pki, gateway, mut worker) = with_one_worker_and(change).await;
    let body = with(chat(), json!({"n": 5}));
    let reply = post(gateway.address, CHAT, &body).await;
    assert_eq!(
        (reply.status.as_u16(), reply.code()),
        (503, "overloaded".into())
    );
    assert!(reply.header("retry-after").is_some());
    assert!(worker.is_left_alone(Duration::from_millis(100)).await);
    gateway.at_rest().await;
}

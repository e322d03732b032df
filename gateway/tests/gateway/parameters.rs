//! What a client asks for reaches the worker.

use serde_json::{Value, json};
use tandem_wire::proto::constraint::Kind;
use tandem_wire::proto::{self, FinishReason};

use crate::client::{post, post_stream};
use crate::harness::{CHAT, COMPLETIONS, Gateway, chat, with, with_one_worker};
use crate::scripted_worker::{MODEL, ScriptedWorker};

/// What the worker hears of a request that it answers with one token.
async fn heard(
    gateway: &Gateway,
    worker: &mut ScriptedWorker,
    path: &str,
    body: &Value,
) -> proto::Generate {
    let serve = async {
        let mut call = worker.call().await;
        call.answer(&["x"], FinishReason::Stop).await;
        call.generate
    };
    let (reply, generate) = tokio::join!(post(gateway.address, path, body), serve);
    assert_eq!(reply.status, 200, "{}", reply.body);
    generate
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_parameter_reaches_the_worker() {
    let (_pki, gateway, mut worker) = with_one_worker().await;
    let body = with(
        chat(),
        json!({
            "temperature": 0.5, "top_p": 0.25, "top_k": 7, "min_p": 0.125, "seed": -1,
            "presence_penalty": 1.5, "frequency_penalty": -0.5, "repetition_penalty": 1.25,
            "logit_bias": {"50": -100, "7": 2.5}, "stop": ["a", "b"], "stop_token_ids": [9],
            "min_tokens": 2, "ignore_eos": true, "user": "u", "metadata": {"a": "b"},
            "priority": -3, "prompt_cache_key": "k", "safety_identifier": "s",
            "service_tier": "auto", "store": false, "parallel_tool_calls": true, "tools": [],
            "tool_choice": "none", "reasoning_effort": "none", "modalities": ["text"],
            "logprobs": null, "n": 1,
        }),
    );
    let generate = heard(&gateway, &mut worker, CHAT, &body).await;
    let sampling = generate.sampling.unwrap();
    let mut bias = sampling.logit_bias.clone();
    bias.sort_by_key(|bias| bias.token);
    let entry = |token, bias| proto::LogitBias { token, bias };
    assert_eq!(bias, [entry(7, 2.5), entry(50, -100.0)]);
    let want = proto::Sampling {
        temperature: 0.5,
        top_p: 0.25,
        top_k: 7,
        seed: u64::MAX,
        min_p: 0.125,
        presence_penalty: 1.5,
        frequency_penalty: -0.5,
        repetition_penalty: Some(1.25),
        logit_bias: sampling.logit_bias.clone(),
        ..proto::Sampling::default()
    };
    assert_eq!(sampling, want);
    let want = proto::Stop {
        max_tokens: 8,
        texts: vec!["a".into(), "b".into()],
        ignore_eos: true,
        min_tokens: 2,
        token_ids: vec![9],
    };
    assert_eq!(generate.stop.unwrap(), want);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_form_of_the_answer_reaches_the_worker() {
    let (_pki, gateway, mut worker) = with_one_worker().await;
    let schema = json!({"type": "object", "properties": {"b": {}, "a": {}}});
    let named = json!({"name": "n", "strict": true, "description": "d", "schema": schema});
    for (members, want) in [
        (
            json!({"response_format": {"type": "json_schema", "json_schema": named}}),
            Some(Kind::JsonSchema(schema.to_string())),
        ),
        (
            json!({"response_format": {"type": "json_object"}}),
            Some(Kind::JsonSchema("{\"type\":\"object\"}".into())),
        ),
        (json!({"response_format": {"type": "text"}}), None),
        (
            json!({"structured_outputs": {"regex": "[ab]+"}}),
            Some(Kind::Regex("[ab]+".into())),
        ),
        (
            json!({"guided_choice": ["yes", "no"]}),
            Some(Kind::Lark("start: \"yes\" | \"no\"".into())),
        ),
    ] {
        let generate = heard(&gateway, &mut worker, CHAT, &with(chat(), members)).await;
        let constraint = generate.sampling.unwrap().constraint;
        assert_eq!(constraint.and_then(|constraint| constraint.kind), want);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_seed_no_two_answers_have_the_same() {
    let (_pki, gateway, mut worker) = with_one_worker().await;
    let mut seeds = std::collections::BTreeSet::new();
    for _ in 0..4 {
        let generate = heard(&gateway, &mut worker, CHAT, &chat()).await;
        assert!(seeds.insert(generate.sampling.unwrap().seed));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_can_go_on_from_the_last_message() {
    let (_pki, gateway, mut worker) = with_one_worker().await;
    let messages = json!([
        {"role": "user", "content": "Name a city."},
        {"role": "assistant", "content": "The city of Pa"},
    ]);
    let plain = with(chat(), json!({"messages": messages}));
    let going_on = with(plain.clone(), json!({"continue_final_message": true}));
    let whole = heard(&gateway, &mut worker, CHAT, &plain).await.tokens;
    let begun = heard(&gateway, &mut worker, CHAT, &going_on).await.tokens;
    assert!(whole.starts_with(&begun), "{whole:?} {begun:?}");
    assert!(begun.len() < whole.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prompt_is_repeated_where_that_is_asked_for() {
    let (_pki, gateway, mut worker) = with_one_worker().await;
    for stream in [false, true] {
        let prompt = "Once upon";
        let body = json!({"model": MODEL, "prompt": prompt, "echo": true, "stream": stream});
        let serve = async {
            worker
                .call()
                .await
                .answer(&[" a", " time"], FinishReason::Length)
                .await;
        };
        if stream {
            let (mut stream, ()) =
                tokio::join!(post_stream(gateway.address, COMPLETIONS, &body), serve);
            let texts: String = stream
                .rest()
                .await
                .iter()
                .filter_map(|event| serde_json::from_str::<Value>(event).ok())
                .map(|event| event["choices"][0]["text"].as_str().unwrap().to_owned())
                .collect();
            assert_eq!(texts, "Once upon a time");
        } else {
            let (reply, ()) = tokio::join!(post(gateway.address, COMPLETIONS, &body), serve);
            assert_eq!(reply.json()["choices"][0]["text"], "Once upon a time");
        }
    }
}

//! Answers have OpenAI's shapes.

use http_body_util::BodyExt;
use serde_json::{Value, json};
use tandem_wire::proto;
use tandem_wire::proto::FinishReason;
use tandem_wire::proto::generate_reply::Kind;

use crate::client::{get, http2, post, post_stream};
use crate::harness::{CHAT, COMPLETIONS, chat, with, with_one_worker};
use crate::scripted_worker::{CACHED_TOKENS, MODEL};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chat_is_answered_whole() {
    let (_pki, gateway, mut worker) = with_one_worker().await;
    let body = with(
        chat(),
        json!({"temperature": 0, "seed": 5, "stop": "x", "user": null}),
    );
    let serve = async {
        let mut call = worker.call().await;
        let generate = call.generate.clone();
        call.start().await;
        call.token(1, "Par").await;
        call.token(2, "").await;
        call.token(3, "is").await;
        call.finish(".", FinishReason::Stop).await;
        generate
    };
    let (reply, generate) = tokio::join!(post(gateway.address, CHAT, &body), serve);
    assert_eq!(reply.status, 200, "{}", reply.body);
    let answer = reply.json();
    assert!(answer["id"].as_str().unwrap().starts_with("chatcmpl-"));
    assert_eq!(answer["object"], "chat.completion");
    assert_eq!(answer["model"], MODEL);
    assert_eq!(answer["system_fingerprint"], "tandem-0123456789ab");
    let message = json!({"role": "assistant", "content": "Paris.", "refusal": null});
    let choice = json!({"index": 0, "message": message, "logprobs": null, "finish_reason": "stop"});
    assert_eq!(answer["choices"], json!([choice]));
    let prompt = generate.tokens.len();
    let usage = json!({
        "prompt_tokens": prompt,
        "completion_tokens": 3,
        "total_tokens": prompt + 3,
        "prompt_tokens_details": {"cached_tokens": CACHED_TOKENS},
        "completion_tokens_details": {"reasoning_tokens": 0},
    });
    assert_eq!(answer["usage"], usage);
    assert!(reply.header("x-request-id").is_some());

    let sampling = generate.sampling.unwrap();
    assert_eq!(
        (sampling.temperature, sampling.top_p, sampling.seed),
        (0.0, 1.0, 5)
    );
    let stop = generate.stop.unwrap();
    assert_eq!((stop.max_tokens, stop.texts), (8, vec!["x".to_owned()]));
    assert_eq!(generate.request.len(), 16);
    assert!(generate.prefill.is_none());
    assert!((1..=30_000).contains(&generate.time_left_ms));
    gateway.at_rest().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chat_streams_token_by_token() {
    let (_pki, gateway, mut worker) = with_one_worker().await;
    let options = json!({"stream": true, "stream_options": {"include_usage": true}});
    let body = with(chat(), options);
    let first = async {
        let mut call = worker.call().await;
        call.start().await;
        call.token(1, "Hel").await;
        call
    };
    let (mut stream, mut call) = tokio::join!(post_stream(gateway.address, CHAT, &body), first);
    assert_eq!(stream.status, 200);
    assert_eq!(stream.headers["content-type"], "text/event-stream");
    assert_eq!(stream.headers["cache-control"], "no-cache");
    assert_eq!(stream.headers["x-accel-buffering"], "no");
    let opening = stream.json().await;
    assert_eq!(opening["object"], "chat.completion.chunk");
    assert_eq!(
        opening["choices"][0]["delta"],
        json!({"role": "assistant", "content": ""})
    );
    assert_eq!(opening["usage"], Value::Null);
    // Each token comes before the next one is sent: nothing is held back.
    assert_eq!(
        stream.json().await["choices"][0]["delta"],
        json!({"content": "Hel"})
    );
    call.token(2, "").await;
    call.token(3, "lo").await;
    let event = stream.json().await;
    assert_eq!(event["choices"][0]["delta"], json!({"content": "lo"}));
    assert_eq!(event["choices"][0]["finish_reason"], Value::Null);
    assert_eq!(event["id"], opening["id"]);
    call.finish("!", FinishReason::Length).await;
    assert_eq!(
        stream.json().await["choices"][0]["delta"],
        json!({"content": "!"})
    );
    let end = stream.json().await;
    assert_eq!(end["choices"][0]["delta"], json!({}));
    assert_eq!(end["choices"][0]["finish_reason"], "length");
    assert!(end.as_object().unwrap()["usage"].is_null());
    let usage = stream.json().await;
    assert_eq!(usage["choices"], json!([]));
    assert_eq!(usage["usage"]["completion_tokens"], 3);
    assert_eq!(stream.rest().await, ["[DONE]"]);
    gateway.at_rest().await;
    assert_eq!(
        gateway.metric("tandem_generation_tokens_total").await,
        Some(3.0)
    );
    assert_eq!(
        gateway
            .metric("tandem_time_to_first_token_seconds_count")
            .await,
        Some(1.0)
    );
    assert_eq!(
        gateway
            .metric("tandem_time_per_output_token_seconds_count")
            .await,
        Some(1.0)
    );
    let total = r#"tandem_requests_total{endpoint="chat",code="200"}"#;
    assert_eq!(gateway.metric(total).await, Some(1.0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn completions_take_text_and_tokens() {
    let (_pki, gateway, mut worker) = with_one_worker().await;
    for (prompt, tokens) in [
        (json!([5, 6, 7]), Some(vec![5, 6, 7])),
        (json!([[5, 6]]), Some(vec![5, 6])),
        (json!("Once upon"), None),
        (json!(["Once upon"]), None),
    ] {
        let body = json!({"model": MODEL, "prompt": prompt});
        let serve = async {
            let mut call = worker.call().await;
            call.start().await;
            call.token(1, "a").await;
            call.finish("b", FinishReason::Length).await;
            call.generate.clone()
        };
        let (reply, generate) = tokio::join!(post(gateway.address, COMPLETIONS, &body), serve);
        let answer = reply.json();
        assert_eq!(answer["object"], "text_completion", "{}", reply.body);
        assert!(answer["id"].as_str().unwrap().starts_with("cmpl-"));
        assert_eq!(answer["choices"][0]["text"], "ab");
        assert_eq!(answer["choices"][0]["finish_reason"], "length");
        // OpenAI's default.
        assert_eq!(generate.stop.unwrap().max_tokens, 16);
        assert!(!generate.tokens.is_empty());
        if let Some(tokens) = tokens {
            assert_eq!(generate.tokens, tokens);
        }
    }
    let body = json!({"model": MODEL, "prompt": "x", "stream": true});
    let serve = async {
        let mut call = worker.call().await;
        call.start().await;
        call.token(1, "a").await;
        call.finish("", FinishReason::Stop).await;
    };
    let (mut stream, ()) = tokio::join!(post_stream(gateway.address, COMPLETIONS, &body), serve);
    let first = stream.json().await;
    assert_eq!(first["object"], "text_completion");
    assert_eq!(first["choices"][0]["text"], "a");
    assert!(first.get("usage").is_none());
    assert_eq!(stream.json().await["choices"][0]["finish_reason"], "stop");
    assert_eq!(stream.rest().await, ["[DONE]"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_probabilities_come_where_they_are_asked_for() {
    let (_pki, gateway, mut worker) = with_one_worker().await;
    let body = with(chat(), json!({"logprobs": true, "top_logprobs": 2}));
    let serve = async {
        let mut call = worker.call().await;
        assert_eq!(call.generate.sampling.as_ref().unwrap().logprobs, Some(2));
        call.start().await;
        let entry = |text: &str, logprob| proto::Logprob {
            token: 9,
            bytes: text.to_owned().into(),
            logprob,
        };
        let token = proto::Token {
            token: 9,
            text: "yes".into(),
            logprobs: vec![entry("yes", -0.5), entry("yes", -0.5), entry("no", -1.5)],
        };
        call.say(Kind::Token(token)).await;
        call.finish("", FinishReason::Stop).await;
    };
    let (reply, ()) = tokio::join!(post(gateway.address, CHAT, &body), serve);
    let content = &reply.json()["choices"][0]["logprobs"]["content"][0];
    assert_eq!(content["token"], "yes");
    assert_eq!(content["logprob"], -0.5);
    assert_eq!(content["top_logprobs"][1]["token"], "no");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_other_pages_tell_what_is_there() {
    let (_pki, gateway, worker) = with_one_worker().await;
    let models = get(gateway.address, "/v1/models").await.json();
    assert_eq!(models["object"], "list");
    assert_eq!(models["data"][0]["id"], MODEL);
    assert_eq!(models["data"][0]["max_model_len"], 8192);
    let one = get(gateway.address, &format!("/v1/models/{MODEL}")).await;
    assert_eq!(one.json(), models["data"][0]);
    assert_eq!(
        get(gateway.address, "/v1/models/other").await.code(),
        "model_not_found"
    );
    assert_eq!(get(gateway.address, "/health").await.status, 200);
    let status = gateway.status().await;
    let row = &status["workers"][0];
    assert_eq!(status["model"], MODEL);
    assert_eq!(row["id"], "both-0");
    assert_eq!(row["role"], "both");
    assert_eq!(row["state"], "ready");
    assert_eq!(row["address"], worker.address.to_string());
    assert_eq!(
        (&row["provider"], &row["software"]),
        (&json!("tcp"), &json!(true))
    );
    assert_eq!(
        (&row["pages"]["total"], &row["pages"]["free"]),
        (&json!(64), &json!(64))
    );
    let free = r#"tandem_kv_pages{worker="both-0",role="both",state="free"}"#;
    assert_eq!(gateway.metric(free).await, Some(64.0));
    let fenced = r#"tandem_kv_pages{worker="both-0",role="both",state="quarantined"}"#;
    assert_eq!(gateway.metric(fenced).await, Some(0.0));
    let up = r#"tandem_worker_up{worker="both-0",role="both"}"#;
    assert_eq!(gateway.metric(up).await, Some(1.0));
    worker.die();
    crate::harness::eventually("gone", || async { gateway.metric(up).await == Some(0.0) }).await;
    assert_eq!(gateway.metric(free).await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_2_streams_too_and_a_reset_stream_cancels() {
    let (_pki, gateway, mut worker) = with_one_worker().await;
    let body = with(chat(), json!({"stream": true}));
    let (mut sender, _connection) = http2(gateway.address).await;
    let ask = || {
        let uri = format!("http://{}{CHAT}", gateway.address);
        http::Request::post(uri).body(body.to_string()).unwrap()
    };
    let serve = async {
        let mut call = worker.call().await;
        call.start().await;
        call.token(1, "a").await;
        call.finish("", FinishReason::Stop).await;
    };
    let (reply, ()) = tokio::join!(sender.send_request(ask()), serve);
    let reply = reply.unwrap();
    assert_eq!(reply.status(), 200);
    let text = reply.into_body().collect().await.unwrap().to_bytes();
    assert!(text.ends_with(b"data: [DONE]\n\n"));

    let serve = async {
        let mut call = worker.call().await;
        call.start().await;
        call.token(1, "a").await;
        call
    };
    let (reply, mut call) = tokio::join!(sender.send_request(ask()), serve);
    drop(reply);
    call.cancelled().await;
    gateway.at_rest().await;
}

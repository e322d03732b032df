//! Every request ends, and everybody hears of it.

use std::time::Duration;

use serde_json::{Value, json};
use tandem_wire::proto;
use tandem_wire::proto::FinishReason;
use tandem_wire::proto::generate_reply::Kind;
use tandem_wire::task::spawn;
use tokio::time::Instant;

use crate::client::{post, post_stream};
use crate::harness::{CHAT, chat, eventually, with, with_one_worker, with_one_worker_and};

fn streamed() -> Value {
    with(chat(), json!({"stream": true}))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_before_the_first_token_is_an_http_error_streamed_or_not() {
    let (_pki, gateway, mut worker) = with_one_worker().await;
    for body in [chat(), streamed()] {
        for (code, elsewhere, status) in [
            ("engine_failed", true, 503),
            ("odd", false, 502),
            ("deadline_exceeded", false, 504),
        ] {
            let fail = async {
                let mut call = worker.call().await;
                call.start().await;
                call.fail(code, elsewhere).await;
            };
            let (reply, ()) = tokio::join!(post(gateway.address, CHAT, &body), fail);
            assert_eq!(reply.status, status, "{}", reply.body);
            assert_eq!(reply.error()["message"], "It broke.");
            assert_eq!(reply.header("retry-after").is_some(), elsewhere);
        }
        let nothing = async {
            let mut call = worker.call().await;
            call.start().await;
            call.finish("", FinishReason::Cancelled).await;
        };
        let (reply, ()) = tokio::join!(post(gateway.address, CHAT, &body), nothing);
        assert_eq!(
            (reply.status.as_u16(), reply.code()),
            (502, "cancelled".into())
        );
    }
    gateway.at_rest().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_after_the_first_token_is_an_event_and_a_clean_end() {
    let (_pki, gateway, mut worker) = with_one_worker().await;
    let body = streamed();
    let fail = async {
        let mut call = worker.call().await;
        call.start().await;
        call.token(1, "a").await;
        call.fail("engine_failed", true).await;
    };
    let (mut stream, ()) = tokio::join!(post_stream(gateway.address, CHAT, &body), fail);
    let events = stream.rest().await;
    assert_eq!(events.len(), 4, "{events:?}");
    let error: Value = serde_json::from_str(&events[2]).unwrap();
    assert_eq!(error["error"]["code"], "engine_failed");
    assert_eq!(error["error"].as_object().unwrap().len(), 4);
    assert_eq!(events[3], "[DONE]");
    gateway.at_rest().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_lost_in_mid_stream_is_an_event_and_a_clean_end() {
    let (_pki, gateway, mut worker) = with_one_worker().await;
    let address = gateway.address;
    let waiting = spawn("client", async move { post(address, CHAT, &chat()).await });
    let mut unanswered = worker.call().await;
    unanswered.start().await;
    let body = streamed();
    let begin = async {
        let mut call = worker.call().await;
        call.start().await;
        call.token(1, "a").await;
        call
    };
    let (mut stream, _call) = tokio::join!(post_stream(address, CHAT, &body), begin);
    worker.die();
    let events = stream.rest().await;
    assert_eq!(events.len(), 4, "{events:?}");
    assert!(events[2].contains("decode_lost"), "{events:?}");
    assert_eq!(events[3], "[DONE]");
    let reply = waiting.join().await.unwrap();
    assert_eq!(
        (reply.status.as_u16(), reply.code()),
        (502, "decode_lost".into())
    );
    eventually("without workers", || async {
        post(address, CHAT, &chat()).await.status == 503
    })
    .await;
    gateway.at_rest().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_cancels_its_request_at_every_stage() {
    let (_pki, gateway, mut worker) = with_one_worker().await;
    let address = gateway.address;
    for body in [chat(), streamed()] {
        for stage in 0..3 {
            let asking = body.clone();
            let client = spawn("client", async move {
                let mut stream = post_stream(address, CHAT, &asking).await;
                stream.rest().await
            });
            let mut call = worker.call().await;
            if stage > 0 {
                call.start().await;
            }
            if stage > 1 {
                call.token(1, "a").await;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            drop(client);
            call.cancelled().await;
            gateway.at_rest().await;
        }
    }
    let gone = r#"tandem_requests_total{endpoint="chat",code="499"}"#;
    assert_eq!(gateway.metric(gone).await, Some(5.0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_never_answers_costs_no_more_than_the_deadline() {
    let change = |config: &mut tandem_config::GatewayConfig| {
        config.request_timeout = Duration::from_millis(800);
    };
    let (_pki, gateway, mut worker) = with_one_worker_and(change).await;
    for stage in 0..2 {
        let body = chat();
        let started = Instant::now();
        let silent = async {
            let mut call = worker.call().await;
            if stage > 0 {
                call.start().await;
            }
            call.cancelled().await;
        };
        let (reply, ()) = tokio::join!(post(gateway.address, CHAT, &body), silent);
        assert_eq!(
            (reply.status.as_u16(), reply.code()),
            (504, "timeout".into())
        );
        assert!(started.elapsed() < Duration::from_secs(3));
    }
    let body = streamed();
    let begin = async {
        let mut call = worker.call().await;
        call.start().await;
        call.token(1, "a").await;
        call
    };
    let (mut stream, mut call) = tokio::join!(post_stream(gateway.address, CHAT, &body), begin);
    let events = stream.rest().await;
    assert!(events[2].contains("\"code\":\"timeout\""), "{events:?}");
    assert_eq!(events[3], "[DONE]");
    call.cancelled().await;
    gateway.at_rest().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_does_not_read_holds_its_place_no_longer_than_the_deadline() {
    let change = |config: &mut tandem_config::GatewayConfig| {
        config.request_timeout = Duration::from_millis(1500);
    };
    let (_pki, gateway, mut worker) = with_one_worker_and(change).await;
    let body = streamed();
    let begin = async {
        let mut call = worker.call().await;
        call.start().await;
        call.token(1, "a").await;
        call
    };
    let (stream, mut call) = tokio::join!(post_stream(gateway.address, CHAT, &body), begin);
    let pour = spawn("pour", async move {
        let text = "x".repeat(64 << 10);
        loop {
            call.token(2, &text).await;
        }
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(gateway.status().await["gateway"]["in_flight"], 1);
    gateway.at_rest().await;
    drop((stream, pour));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_stops_lets_requests_end_or_cancels_them() {
    let (_pki, gateway, mut worker) = with_one_worker().await;
    let address = gateway.address;
    let body = streamed();
    let begin = async {
        let mut call = worker.call().await;
        call.start().await;
        call.token(1, "a").await;
        call
    };
    let (mut stream, mut call) = tokio::join!(post_stream(address, CHAT, &body), begin);
    let (mut kept, mut late) = {
        let begin = async {
            let mut call = worker.call().await;
            call.start().await;
            call.token(1, "a").await;
            call
        };
        tokio::join!(post_stream(address, CHAT, &body), begin)
    };
    let stopping = spawn("stop", gateway.stop());
    tokio::time::sleep(Duration::from_millis(200)).await;
    call.token(2, "b").await;
    call.finish("", FinishReason::Stop).await;
    let events = stream.rest().await;
    assert_eq!(events.last().unwrap(), "[DONE]");
    assert!(events.iter().any(|event| event.contains("\"b\"")));
    late.cancelled().await;
    let events = kept.rest().await;
    assert_eq!(events.len(), 4, "{events:?}");
    assert!(events[2].contains("\"stopping\""), "{events:?}");
    assert_eq!(events[3], "[DONE]");
    let took = stopping.join().await.unwrap();
    assert!(took < Duration::from_secs(4), "{took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_many_requests_of_which_a_third_was_cut_nothing_is_left() {
    let change = |config: &mut tandem_config::GatewayConfig| config.queue_limit = 64;
    let (_pki, gateway, mut worker) = with_one_worker_and(change).await;
    let address = gateway.address;
    let serve = spawn("worker", async move {
        let mut calls = Vec::new();
        while let Some(mut call) = worker.maybe_call().await {
            calls.push(spawn("call", async move {
                for kind in script() {
                    // Fails where the client has left and the stream is gone.
                    if !call.try_say(kind).await {
                        return;
                    }
                    tokio::time::sleep(Duration::from_millis(3)).await;
                }
            }));
        }
    });
    let mut clients = Vec::new();
    for n in 0..60_u64 {
        let body = if n % 2 == 0 { chat() } else { streamed() };
        let client = spawn(
            "client",
            async move { post(address, CHAT, &body).await.status },
        );
        clients.push(spawn("judge", async move {
            if n % 3 == 0 {
                tokio::time::sleep(Duration::from_millis(n * 7 % 40)).await;
                drop(client);
            } else {
                assert_eq!(client.join().await.unwrap(), 200);
            }
        }));
    }
    for client in clients {
        client.join().await.expect("no client failed");
    }
    gateway.at_rest().await;
    drop(serve);
}

fn script() -> Vec<Kind> {
    let token = |n: u32| {
        Kind::Token(proto::Token {
            token: n,
            text: format!("{n} "),
            logprobs: vec![],
        })
    };
    let mut script = vec![
        Kind::Reserved(proto::Reserved {
            pages: 1,
            held_tokens: 0,
        }),
        Kind::Started(proto::Started::default()),
    ];
    script.extend((100..108).map(token));
    let reason = FinishReason::Length.into();
    script.push(Kind::Finished(proto::Finished {
        text: String::new(),
        reason,
        cached_tokens: 0,
        ..proto::Finished::default()
    }));
    script
}

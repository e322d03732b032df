//! Who joins, who waits, who is asked.

use std::time::Duration;

use serde_json::json;
use tandem_core::WorkerId;
use tandem_wire::proto;
use tandem_wire::proto::FinishReason;
use tandem_wire::proto::refusal::Reason;
use tandem_wire::task::spawn;

use crate::client::{get, post};
use crate::harness::{
    CHAT, Gateway, chat, config, eventually, pki, with, with_one_worker, with_one_worker_and,
};
use crate::scripted_worker::{PAGES, ScriptedWorker, free_pages, welcome};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_decode_worker_is_asked_and_told_who_computes_the_prompt() {
    let pki = pki();
    let prefill = ScriptedWorker::start(pki.path(), welcome("prefill-0", proto::Role::Prefill));
    let config = config(&pki, vec![prefill.address]);
    let gateway = Gateway::start(config).await;
    eventually("half ready", || async {
        get(gateway.address, "/ready").await.json()["missing"] == json!(["decode"])
    })
    .await;
    gateway.stop().await;

    let mut decode = ScriptedWorker::start(pki.path(), welcome("decode-0", proto::Role::Decode));
    let workers = vec![prefill.address, decode.address];
    let gateway = Gateway::start(crate::harness::config(&pki, workers)).await;
    gateway.ready().await;
    let serve = async {
        let mut call = decode.call().await;
        call.start().await;
        call.token(1, "x").await;
        call.finish("", FinishReason::Stop).await;
        call.generate.prefill.clone().unwrap()
    };
    let body = chat();
    let (reply, peer) = tokio::join!(post(gateway.address, CHAT, &body), serve);
    assert_eq!(reply.status, 200);
    assert_eq!((peer.worker.as_str(), peer.incarnation), ("prefill-0", 7));
    assert_eq!(peer.address, prefill.address.to_string());
    gateway.at_rest().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_waits_while_there_is_no_room_and_is_served_when_there_is() {
    let (_pki, gateway, mut worker) = with_one_worker().await;
    let address = gateway.address;
    let body = with(chat(), json!({"max_tokens": 600}));
    let asking = body.clone();
    let waiting = spawn("client", async move { post(address, CHAT, &asking).await });
    let mut call = worker.call().await;
    // The worker's own word counts, whatever its last report said.
    worker.report(free_pages(0));
    call.refuse(Reason::NoRoom, "full").await;
    eventually("queued", || async {
        gateway.status().await["gateway"]["queued"] == 1
    })
    .await;
    assert_eq!(gateway.metric("tandem_requests_queued").await, Some(1.0));
    assert!(worker.is_left_alone(Duration::from_millis(300)).await);
    // The queue is bounded.
    let more: Vec<_> = (0..3)
        .map(|_| {
            let body = body.clone();
            spawn("client", async move { post(address, CHAT, &body).await })
        })
        .collect();
    eventually("full", || async {
        gateway.status().await["gateway"]["queued"] == 4
    })
    .await;
    let reply = post(address, CHAT, &body).await;
    assert_eq!(
        (reply.status.as_u16(), reply.code()),
        (503, "queue_full".into())
    );
    assert_eq!(reply.header("retry-after"), Some("1"));
    // Clients that leave leave the queue.
    drop(more);
    eventually("shorter", || async {
        gateway.status().await["gateway"]["queued"] == 1
    })
    .await;
    worker.report(free_pages(PAGES));
    let mut call = worker.call().await;
    call.start().await;
    call.token(1, "late").await;
    call.finish("", FinishReason::Stop).await;
    let reply = waiting.join().await.unwrap();
    assert_eq!(reply.json()["choices"][0]["message"]["content"], "late");
    gateway.at_rest().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_waits_too_long_is_turned_away_with_the_reason() {
    let change = |config: &mut tandem_config::GatewayConfig| {
        config.request_timeout = Duration::from_millis(700);
    };
    let (_pki, gateway, worker) = with_one_worker_and(change).await;
    worker.report(free_pages(0));
    tokio::time::sleep(Duration::from_millis(300)).await;
    let reply = post(gateway.address, CHAT, &chat()).await;
    assert_eq!(
        (reply.status.as_u16(), reply.code()),
        (503, "queue_timeout".into())
    );
    assert!(reply.header("retry-after").is_some());
    gateway.at_rest().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_is_tried_again_elsewhere_or_never() {
    let (_pki, gateway, mut worker) = with_one_worker().await;
    let body = chat();
    let busy = async {
        for _ in 0..4 {
            worker
                .call()
                .await
                .refuse(Reason::Busy, "the queue is full")
                .await;
        }
    };
    let (reply, ()) = tokio::join!(post(gateway.address, CHAT, &body), busy);
    assert_eq!(
        (reply.status.as_u16(), reply.code()),
        (503, "workers_refused".into())
    );
    assert!(reply.header("retry-after").is_some());
    let never = async {
        worker
            .call()
            .await
            .refuse(Reason::Invalid, "no such token")
            .await
    };
    let (reply, ()) = tokio::join!(post(gateway.address, CHAT, &body), never);
    assert_eq!(
        (reply.status.as_u16(), reply.code()),
        (400, "request_refused".into())
    );
    assert!(reply.body.contains("no such token"));
    let second_time = async {
        worker
            .call()
            .await
            .refuse(Reason::StalePeer, "restarted")
            .await;
        let mut call = worker.call().await;
        call.start().await;
        call.token(1, "ok").await;
        call.finish("", FinishReason::Stop).await;
    };
    let (reply, ()) = tokio::join!(post(gateway.address, CHAT, &body), second_time);
    assert_eq!(reply.status, 200);
    gateway.at_rest().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_does_not_fit_is_refused_with_both_values() {
    let pki = pki();
    let first = ScriptedWorker::start(pki.path(), welcome("decode-0", proto::Role::Decode));
    let mut odd = welcome("prefill-0", proto::Role::Prefill);
    odd.geometry.as_mut().unwrap().head_dim = 32;
    let mut old = welcome("prefill-1", proto::Role::Prefill);
    old.version = 99;
    let impostor = WorkerId::new("someone-else").unwrap();
    let gateway = Gateway::start(config(&pki, vec![first.address])).await;
    eventually("one joined", || async {
        gateway.status().await["workers"][0]["state"] == "ready"
    })
    .await;
    gateway.stop().await;
    let odd = ScriptedWorker::start(pki.path(), odd);
    let old = ScriptedWorker::start(pki.path(), old);
    let liar = welcome("prefill-2", proto::Role::Prefill);
    let liar = ScriptedWorker::start_as(pki.path(), &impostor, liar);
    let workers = vec![first.address, odd.address, old.address, liar.address];
    let gateway = Gateway::start(config(&pki, workers)).await;
    let state = |address: std::net::SocketAddr| {
        let gateway = &gateway;
        async move {
            let status = gateway.status().await;
            let workers = status["workers"].as_array().unwrap().clone();
            let row = workers
                .iter()
                .find(|row| row["address"] == address.to_string())
                .unwrap();
            row["state"].as_str().unwrap().to_owned()
        }
    };
    // Whoever comes second does not fit.
    eventually("refused", || async {
        let states = [state(first.address).await, state(odd.address).await];
        let refused = states.iter().find(|state| state.starts_with("refused: "));
        refused.is_some_and(|text| {
            text.contains("head_dim") && text.contains("32") && text.contains("64")
        })
    })
    .await;
    for (address, word) in [(old.address, "version 99"), (liar.address, "certificate")] {
        eventually("refused", || async { state(address).await.contains(word) }).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_is_one_workers_at_a_time() {
    let pki = pki();
    let start = || ScriptedWorker::start(pki.path(), welcome("both-0", proto::Role::Both));
    let twins = [start(), start()];
    let workers = twins.iter().map(|twin| twin.address).collect();
    let gateway = Gateway::start(config(&pki, workers)).await;
    eventually("one in, one out", || async {
        let status = gateway.status().await;
        let states = [
            &status["workers"][0]["state"],
            &status["workers"][1]["state"],
        ];
        let said = |words: &str| {
            states
                .iter()
                .any(|state| state.as_str().unwrap().contains(words))
        };
        said("ready") && said("refused: another both-0 is connected already")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_of_unsaid_length_is_cut_to_what_fits() {
    let (_pki, gateway, mut worker) = with_one_worker().await;
    let body = with(chat(), json!({"max_tokens": null}));
    let serve = async {
        let mut call = worker.call().await;
        call.start().await;
        call.token(1, "x").await;
        call.finish("", FinishReason::Stop).await;
        (
            call.generate.tokens.len(),
            call.generate.stop.clone().unwrap().max_tokens as usize,
        )
    };
    let (reply, (prompt, new)) = tokio::join!(post(gateway.address, CHAT, &body), serve);
    assert_eq!(reply.status, 200);
    assert_eq!(prompt + new - 1, PAGES as usize * 16);
}

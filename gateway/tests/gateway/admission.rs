//! Who waits, who comes first, who is turned away and what they are told.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::Full;
use serde_json::{Value, json};
use tandem_config::{AdmissionSettings, GatewayConfig};
use tandem_core::admission::{ClassId, ClassSettings, Limits};
use tandem_wire::proto::FinishReason;
use tandem_wire::task::{Task, spawn};

use crate::client::{Reply, post, send};
use crate::harness::{CHAT, chat, eventually, with, with_one_worker, with_one_worker_and};
use crate::scripted_worker::{PAGES, ScriptedWorker, free_pages};

/// Of the class that the header names.
fn of_class(class: &str, body: &Value) -> Request<Full<Bytes>> {
    Request::builder()
        .method(Method::POST)
        .uri(CHAT)
        .header("host", "gateway")
        .header("content-type", "application/json")
        .header("x-tandem-class", class)
        .body(Full::new(body.to_string().into()))
        .unwrap()
}

fn two_classes(config: &mut GatewayConfig) {
    let batch = ClassSettings {
        priority: 10,
        ..ClassSettings::new("batch", 4)
    };
    config.admission = AdmissionSettings {
        classes: vec![ClassSettings::new("chat", 4), batch],
        default_class: ClassId(0),
        ..AdmissionSettings::one_class(4)
    };
}

async fn answer(worker: &mut ScriptedWorker) -> u32 {
    let mut call = worker.call().await;
    call.start().await;
    call.token(1, "x").await;
    call.finish("", FinishReason::Stop).await;
    call.generate.stop.as_ref().unwrap().max_tokens
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_class_is_named_by_a_header_and_an_unknown_one_is_refused() {
    let (_pki, gateway, mut worker) = with_one_worker_and(two_classes).await;
    let body = chat();
    let reply = send(gateway.address, of_class("gold", &body)).await;
    assert_eq!(reply.status, 400, "{}", reply.body);
    assert_eq!(reply.error()["param"], "x-tandem-class");
    assert!(reply.body.contains("chat, batch"));
    let served = answer(&mut worker);
    let (reply, _) = tokio::join!(send(gateway.address, of_class("batch", &body)), served);
    assert_eq!(reply.status, 200);
    let waited = |class: &str| format!("tandem_queue_seconds_count{{class=\"{class}\"}}");
    assert_eq!(gateway.metric(&waited("batch")).await, Some(1.0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_class_that_comes_later_is_served_later_and_priority_decides_within_one() {
    let (_pki, gateway, mut worker) = with_one_worker_and(two_classes).await;
    let address = gateway.address;
    worker.report(free_pages(0));
    eventually("full", || async {
        gateway.status().await["workers"][0]["pages"]["free"] == 0
    })
    .await;
    // Told apart by their lengths, of which no two fit at once.
    let ask = |class: &'static str, max_tokens: u32, priority: i32| -> Task<Reply> {
        let members = json!({"max_tokens": max_tokens, "priority": priority});
        let request = of_class(class, &with(chat(), members));
        spawn("client", async move { send(address, request).await })
    };
    let mut clients = Vec::new();
    for (queued, (class, max_tokens, priority)) in
        (1..).zip([("batch", 611, -5), ("chat", 612, 0), ("chat", 613, -1)])
    {
        clients.push(ask(class, max_tokens, priority));
        eventually("queued", || async {
            gateway.status().await["gateway"]["queued"] == queued
        })
        .await;
    }
    let depth = |class: &str| format!("tandem_queue_depth{{class=\"{class}\"}}");
    assert_eq!(gateway.metric(&depth("chat")).await, Some(2.0));
    assert_eq!(gateway.metric(&depth("batch")).await, Some(1.0));
    worker.report(free_pages(PAGES));
    let mut order = Vec::new();
    for _ in 0..3 {
        order.push(answer(&mut worker).await);
    }
    assert_eq!(order, [613, 612, 611]);
    for client in clients {
        assert_eq!(client.join().await.unwrap().status, 200);
    }
    gateway.at_rest().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_over_its_limits_gets_429_with_the_time_to_wait() {
    let change = |config: &mut GatewayConfig| {
        config.admission.other_tenants.limits = Limits {
            tokens_per_minute: Some(200),
            ..Limits::default()
        };
    };
    let (_pki, gateway, mut worker) = with_one_worker_and(change).await;
    let address = gateway.address;
    // Of these 80 tokens and the prompt's it generates one.
    let body = with(chat(), json!({"max_tokens": 80}));
    let (reply, _) = tokio::join!(post(address, CHAT, &body), answer(&mut worker));
    assert_eq!(reply.status, 200, "{}", reply.body);
    gateway.at_rest().await;
    let running = post(address, CHAT, &body);
    let serve = async {
        let mut call = worker.call().await;
        call.start().await;
        let reply = post(address, CHAT, &body).await;
        call.token(1, "x").await;
        call.finish("", FinishReason::Stop).await;
        reply
    };
    let (first, second) = tokio::join!(running, serve);
    assert_eq!(first.status, 200, "what was not used came back");
    assert_eq!(
        (second.status.as_u16(), second.code()),
        (429, "rate_limit_exceeded".into())
    );
    let after: u64 = second.header("retry-after").unwrap().parse().unwrap();
    assert!((10..=60).contains(&after), "{after}");
    // Alone over it.
    let reply = post(address, CHAT, &with(chat(), json!({"max_tokens": 200}))).await;
    assert_eq!(
        (reply.status.as_u16(), reply.header("retry-after")),
        (400, None)
    );
    let limited = r#"tandem_rejections_total{class="default",reason="limited"}"#;
    assert_eq!(gateway.metric(limited).await, Some(2.0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_class_with_a_deadline_of_its_own_does_not_wait_longer() {
    let change = |config: &mut GatewayConfig| {
        config.admission.classes[0].queue_deadline = Some(Duration::from_millis(300));
    };
    let (_pki, gateway, worker) = with_one_worker_and(change).await;
    worker.report(free_pages(0));
    eventually("full", || async {
        gateway.status().await["workers"][0]["pages"]["free"] == 0
    })
    .await;
    let reply = post(gateway.address, CHAT, &chat()).await;
    assert_eq!(
        (reply.status.as_u16(), reply.code()),
        (503, "queue_timeout".into())
    );
    assert!(reply.header("retry-after").is_some());
    gateway.at_rest().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_figure_is_there_before_the_first_request() {
    let (_pki, gateway, _worker) = with_one_worker().await;
    for sample in [
        r#"tandem_queue_depth{class="default"}"#,
        r#"tandem_rejections_total{class="default",reason="queue_full"}"#,
        r#"tandem_rejections_total{class="default",reason="too_late"}"#,
        r#"tandem_retries_total{stage="prefill"}"#,
        r#"tandem_migrations_total{stage="fabric"}"#,
        r#"tandem_breaker_state{worker="both-0",stage="decode"}"#,
        "tandem_drain_tokens_per_second",
    ] {
        assert_eq!(gateway.metric(sample).await, Some(0.0), "{sample}");
    }
}

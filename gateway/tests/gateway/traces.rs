//! A request of several answers: one trace, a span for each of them, a line in the log for each.

use std::time::Duration;

use http::Method;
use serde_json::json;
use tandem_config::GatewayConfig;
use tandem_telemetry::testing::{Collector, Received};
use tandem_wire::proto::FinishReason;

use crate::client::{self, post, send};
use crate::harness::{CHAT, COMPLETIONS, chat, with, with_one_worker_and};
use crate::log::Log;
use crate::scripted_worker::{Call, MODEL, ScriptedWorker};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CLIENT: &str = "00f067aa0ba902b7";

async fn calls(worker: &mut ScriptedWorker, n: usize) -> Vec<Call> {
    let mut calls = Vec::new();
    while calls.len() < n {
        calls.push(worker.call().await);
    }
    calls
}

fn attribute<'a>(span: &'a Received, name: &str) -> Option<&'a str> {
    span.attributes.get(name).map(String::as_str)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[allow(clippy::too_many_lines, reason = "one attribute after another")]
async fn each_answer_is_a_span_of_its_requests() {
    let collector = Collector::start().await;
    let told = |config: &mut GatewayConfig| {
        config.telemetry.otlp_endpoint = Some(collector.endpoint().parse().unwrap());
        config.telemetry.otlp_interval = Duration::from_millis(20);
    };
    let (_pki, gateway, mut worker) = with_one_worker_and(told).await;
    let body = with(chat(), json!({"n": 3}));
    let mut request = client::request(Method::POST, CHAT, body.to_string());
    let parent = format!("00-{TRACE}-{CLIENT}-01");
    let headers = request.headers_mut();
    headers.insert("traceparent", parent.parse().unwrap());
    let serve = async {
        let mut calls = calls(&mut worker, 3).await;
        // Not in their order, and none at the time of another.
        for call in calls.iter_mut().rev() {
            call.answer(&["a", "b"], FinishReason::Stop).await;
        }
        let traces = calls.iter().map(|call| call.generate.trace.clone());
        traces.collect::<Vec<_>>()
    };
    let (reply, mut traces) = tokio::join!(send(gateway.address, request), serve);
    assert_eq!(reply.status, 200, "{}", reply.body);
    let name = "chat SmolLM2-135M-Instruct";
    let sent = collector
        .wait_for("the request's span", |sent| sent.named(name).count() == 1)
        .await;
    let whole = sent.named(name).next().unwrap();
    assert_eq!(
        (whole.trace.as_str(), whole.parent.as_str()),
        (TRACE, CLIENT)
    );
    assert_eq!((whole.kind, whole.failed), (2, false));
    let own = format!("00-{TRACE}-{}-01", whole.id);
    assert_eq!(reply.header("traceparent"), Some(own.as_str()));
    assert_eq!(attribute(whole, "gen_ai.request.choice.count"), Some("3"));
    assert_eq!(attribute(whole, "gen_ai.usage.output_tokens"), Some("6"));
    let prompt = reply.json()["usage"]["prompt_tokens"].to_string();
    assert_eq!(
        attribute(whole, "gen_ai.usage.input_tokens"),
        Some(prompt.as_str()),
        "the prompt counts once"
    );
    assert_eq!(attribute(whole, "http.response.status_code"), Some("200"));

    let mut choices: Vec<&Received> = sent.named("choice").collect();
    choices.sort_by_key(|span| attribute(span, "tandem.choice.index"));
    let indexes: Vec<_> = choices
        .iter()
        .map(|span| attribute(span, "tandem.choice.index"))
        .collect();
    assert_eq!(indexes, [Some("0"), Some("1"), Some("2")]);
    for span in &choices {
        assert_eq!((&span.trace, &span.parent), (&whole.trace, &whole.id));
        assert_eq!(span.kind, 1, "it is a part of the gateway's own");
        // Each record reads the two clocks anew.
        let apart = 1_000_000;
        assert!(span.time.0 + apart >= whole.time.0 && span.time.1 <= whole.time.1 + apart);
        assert_eq!(attribute(span, "gen_ai.usage.output_tokens"), Some("2"));
        let stages = sent.named("decode").filter(|step| step.parent == span.id);
        assert_eq!(stages.count(), 1);
    }
    let mut want: Vec<_> = choices
        .iter()
        .map(|span| format!("00-{TRACE}-{}-01", span.id))
        .collect();
    want.sort();
    traces.sort();
    assert_eq!(traces, want, "each worker's spans are of its own answer's");
    let first = |span: &Received| {
        let name = "gen_ai.response.time_to_first_chunk";
        attribute(span, name).unwrap().parse::<f64>().unwrap()
    };
    let earliest = choices.iter().map(|span| first(span)).reduce(f64::min);
    assert_eq!(
        Some(first(whole)),
        earliest,
        "the first token of any of them"
    );
    gateway.at_rest().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_answer_fails_the_requests_span() {
    let collector = Collector::start().await;
    let told = |config: &mut GatewayConfig| {
        config.telemetry.otlp_endpoint = Some(collector.endpoint().parse().unwrap());
        config.telemetry.otlp_interval = Duration::from_millis(20);
    };
    let (_pki, gateway, mut worker) = with_one_worker_and(told).await;
    let body = with(chat(), json!({"n": 2}));
    let serve = async {
        let mut calls = calls(&mut worker, 2).await;
        for call in &mut calls {
            call.start().await;
        }
        calls[0].fail("engine_failed", false).await;
        calls[1].cancelled().await;
    };
    let (reply, ()) = tokio::join!(post(gateway.address, CHAT, &body), serve);
    assert_eq!(reply.status, 502);
    let name = "chat SmolLM2-135M-Instruct";
    let sent = collector
        .wait_for("the request's span", |sent| sent.named(name).count() == 1)
        .await;
    let whole = sent.named(name).next().unwrap();
    assert!(whole.failed);
    assert_eq!(attribute(whole, "error.type"), Some("engine_failed"));
    assert_eq!(attribute(whole, "http.response.status_code"), Some("502"));
    assert_eq!(sent.named("choice").count(), 2);
}

// One thread: the log is that of the thread that the test runs on.
#[tokio::test]
async fn each_answer_has_a_line_and_each_prompt_counts_once() {
    let log = Log::default();
    let _default = log.take_over();
    let (_pki, gateway, mut worker) = with_one_worker_and(|_| {}).await;
    let body = json!({"model": MODEL, "prompt": [[5], [6, 7]], "n": 2, "max_tokens": 8});
    let serve = async {
        for (index, call) in calls(&mut worker, 4).await.iter_mut().enumerate() {
            let texts = vec!["a"; index + 1];
            call.answer(&texts, FinishReason::Stop).await;
        }
    };
    let (reply, ()) = tokio::join!(post(gateway.address, COMPLETIONS, &body), serve);
    assert_eq!(reply.status, 200, "{}", reply.body);
    gateway.at_rest().await;
    let mut lines = log.requests();
    lines.sort_by_key(|line| line["choice"].as_u64());
    let of = |name: &str| -> Vec<u64> {
        lines
            .iter()
            .map(|line| line[name].as_u64().unwrap())
            .collect()
    };
    assert_eq!(of("choice"), [0, 1, 2, 3]);
    assert_eq!(of("prompt_tokens"), [1, 0, 2, 0]);
    assert_eq!(of("cached_tokens"), [1, 0, 2, 0]);
    assert_eq!(of("completion_tokens").iter().sum::<u64>(), 1 + 2 + 3 + 4);
    let one = |name: &str| lines.iter().all(|line| line[name] == lines[0][name]);
    assert!(one("request_id") && one("trace_id") && one("arrived_ms"));
    for line in &lines {
        let (ttft, whole) = (&line["ttft_ms"], &line["e2e_ms"]);
        assert!(ttft.as_f64() <= whole.as_f64(), "{line:#}");
        assert_eq!(line["finish_reason"], "stop");
    }
    let first = gateway
        .metric("tandem_time_to_first_token_seconds_count")
        .await;
    assert_eq!(first, Some(4.0), "one for each answer");
    assert_eq!(
        gateway.metric("tandem_prompt_tokens_total").await,
        Some(3.0)
    );
    assert_eq!(
        gateway.metric("tandem_generation_tokens_total").await,
        Some(10.0)
    );
}

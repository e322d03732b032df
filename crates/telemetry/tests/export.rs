//! Spans and figures on their way to a collector that takes them, refuses them, or is not there.
#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    reason = "tests: allow-unwrap-in-tests sees only test functions"
)]

use std::time::{Duration, Instant};

use tandem_config::TelemetryConfig;
use tandem_telemetry::span::{KeyValue, Span};
use tandem_telemetry::testing::Collector;
use tandem_telemetry::{Spans, Telemetry, TraceContext, genai};

const LONG: Duration = Duration::from_secs(20);

fn config(endpoint: &str) -> TelemetryConfig {
    TelemetryConfig {
        otlp_endpoint: Some(endpoint.parse().unwrap()),
        otlp_interval: Duration::from_millis(20),
        otlp_timeout: Duration::from_millis(500),
        ..TelemetryConfig::default()
    }
}

/// One request of two spans.
fn record(spans: &Spans) -> TraceContext {
    let context = TraceContext::begin(None, None, spans.sampler());
    spans.record(&context, || {
        let now = Instant::now();
        let began = now - Duration::from_millis(50);
        let server = Span::server(&context, "chat m", (began, now))
            .with(KeyValue::new("gen_ai.usage.input_tokens", 7))
            .failed(Some("request_timeout"));
        let step = server.step("queue", (began, began + Duration::from_millis(20)));
        vec![server, step]
    });
    context
}

#[tokio::test]
async fn spans_arrive_with_their_times_parents_and_facts() {
    let collector = Collector::start().await;
    let mut config = config(&collector.endpoint());
    config.resource = [("deployment.environment.name".to_owned(), "test".to_owned())].into();
    let telemetry = Telemetry::start(&config, "gateway-0", "gateway").unwrap();
    let before = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_nanos() as u64;
    let context = record(&telemetry.spans());
    let sent = collector
        .wait_for("two spans", |sent| sent.spans.len() == 2)
        .await;
    let server = sent.named("chat m").next().unwrap();
    let step = sent.named("queue").next().unwrap();
    assert_eq!(server.trace, context.trace_id());
    assert_eq!(server.parent, "");
    assert_eq!(server.kind, 2);
    assert!(server.failed);
    assert_eq!(server.attributes["error.type"], "request_timeout");
    assert_eq!(server.attributes["gen_ai.usage.input_tokens"], "7");
    assert_eq!(server.time.1 - server.time.0, 50_000_000);
    assert!(
        server.time.1.abs_diff(before) < 10_000_000_000,
        "the wall's clock"
    );
    assert_eq!((step.parent.as_str(), step.kind), (server.id.as_str(), 1));
    assert_eq!(step.time.0, server.time.0);
    assert_eq!(step.resource["service.name"], "tandem");
    assert_eq!(step.resource["service.instance.id"], "gateway-0");
    assert_eq!(step.resource["deployment.environment.name"], "test");
    telemetry.stop(LONG).await;
}

#[tokio::test]
async fn what_waits_at_the_end_is_sent() {
    let collector = Collector::start().await;
    let mut config = config(&collector.endpoint());
    config.otlp_interval = Duration::from_secs(600);
    config.headers = headers();
    let telemetry = Telemetry::start(&config, "g", "gateway").unwrap();
    let spans = telemetry.spans();
    for _ in 0..10 {
        record(&spans);
    }
    spans.request(&genai::Request {
        operation: "chat",
        model: "m",
        error: None,
        duration: Duration::from_millis(500),
        ttft: Some(Duration::from_millis(40)),
        tpot: None,
    });
    telemetry.stop(LONG).await;
    let sent = collector.sent();
    assert_eq!(sent.spans.len(), 20);
    assert_eq!(spans.dropped(), 0);
    let paths: Vec<&str> = sent.headers.iter().map(|(path, _)| path.as_str()).collect();
    assert!(paths.contains(&"/v1/traces") && paths.contains(&"/v1/metrics"));
    for (_, headers) in &sent.headers {
        assert_eq!(headers["authorization"], "Bearer hunter2");
        assert_eq!(headers["content-type"], "application/x-protobuf");
    }
    let attributes = [
        ("gen_ai.operation.name", "chat"),
        ("gen_ai.provider.name", "tandem"),
        ("gen_ai.request.model", "m"),
        ("gen_ai.response.model", "m"),
    ];
    let attributes = attributes.map(|(k, v)| (k.to_owned(), v.to_owned()));
    let of = |name: &str| {
        let key = (name.to_owned(), attributes.clone().into());
        sent.histograms.get(&key).copied()
    };
    assert_eq!(of("gen_ai.server.request.duration"), Some((1, 0.5)));
    assert_eq!(of("gen_ai.server.time_to_first_token"), Some((1, 0.04)));
    assert_eq!(of("gen_ai.server.time_per_output_token"), None);
}

fn headers() -> std::collections::BTreeMap<String, tandem_config::Secret> {
    let text = "[gateway]\ntokenizer = \"t\"\nworkers = []\n[telemetry]\n\
                headers = { authorization = \"Bearer hunter2\" }\n";
    let config = tandem_config::Config::parse(text, std::path::Path::new("t.toml")).unwrap();
    config.gateway.unwrap().telemetry.headers
}

#[tokio::test]
async fn a_collector_that_refuses_costs_spans_and_nothing_else() {
    let collector = Collector::start().await;
    collector.answer(400);
    let telemetry = Telemetry::start(&config(&collector.endpoint()), "g", "gateway").unwrap();
    let spans = telemetry.spans();
    record(&spans);
    collector
        .wait_for("a refusal", |sent| sent.refused > 0)
        .await;
    tokio::time::timeout(LONG, async {
        while spans.dropped() < 2 {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("they are counted");
    assert_eq!(spans.dropped(), 2);
    // It takes them again.
    collector.answer(200);
    record(&spans);
    collector
        .wait_for("two spans", |sent| sent.spans.len() == 2)
        .await;
    assert_eq!(spans.dropped(), 2);
    telemetry.stop(LONG).await;
}

#[tokio::test]
async fn what_finds_the_queue_full_is_dropped_and_counted() {
    let collector = Collector::start().await;
    let mut config = config(&collector.endpoint());
    config.otlp_queue_limit = 5;
    config.otlp_interval = Duration::from_secs(600);
    let telemetry = Telemetry::start(&config, "g", "gateway").unwrap();
    let spans = telemetry.spans();
    // Nothing is awaited: the task that sends them has not run yet.
    for _ in 0..10 {
        record(&spans);
    }
    assert_eq!(spans.dropped(), 16, "two requests of two spans fit five");
    telemetry.stop(LONG).await;
    assert_eq!(collector.sent().spans.len(), 4);
}

#[tokio::test]
async fn nobody_at_the_address_holds_up_nobody() {
    // Taken and given back: nobody listens there.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = port.local_addr().unwrap();
    drop(port);
    let config = config(&format!("http://{address}"));
    let telemetry = Telemetry::start(&config, "g", "gateway").unwrap();
    let spans = telemetry.spans();
    record(&spans);
    let asked = Instant::now();
    telemetry.stop(Duration::from_secs(5)).await;
    assert!(asked.elapsed() < LONG);
    assert_eq!(spans.dropped(), 2);
}

#[tokio::test]
async fn without_a_collector_nothing_is_made() {
    let telemetry = Telemetry::start(&TelemetryConfig::default(), "g", "gateway").unwrap();
    let spans = telemetry.spans();
    assert!(!spans.is_on());
    let context = TraceContext::begin(None, None, spans.sampler());
    spans.record(&context, || panic!("nobody wants them"));
    let sampled = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let context = TraceContext::begin(Some(sampled), None, spans.sampler());
    spans.record(&context, || panic!("nobody wants them"));
    telemetry.stop(LONG).await;
}

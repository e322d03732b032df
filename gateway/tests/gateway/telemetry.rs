//! What is told of requests: metrics, the log's line, spans.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Method;
use serde_json::json;
use tandem_config::GatewayConfig;
use tandem_telemetry::testing::Collector;
use tandem_wire::proto;
use tandem_wire::proto::FinishReason;
use tandem_wire::proto::generate_reply::Kind;

use crate::client::{self, Reply, get, post, send};
use crate::exposition::Exposition;
use crate::harness::{
    CHAT, COMPLETIONS, Gateway, chat, with, with_one_worker, with_one_worker_and,
};
use crate::log::Log;
use crate::scripted_worker::{CACHED_TOKENS, MODEL, ScriptedWorker};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CLIENT: &str = "00f067aa0ba902b7";

/// Three tokens, the prompt computed elsewhere.
async fn answer(worker: &mut ScriptedWorker) -> proto::Generate {
    let mut call = worker.call().await;
    call.start().await;
    for (token, text) in [(1, "a"), (2, "b"), (3, "c")] {
        call.token(token, text).await;
    }
    call.say(Kind::Finished(proto::Finished {
        reason: FinishReason::Stop.into(),
        cached_tokens: CACHED_TOKENS,
        prompt_times: Some(proto::PromptTimes {
            compute_us: 1,
            exposed_us: 2,
        }),
        ..proto::Finished::default()
    }))
    .await;
    call.generate
}

/// One request that is answered, and its reply.
async fn served(gateway: &Gateway, worker: &mut ScriptedWorker) -> Reply {
    let body = chat();
    let (reply, _) = tokio::join!(post(gateway.address, CHAT, &body), answer(worker));
    assert_eq!(reply.status, 200, "{}", reply.body);
    gateway.at_rest().await;
    reply
}

async fn exposition(gateway: &Gateway) -> Exposition {
    let reply = get(gateway.address, "/metrics").await;
    assert_eq!(
        reply.header("content-type"),
        Some("text/plain; version=0.0.4; charset=utf-8")
    );
    Exposition::parse(&reply.body)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_family_has_its_help_and_type_and_nothing_is_there_twice() {
    let (_pki, gateway, mut worker) = with_one_worker().await;
    served(&gateway, &mut worker).await;
    let bad = post(gateway.address, CHAT, &json!({})).await;
    assert_eq!(bad.status, 400);
    gateway.at_rest().await;
    let all = exposition(&gateway).await;
    for family in [
        "tandem_build_info",
        "tandem_requests_in_stage",
        "tandem_request_errors_total",
        "tandem_telemetry_dropped_total",
        "process_cpu_seconds_total",
        "process_resident_memory_bytes",
        "process_open_fds",
        "process_max_fds",
        "process_start_time_seconds",
    ] {
        assert!(all.families.contains_key(family), "{family}");
    }
    assert_eq!(
        all.value(
            "tandem_request_errors_total",
            &[("type", "missing_required_parameter")]
        ),
        Some(1.0)
    );
    for stage in ["read", "queue", "prefill", "decode"] {
        let labels = [("stage", stage)];
        assert_eq!(all.value("tandem_requests_in_stage", &labels), Some(0.0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[allow(clippy::too_many_lines, reason = "one figure after another")]
async fn a_requests_times_and_tokens_are_under_every_name() {
    let (_pki, gateway, mut worker) = with_one_worker().await;
    let reply = served(&gateway, &mut worker).await;
    let prompt = reply.json()["usage"]["prompt_tokens"].as_f64().unwrap();
    let all = exposition(&gateway).await;
    let model = [("model_name", MODEL)];
    let cached = f64::from(CACHED_TOKENS);
    for (own, vllm, value) in [
        (
            "tandem_prompt_tokens_total",
            "vllm:prompt_tokens_total",
            prompt,
        ),
        (
            "tandem_generation_tokens_total",
            "vllm:generation_tokens_total",
            3.0,
        ),
        (
            "tandem_cached_tokens_total",
            "vllm:prefix_cache_hits_total",
            cached,
        ),
    ] {
        assert_eq!(all.value(own, &[]), Some(value), "{own}");
        assert_eq!(all.value(vllm, &model), Some(value), "{vllm}");
    }
    assert_eq!(
        all.value("vllm:prefix_cache_queries_total", &model),
        Some(prompt)
    );
    for (own, vllm, count) in [
        (
            "tandem_time_to_first_token_seconds",
            "vllm:time_to_first_token_seconds",
            1.0,
        ),
        (
            "tandem_inter_token_latency_seconds",
            "vllm:inter_token_latency_seconds",
            2.0,
        ),
        (
            "tandem_request_duration_seconds",
            "vllm:e2e_request_latency_seconds",
            1.0,
        ),
        (
            "tandem_queue_seconds",
            "vllm:request_queue_time_seconds",
            1.0,
        ),
        (
            "tandem_request_prompt_tokens",
            "vllm:request_prompt_tokens",
            1.0,
        ),
        (
            "tandem_request_generation_tokens",
            "vllm:request_generation_tokens",
            1.0,
        ),
    ] {
        let of = if own == "tandem_queue_seconds" {
            &[("class", "default")][..]
        } else {
            &[]
        };
        let sample = |name: &str, what: &str| format!("{name}_{what}");
        assert_eq!(all.value(&sample(own, "count"), of), Some(count), "{own}");
        assert_eq!(all.value(&sample(vllm, "count"), &model), Some(count));
        let sums = [
            all.value(&sample(own, "sum"), of),
            all.value(&sample(vllm, "sum"), &model),
        ];
        assert_eq!(sums[0], sums[1], "{own} and {vllm} are of the same times");
    }
    for (vllm, count) in [
        ("vllm:time_per_output_token_seconds_count", 2.0),
        ("vllm:request_prefill_time_seconds_count", 1.0),
        ("vllm:request_decode_time_seconds_count", 1.0),
        ("vllm:request_inference_time_seconds_count", 1.0),
        ("vllm:num_requests_running", 0.0),
        ("vllm:num_requests_waiting", 0.0),
        ("vllm:kv_cache_usage_perc", 0.0),
    ] {
        assert_eq!(all.value(vllm, &model), Some(count), "{vllm}");
    }
    let ended = [("model_name", MODEL), ("finished_reason", "stop")];
    assert_eq!(all.value("vllm:request_success_total", &ended), Some(1.0));
    let gen_ai = [
        ("gen_ai_operation_name", "chat"),
        ("gen_ai_provider_name", "tandem"),
        ("gen_ai_request_model", MODEL),
        ("gen_ai_response_model", MODEL),
    ];
    for name in [
        "gen_ai_server_request_duration_seconds_count",
        "gen_ai_server_time_to_first_token_seconds_count",
        "gen_ai_server_time_per_output_token_seconds_count",
    ] {
        assert_eq!(all.value(name, &gen_ai), Some(1.0), "{name}");
    }
    // The stages are of the same request: their sum is its duration.
    let stages = all
        .samples
        .iter()
        .filter(|(name, ..)| name == "tandem_stage_seconds_sum");
    let sum: f64 = stages.map(|(.., value)| value).sum();
    let whole = all
        .value("tandem_request_duration_seconds_sum", &[])
        .unwrap();
    assert!((sum - whole).abs() < 1e-6, "{sum} of {whole}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn buckets_are_those_that_dashboards_expect() {
    let (_pki, gateway, mut worker) = with_one_worker().await;
    served(&gateway, &mut worker).await;
    let all = exposition(&gateway).await;
    let bounds = |name: &str| all.bounds(name).join(" ");
    let first = "0.001 0.005 0.01 0.02 0.04 0.06 0.08 0.1 0.25 0.5 0.75 1 2.5 5 7.5 10";
    let vllm = "20 40 80 160 640 2560 +Inf";
    assert_eq!(
        bounds("vllm:time_to_first_token_seconds"),
        format!("{first} {vllm}")
    );
    assert_eq!(
        bounds("gen_ai_server_time_to_first_token_seconds"),
        format!("{first} +Inf")
    );
    let token = "0.01 0.025 0.05 0.075 0.1 0.15 0.2 0.3 0.4 0.5 0.75 1 2.5";
    assert_eq!(
        bounds("vllm:inter_token_latency_seconds"),
        format!("{token} 5 7.5 10 20 40 80 +Inf")
    );
    assert_eq!(
        bounds("gen_ai_server_time_per_output_token_seconds"),
        format!("{token} +Inf")
    );
    assert_eq!(
        bounds("gen_ai_server_request_duration_seconds"),
        "0.01 0.02 0.04 0.08 0.16 0.32 0.64 1.28 2.56 5.12 10.24 20.48 40.96 81.92 +Inf"
    );
    assert_eq!(
        bounds("vllm:e2e_request_latency_seconds"),
        "0.3 0.5 0.8 1 1.5 2 2.5 5 10 15 20 30 40 50 60 120 240 480 960 1920 7680 +Inf"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn vllms_names_can_be_left_out() {
    let without = |config: &mut GatewayConfig| config.telemetry.vllm_names = false;
    let (_pki, gateway, mut worker) = with_one_worker_and(without).await;
    served(&gateway, &mut worker).await;
    let all = exposition(&gateway).await;
    let vllm = all.families.keys().find(|name| name.starts_with("vllm"));
    assert_eq!(vllm, None);
    assert_eq!(all.value("tandem_generation_tokens_total", &[]), Some(3.0));
}

// One thread: the log is that of the thread that the test runs on.
#[tokio::test]
#[allow(clippy::too_many_lines, reason = "one field after another")]
async fn each_request_has_one_line_of_json_without_a_word_of_its_text() {
    let log = Log::default();
    let _default = log.take_over();
    let hashed = |config: &mut GatewayConfig| config.telemetry.log_prefix_hashes = true;
    let (_pki, gateway, mut worker) = with_one_worker_and(hashed).await;
    let secret = "xylophone ".repeat(400);
    let body = json!({"model": MODEL, "prompt": secret, "max_tokens": 8, "stop": ["marimba"]});
    let headers = [
        ("x-request-id", "mine"),
        ("traceparent", &format!("00-{TRACE}-{CLIENT}-01")),
    ];
    let mut request = client::request(Method::POST, COMPLETIONS, body.to_string());
    for (name, value) in headers {
        let name = http::HeaderName::try_from(name).unwrap();
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    let (reply, generate) = tokio::join!(send(gateway.address, request), answer(&mut worker));
    assert_eq!(reply.status, 200, "{}", reply.body);
    let gone = post(gateway.address, CHAT, &json!({"messages": "glockenspiel"})).await;
    assert_eq!(gone.status, 400);
    gateway.at_rest().await;

    let lines = log.requests();
    let [line, bad] = &lines[..] else {
        panic!("two requests: {lines:#?}");
    };
    let told = |name: &str| {
        line[name]
            .as_f64()
            .unwrap_or_else(|| panic!("{name}: {line:#}"))
    };
    assert_eq!(line["level"], "INFO");
    assert!(line["timestamp"].is_string());
    assert_eq!(line["request_id"], "mine");
    assert_eq!(line["trace_id"], TRACE);
    assert_eq!(line["model"], MODEL);
    assert_eq!(line["endpoint"], "completions");
    assert_eq!(line["worker_decode"], "both-0");
    assert_eq!(line["status"], 200);
    assert_eq!(line["finish_reason"], "stop");
    assert!(line.get("error").is_none());
    assert!(line["why"].is_string());
    assert_eq!(told("prompt_tokens"), generate.tokens.len() as f64);
    assert_eq!(told("completion_tokens"), 3.0);
    assert_eq!(told("cached_tokens"), f64::from(CACHED_TOKENS));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let age = now.unwrap().as_millis() as f64 - told("arrived_ms");
    assert!((0.0..60_000.0).contains(&age), "{age}");
    let stages = [
        "read_ms",
        "queue_ms",
        "lease_ms",
        "prefill_queue_ms",
        "prefill_ms",
        "kv_transfer_ms",
        "first_token_ms",
    ];
    let sum: f64 = stages.iter().map(|stage| told(stage)).sum();
    let ttft = told("ttft_ms");
    assert!((sum - ttft).abs() < 0.02, "{sum} of {ttft}");
    assert!(told("e2e_ms") >= ttft + told("decode_ms") - 0.02);
    assert!(told("tpot_ms") >= 0.0 && told("itl_p99_ms") >= 0.0);
    let hashes = line["prefix_hashes"].as_str().unwrap();
    assert_eq!(hashes.split(',').count(), generate.tokens.len() / 512);
    assert_eq!(bad["status"], 400);
    assert_eq!(bad["error"], "missing_required_parameter");
    assert_eq!(bad["prompt_tokens"], 0);
    assert!(bad.get("ttft_ms").is_none());

    let text = log.text();
    for word in ["xylophone", "marimba", "glockenspiel"] {
        assert!(!text.contains(word), "{word} is in the log");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[allow(clippy::too_many_lines, reason = "one attribute after another")]
async fn a_request_is_a_span_of_its_clients_trace_and_its_stages_are_steps_of_it() {
    let collector = Collector::start().await;
    let told = |config: &mut GatewayConfig| {
        config.telemetry.otlp_endpoint = Some(collector.endpoint().parse().unwrap());
        config.telemetry.otlp_interval = Duration::from_millis(20);
        // The client has decided.
        config.telemetry.sample = 0.0;
    };
    let (_pki, gateway, mut worker) = with_one_worker_and(told).await;
    let mut request = client::request(
        Method::POST,
        CHAT,
        with(chat(), json!({"top_k": 5})).to_string(),
    );
    let parent = format!("00-{TRACE}-{CLIENT}-01");
    let headers = request.headers_mut();
    headers.insert("traceparent", parent.parse().unwrap());
    headers.insert("tracestate", "a=1".parse().unwrap());
    let (reply, generate) = tokio::join!(send(gateway.address, request), answer(&mut worker));
    assert_eq!(reply.status, 200, "{}", reply.body);
    let sent = collector
        .wait_for("the request's span", |sent| {
            sent.named("chat SmolLM2-135M-Instruct").count() == 1
        })
        .await;
    let span = sent.named("chat SmolLM2-135M-Instruct").next().unwrap();
    assert_eq!((span.trace.as_str(), span.parent.as_str()), (TRACE, CLIENT));
    assert_eq!((span.kind, span.failed), (2, false));
    assert_eq!(span.state, "a=1");
    let own = format!("00-{TRACE}-{}-01", span.id);
    assert_eq!(reply.header("traceparent"), Some(own.as_str()));
    assert_eq!(generate.trace, own, "the worker's spans are part of it");
    assert_eq!(generate.trace_state, "a=1");
    let want: BTreeMap<&str, &str> = [
        ("gen_ai.operation.name", "chat"),
        ("gen_ai.request.model", MODEL),
        ("gen_ai.response.model", MODEL),
        ("gen_ai.request.max_tokens", "8"),
        ("gen_ai.request.top_k", "5"),
        ("gen_ai.request.stream", "false"),
        ("gen_ai.usage.output_tokens", "3"),
        ("gen_ai.usage.cache_read.input_tokens", "3"),
        ("http.response.status_code", "200"),
        ("tandem.worker.decode", "both-0"),
    ]
    .into();
    for (name, value) in want {
        let found = span.attributes.get(name).map(String::as_str);
        assert_eq!(found, Some(value), "{name}");
    }
    assert!(
        !format!("{sent:?}").contains("\"Hi\""),
        "no text of the prompt"
    );
    let mut end = span.time.0;
    for stage in [
        "read",
        "queue",
        "lease",
        "prefill_queue",
        "prefill",
        "transfer",
        "first_token",
        "decode",
        "end",
    ] {
        let step = sent
            .named(stage)
            .next()
            .unwrap_or_else(|| panic!("{stage}"));
        assert_eq!((&step.trace, &step.parent), (&span.trace, &span.id));
        assert_eq!(step.time.0, end, "{stage} begins where the one before ends");
        end = step.time.1;
    }
    assert_eq!(end, span.time.1);
    // One that nobody asked to record is not, and has a trace of its own all the same.
    let reply = served(&gateway, &mut worker).await;
    assert!(reply.header("traceparent").unwrap().ends_with("-00"));
    gateway.stop().await;
    assert_eq!(
        collector.sent().named("chat SmolLM2-135M-Instruct").count(),
        1
    );
    let names: Vec<String> = collector
        .sent()
        .histograms
        .into_keys()
        .map(|(name, _)| name)
        .collect();
    assert!(
        names.contains(&"gen_ai.server.request.duration".to_owned()),
        "{names:?}"
    );
}

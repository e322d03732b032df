//! A request's spans from both workers, as parts of its gateway's.

use tandem_engine::testing::TinyLlama;
use tandem_telemetry::testing::{Collector, Received, Sent};
use tandem_wire::proto;

use crate::fleet::{Fleet, Worker, generate};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const GATEWAY: &str = "00f067aa0ba902b7";

async fn pair(fleet: &Fleet, collector: &Collector) -> (Worker, Worker) {
    let telemetry = format!(
        "[telemetry]\notlp_endpoint = \"{}\"\notlp_interval_ms = 20\n",
        collector.endpoint()
    );
    let lines = "kv_pages = 64\npage_tokens = 4\nchunk_tokens = 16\n";
    let prefill = fleet.start("prefill", lines, &telemetry).await;
    let decode = fleet.start("decode", lines, &telemetry).await;
    (prefill, decode)
}

fn traced(request: u128, prefill: &Worker, flags: &str) -> proto::Generate {
    let tokens: Vec<u32> = (1..=30).collect();
    proto::Generate {
        trace: format!("00-{TRACE}-{GATEWAY}-{flags}"),
        trace_state: "a=1".into(),
        ..generate(request, &tokens, 4, Some(prefill.peer()))
    }
}

fn only<'a>(sent: &'a Sent, name: &'a str) -> &'a Received {
    let mut found = sent.named(name);
    let first = found
        .next()
        .unwrap_or_else(|| panic!("no {name}: {sent:#?}"));
    assert_eq!(found.next(), None, "one {name}");
    first
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_trace_holds_lease_dispatch_prefill_and_each_layers_push() {
    let model = TinyLlama::default();
    let layers = model.layers;
    let (fleet, collector) = (Fleet::new(model), Collector::start().await);
    let (prefill, decode) = pair(&fleet, &collector).await;
    let answer = decode.tokens(traced(1, &prefill, "01")).await.unwrap();
    assert_eq!(answer.len(), 4);
    let sent = collector
        .wait_for("the spans of both", |sent| {
            sent.named("generate").count() == 1 && sent.named("prefill").count() == 1
        })
        .await;
    assert!(
        sent.spans
            .iter()
            .all(|span| span.trace == TRACE && span.state == "a=1")
    );
    assert!(
        sent.spans
            .iter()
            .all(|span| span.time.0 <= span.time.1 && !span.failed)
    );
    // The decode worker's.
    let whole = only(&sent, "generate");
    assert_eq!((whole.parent.as_str(), whole.kind), (GATEWAY, 2));
    assert_eq!(whole.attributes["gen_ai.usage.output_tokens"], "4");
    assert_eq!(whole.resource["service.instance.id"], decode.id);
    assert_eq!(whole.resource["tandem.role"], "decode");
    for step in ["lease", "wait_for_pages", "decode"] {
        assert_eq!(only(&sent, step).parent, whole.id, "{step}");
    }
    assert_eq!(only(&sent, "lease").time.0, whole.time.0);
    assert_eq!(
        only(&sent, "wait_for_pages").time.1,
        only(&sent, "decode").time.0
    );
    let dispatch = only(&sent, "dispatch");
    assert_eq!((&dispatch.parent, dispatch.kind), (&whole.id, 3));
    // The prefill worker's.
    let prompt = only(&sent, "prefill");
    assert_eq!((&prompt.parent, prompt.kind), (&dispatch.id, 2));
    assert_eq!(prompt.resource["service.instance.id"], prefill.id);
    let [queue, compute, transfer] =
        ["prefill_queue", "compute", "transfer"].map(|step| only(&sent, step));
    for step in [queue, compute, transfer] {
        assert_eq!(step.parent, prompt.id, "{}", step.name);
    }
    assert_eq!(queue.time.1, compute.time.0);
    assert_eq!(compute.time.1, transfer.time.0);
    // 29 tokens in chunks of 16: each layer goes out in both steps, or in one push where whoever watches them
    // was late.
    let pushes: Vec<&Received> = sent.named("push").collect();
    for layer in 0..layers {
        let layer = layer.to_string();
        let of = pushes
            .iter()
            .filter(|p| p.attributes["tandem.layer"] == layer);
        assert!((1..=2).contains(&of.count()), "layer {layer}: {pushes:#?}");
    }
    let number = |span: &Received, name: &str| span.attributes[name].parse::<u64>().unwrap();
    for what in ["tandem.writes", "tandem.bytes"] {
        let sum: u64 = pushes.iter().map(|push| number(push, what)).sum();
        assert_eq!(sum, number(prompt, what), "{what}");
    }
    for push in pushes {
        assert_eq!(push.parent, prompt.id);
        assert!(
            compute.time.0 <= push.time.0,
            "no layer before the first step"
        );
    }
    prefill.stop().await;
    decode.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_sampled_leaves_no_span_and_the_times_are_told_all_the_same() {
    let (fleet, collector) = (Fleet::new(TinyLlama::default()), Collector::start().await);
    let (prefill, decode) = pair(&fleet, &collector).await;
    for (request, flags) in [(1, "00"), (2, "zz")] {
        let mut channel = decode.ask(traced(request, &prefill, flags)).await;
        let finished = loop {
            let reply: proto::GenerateReply = channel.recv.expect().await.unwrap();
            if let Some(proto::generate_reply::Kind::Finished(finished)) = reply.kind {
                break finished;
            }
        };
        // The last write may be known before the last layer: then nothing is told.
        if let Some(times) = finished.prompt_times {
            assert!(times.compute_us > 0);
        }
    }
    prefill.stop().await;
    decode.stop().await;
    assert_eq!(collector.sent().spans, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_is_refused_is_a_span_that_failed() {
    let (fleet, collector) = (Fleet::new(TinyLlama::default()), Collector::start().await);
    let (prefill, decode) = pair(&fleet, &collector).await;
    let mut stale = traced(1, &prefill, "01");
    stale.prefill.as_mut().unwrap().incarnation += 1;
    assert!(decode.tokens(stale).await.is_err());
    let sent = collector
        .wait_for("a span", |sent| sent.named("generate").count() == 1)
        .await;
    let whole = only(&sent, "generate");
    assert!(whole.failed);
    assert!(!whole.attributes["error.type"].is_empty());
    prefill.stop().await;
    decode.stop().await;
}

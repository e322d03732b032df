//! The workers' figures, from their latest reports. Made anew for each scrape: a worker that is gone
//! leaves nothing behind but `tandem_worker_up` 0.

use ::metrics::{Key, Label, Recorder};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusRecorder};
use tandem_wire::proto;

use super::METADATA;
use crate::roster::{Roster, Seat, State};

const PAGES: &str = "tandem_kv_pages";
const UP: &str = "tandem_worker_up";
const REQUESTS: &str = "tandem_worker_requests";
const TRANSFERS: &str = "tandem_worker_transfers_total";
const WRITES: &str = "tandem_worker_writes_total";
const BYTES: &str = "tandem_worker_pushed_bytes_total";
const IMMEDIATES: &str = "tandem_worker_immediates_total";
const FENCES: &str = "tandem_worker_fences_total";
const COMPUTE: &str = "tandem_worker_transfer_compute_seconds_total";
const EXPOSED: &str = "tandem_worker_transfer_exposed_seconds_total";
const PROMPT: &str = "tandem_worker_prompt_tokens_total";
const CACHED: &str = "tandem_worker_cached_tokens_total";
const GENERATED: &str = "tandem_worker_generated_tokens_total";
const UNTOLD: &str = "tandem_worker_telemetry_dropped_total";
const DRAFTED: &str = "tandem_worker_draft_tokens_total";

const GAUGES: [(&str, &str); 3] = [
    (PAGES, "KV pages of each worker, by state."),
    (UP, "Whether the worker is in the pool."),
    (REQUESTS, "Requests in flight on the worker."),
];
const COUNTERS: [(&str, &str); 10] = [
    (
        TRANSFERS,
        "Transfers of the worker's prompts, by how they ended.",
    ),
    (WRITES, "One-sided writes posted."),
    (BYTES, "Bytes pushed by completed writes."),
    (
        IMMEDIATES,
        "Immediates that arrived, by whether they counted.",
    ),
    (FENCES, "Peers fenced."),
    (
        PROMPT,
        "Prompt tokens prefilled, those found in the cache included.",
    ),
    (
        CACHED,
        "Prompt tokens found in the worker's cache: not computed (prefill) or not transferred (decode).",
    ),
    (GENERATED, "Tokens generated."),
    (
        DRAFTED,
        "Tokens that the model's draft head proposed, by whether the model chose them too.",
    ),
    (
        UNTOLD,
        "Spans of the worker that never reached the collector.",
    ),
];

/// All workers that have introduced themselves.
pub(crate) fn render(roster: &Roster) -> String {
    let recorder = PrometheusBuilder::new().build_recorder();
    for (name, what) in GAUGES {
        recorder.describe_gauge(name.into(), None, what.into());
    }
    for (name, what) in COUNTERS {
        recorder.describe_counter(name.into(), None, what.into());
    }
    for seat in roster.seats().values() {
        record(&recorder, seat);
    }
    recorder.handle().render() + &seconds(roster)
}

/// A reading of a worker's figures, in microseconds.
type Reading = fn(&proto::Figures) -> u64;

/// Counters of seconds: the recorder's hold whole numbers only.
const SECONDS: [(&str, &str, Reading); 2] = [
    (
        COMPUTE,
        "Of completed transfers: from the first step's start to the last layer's end.",
        |figures| figures.compute_us,
    ),
    (
        EXPOSED,
        "Of completed transfers: from the last layer's end to the last write's completion.",
        |figures| figures.exposed_us,
    ),
];

fn seconds(roster: &Roster) -> String {
    let mut text = String::new();
    for (name, what, reading) in SECONDS {
        text += &format!("# HELP {name} {what}\n# TYPE {name} counter\n");
        for seat in roster.seats().values() {
            let (Some(introduction), Some(load)) = (&seat.worker, &seat.load) else {
                continue;
            };
            // A worker's name holds nothing that would need escaping.
            let worker = &introduction.facts.worker;
            let value = reading(&load.figures.unwrap_or_default()) as f64 / 1e6;
            text += &format!("{name}{{worker=\"{worker}\"}} {value}\n");
        }
    }
    text
}

fn record(recorder: &PrometheusRecorder, seat: &Seat) {
    let Some(introduction) = &seat.worker else {
        return;
    };
    let facts = &introduction.facts;
    let worker = || Label::new("worker", facts.worker.to_string());
    let role = || Label::new("role", facts.role.as_str());
    let gauge = |name: &'static str, labels, value: u32| {
        let key = Key::from_parts(name, labels);
        recorder
            .register_gauge(&key, &METADATA)
            .set(f64::from(value));
    };
    let up = matches!(seat.state, State::Ready | State::Stopping);
    gauge(UP, vec![worker(), role()], u32::from(up));
    let Some(load) = &seat.load else { return };
    gauge(REQUESTS, vec![worker(), role()], load.requests);
    for (state, pages) in states(&load.pages.unwrap_or_default()) {
        gauge(
            PAGES,
            vec![worker(), role(), Label::new("state", state)],
            pages,
        );
    }
    let counter = |name: &'static str, result: Option<&'static str>, value: u64| {
        let result = result.map(|result| Label::new("result", result));
        let labels = [worker()].into_iter().chain(result).collect::<Vec<_>>();
        recorder
            .register_counter(&Key::from_parts(name, labels), &METADATA)
            .absolute(value);
    };
    let figures = load.figures.unwrap_or_default();
    counter(TRANSFERS, Some("completed"), figures.transfers_completed);
    counter(TRANSFERS, Some("failed"), figures.transfers_failed);
    counter(WRITES, None, figures.writes_posted);
    counter(BYTES, None, figures.bytes_pushed);
    counter(IMMEDIATES, Some("counted"), figures.immediates_counted);
    counter(IMMEDIATES, Some("stale"), figures.immediates_stale);
    counter(FENCES, None, figures.fences);
    counter(PROMPT, None, figures.prompt_tokens);
    counter(CACHED, None, figures.cached_tokens);
    counter(GENERATED, None, figures.generated_tokens);
    counter(UNTOLD, None, figures.telemetry_dropped);
    let rejected = figures
        .proposed_tokens
        .saturating_sub(figures.accepted_tokens);
    counter(DRAFTED, Some("accepted"), figures.accepted_tokens);
    counter(DRAFTED, Some("rejected"), rejected);
}

/// Pages by state.
pub(crate) const fn states(pages: &proto::Pages) -> [(&'static str, u32); 8] {
    [
        ("free", pages.free.saturating_sub(pages.cached)),
        ("cached", pages.cached),
        ("leased", pages.leased),
        ("exposed", pages.exposed),
        ("ready", pages.ready),
        ("active", pages.active),
        ("draining", pages.draining),
        ("quarantined", pages.quarantined),
    ]
}

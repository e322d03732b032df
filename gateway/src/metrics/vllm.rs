//! vLLM's gauges, made anew for each scrape: what autoscalers and the Gateway API's endpoint picker read.

use ::metrics::{Key, Recorder};
use metrics_exporter_prometheus::PrometheusBuilder;

use super::METADATA;
use super::requests::model_name;
use crate::roster::Roster;

const GAUGES: [(&str, &str); 3] = [
    (
        "vllm:num_requests_running",
        "Requests that a pair was asked for, or that run.",
    ),
    (
        "vllm:num_requests_waiting",
        "Requests that wait for a pair.",
    ),
    (
        "vllm:kv_cache_usage_perc",
        "Part of all decode workers' KV pages that cannot be leased now, 0 to 1.",
    ),
];

/// Nothing while no worker has said which model it serves.
pub(super) fn render(in_flight: usize, queued: usize, roster: &Roster) -> String {
    let seats = roster.seats();
    let workers = || {
        seats
            .values()
            .filter_map(|seat| Some((seat.worker.as_ref()?, seat)))
    };
    let Some((first, _)) = workers().next() else {
        return String::new();
    };
    let (mut total, mut free) = (0_u64, 0_u64);
    for (worker, seat) in workers() {
        if let Some(pages) = seat.load.as_ref().and_then(|load| load.pages)
            && worker.facts.role.decodes()
        {
            total += u64::from(pages.total);
            free += u64::from(pages.free);
        }
    }
    let used = total.saturating_sub(free) as f64 / total.max(1) as f64;
    let values = [in_flight.saturating_sub(queued) as f64, queued as f64, used];
    let recorder = PrometheusBuilder::new().build_recorder();
    for ((name, about), value) in GAUGES.into_iter().zip(values) {
        recorder.describe_gauge(name.into(), None, about.into());
        let key = Key::from_parts(name, vec![model_name(&first.facts.model)]);
        recorder.register_gauge(&key, &METADATA).set(value);
    }
    recorder.handle().render()
}

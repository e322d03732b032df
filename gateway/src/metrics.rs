//! The gateway's own figures, in Prometheus's form.
//!
//! Each gateway has a recorder of its own, so that several can live in one process.

mod admission;
mod operations;
mod workers;

use ::metrics::{Counter, Gauge, Histogram, Key, Label, Level, Metadata, Recorder};
use metrics_exporter_prometheus::{
    BuildError, Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};

use tandem_core::admission::AdmissionSettings;

use crate::door::View;
use crate::roster::Roster;

pub(crate) use admission::AdmissionMetrics;
pub(crate) use operations::render as operations;
pub(crate) use workers::states as page_states;

/// vLLM's buckets, so that its dashboards can be used.
const FIRST_TOKEN: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
];
const PER_TOKEN: &[f64] = &[
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
    40.0, 80.0,
];
const WHOLE: &[f64] = &[
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0, 7680.0,
];

const HISTOGRAMS: [(&str, &[f64], &str); 4] = [
    (
        TIME_TO_FIRST_TOKEN,
        FIRST_TOKEN,
        "From a request's arrival to its first token.",
    ),
    (
        TIME_PER_OUTPUT_TOKEN,
        PER_TOKEN,
        "Mean time between a request's tokens after the first.",
    ),
    (
        REQUEST_DURATION,
        WHOLE,
        "From a request's arrival to its end.",
    ),
    (
        QUEUE,
        WHOLE,
        "From a request's submission to its first lease.",
    ),
];

const TIME_TO_FIRST_TOKEN: &str = "tandem_time_to_first_token_seconds";
const TIME_PER_OUTPUT_TOKEN: &str = "tandem_time_per_output_token_seconds";
const REQUEST_DURATION: &str = "tandem_request_duration_seconds";
const QUEUE: &str = "tandem_queue_seconds";
const REQUESTS: &str = "tandem_requests_total";
const IN_FLIGHT: &str = "tandem_requests_in_flight";
const QUEUED: &str = "tandem_requests_queued";
const PROMPT_TOKENS: &str = "tandem_prompt_tokens_total";
const LOCAL_PREFILLS: &str = "tandem_local_prefills_total";
const INDEX_BLOCKS: &str = "tandem_prefix_index_blocks";
const INDEX_EVICTED: &str = "tandem_prefix_index_evicted_total";
const GENERATION_TOKENS: &str = "tandem_generation_tokens_total";

static METADATA: Metadata<'static> =
    Metadata::new(module_path!(), Level::INFO, Some(module_path!()));

/// The recorder, and what is recorded often.
pub(crate) struct Metrics {
    recorder: PrometheusRecorder,
    handle: PrometheusHandle,
    in_flight: Gauge,
    queued: Gauge,
    pub(crate) prompt_tokens: Counter,
    pub(crate) generation_tokens: Counter,
    pub(crate) time_to_first_token: Histogram,
    pub(crate) time_per_output_token: Histogram,
    pub(crate) request_duration: Histogram,
    pub(crate) admission: AdmissionMetrics,
}

impl Metrics {
    /// Nothing has been counted.
    pub(crate) fn new(admission: &AdmissionSettings) -> Result<Self, BuildError> {
        let mut builder = PrometheusBuilder::new();
        for (name, buckets, _) in HISTOGRAMS {
            builder = builder.set_buckets_for_metric(Matcher::Full(name.to_owned()), buckets)?;
        }
        let recorder = builder.build_recorder();
        for (name, _, what) in HISTOGRAMS {
            recorder.describe_histogram(name.into(), None, what.into());
        }
        let about = [
            (IN_FLIGHT, "Requests that have not ended."),
            (QUEUED, "Requests that wait."),
            (
                INDEX_BLOCKS,
                "Blocks of tokens that the prefix index knows.",
            ),
        ];
        for (name, what) in about {
            recorder.describe_gauge(name.into(), None, what.into());
        }
        let about = [
            (
                REQUESTS,
                "Replies, by endpoint and status code; 499 where the client left first.",
            ),
            (
                PROMPT_TOKENS,
                "Prompt tokens of requests that got a first token.",
            ),
            (GENERATION_TOKENS, "Tokens generated."),
            (
                INDEX_EVICTED,
                "Blocks that the prefix index forgot for want of room.",
            ),
            (
                LOCAL_PREFILLS,
                "Requests whose decode worker was asked to compute the prompt itself, by why.",
            ),
        ];
        for (name, what) in about {
            recorder.describe_counter(name.into(), None, what.into());
        }
        let gauge =
            |name: &'static str| recorder.register_gauge(&Key::from_static_name(name), &METADATA);
        let counter =
            |name: &'static str| recorder.register_counter(&Key::from_static_name(name), &METADATA);
        let histogram = |name: &'static str| {
            recorder.register_histogram(&Key::from_static_name(name), &METADATA)
        };
        Ok(Self {
            handle: recorder.handle(),
            in_flight: gauge(IN_FLIGHT),
            queued: gauge(QUEUED),
            prompt_tokens: counter(PROMPT_TOKENS),
            generation_tokens: counter(GENERATION_TOKENS),
            time_to_first_token: histogram(TIME_TO_FIRST_TOKEN),
            time_per_output_token: histogram(TIME_PER_OUTPUT_TOKEN),
            request_duration: histogram(REQUEST_DURATION),
            admission: AdmissionMetrics::new(&recorder, admission),
            recorder,
        })
    }

    /// A reply, or that the client left before it.
    pub(crate) fn reply(&self, endpoint: &'static str, code: u16) {
        let labels = vec![
            Label::new("endpoint", endpoint),
            Label::new("code", code.to_string()),
        ];
        let key = Key::from_parts(REQUESTS, labels);
        self.recorder.register_counter(&key, &METADATA).increment(1);
    }

    /// A pair whose decode worker computes the prompt itself, and why.
    pub(crate) fn local_prefill(&self, reason: &'static str) {
        let key = Key::from_parts(LOCAL_PREFILLS, vec![Label::new("reason", reason)]);
        self.recorder.register_counter(&key, &METADATA).increment(1);
    }

    /// What the prefix index knows, and forgot.
    pub(crate) fn prefix_index(&self, (blocks, evicted): (usize, u64)) {
        let key = Key::from_static_name(INDEX_BLOCKS);
        let gauge = self.recorder.register_gauge(&key, &METADATA);
        gauge.set(blocks as f64);
        let key = Key::from_static_name(INDEX_EVICTED);
        let counter = self.recorder.register_counter(&key, &METADATA);
        counter.absolute(evicted);
    }

    /// All of it, with the workers' figures.
    pub(crate) fn render(&self, in_flight: usize, view: &View, roster: &Roster) -> String {
        self.in_flight.set(in_flight as f64);
        self.queued.set(view.queued as f64);
        self.admission.look(view);
        let own = self.handle.render();
        own + &admission::breakers(view, roster) + &workers::render(roster)
    }

    /// Sorts recorded times into their buckets; to be called regularly, also where nobody scrapes.
    pub(crate) fn settle(&self) {
        self.handle.run_upkeep();
    }
}

//! The gateway's own figures, in Prometheus's form.
//!
//! Each gateway has a recorder of its own, so that several can live in one process. A part with figures
//! of its own has a file here: it describes and registers them with the recorder.

mod admission;
mod http;
mod in_stage;
mod operations;
mod process;
mod requests;
mod vllm;
mod workers;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use ::metrics::{Counter, Gauge, Key, Label, Level, Metadata, Recorder};
use metrics_exporter_prometheus::{
    BuildError, Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};
use tandem_core::admission::AdmissionSettings;
use tandem_telemetry::Spans;

use crate::door::View;
use crate::roster::Roster;

pub(crate) use admission::AdmissionMetrics;
pub(crate) use http::{Protocol, Refused};
pub(crate) use in_stage::{At, Counted};
pub(crate) use operations::render as operations;
pub(crate) use requests::{End, OfModel};
pub(crate) use workers::states as page_states;

const REQUESTS: &str = "tandem_requests_total";
const IN_FLIGHT: &str = "tandem_requests_in_flight";
const QUEUED: &str = "tandem_requests_queued";
const LOCAL_PREFILLS: &str = "tandem_local_prefills_total";
const INDEX_BLOCKS: &str = "tandem_prefix_index_blocks";
const INDEX_EVICTED: &str = "tandem_prefix_index_evicted_total";
const DROPPED: &str = "tandem_telemetry_dropped_total";

/// Models that have figures of their own; those of the rest are recorded as of one.
const MOST_MODELS: usize = 16;

static METADATA: Metadata<'static> =
    Metadata::new(module_path!(), Level::INFO, Some(module_path!()));

/// The recorder, and what is recorded often.
pub(crate) struct Metrics {
    recorder: PrometheusRecorder,
    handle: PrometheusHandle,
    /// Of connections and certificates.
    pub(crate) http: http::Http,
    in_flight: Gauge,
    queued: Gauge,
    dropped: Counter,
    pub(crate) in_stage: in_stage::InStage,
    pub(crate) admission: AdmissionMetrics,
    models: Mutex<HashMap<String, Arc<OfModel>>>,
    codes: requests::Codes,
    vllm_names: bool,
    /// Where the same is told over OTLP.
    pub(crate) spans: Spans,
}

impl Metrics {
    /// Nothing has been counted.
    pub(crate) fn new(
        admission: &AdmissionSettings,
        vllm_names: bool,
        spans: Spans,
    ) -> Result<Self, BuildError> {
        let mut builder = PrometheusBuilder::new();
        for (name, buckets, _) in requests::HISTOGRAMS {
            builder = builder.set_buckets_for_metric(Matcher::Full(name.to_owned()), buckets)?;
        }
        let recorder = builder.build_recorder();
        for (name, _, what) in requests::HISTOGRAMS {
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
            (DROPPED, "Spans that never reached the collector."),
            (
                INDEX_EVICTED,
                "Blocks that the prefix index forgot for want of room.",
            ),
            (
                LOCAL_PREFILLS,
                "Requests whose decode worker was asked to compute the prompt itself, by why.",
            ),
        ];
        for (name, what) in about.into_iter().chain(requests::COUNTERS) {
            recorder.describe_counter(name.into(), None, what.into());
        }
        // There from the start, so that a rate can be taken over the first request.
        drop(OfModel::new(&recorder, "", false));
        let gauge =
            |name: &'static str| recorder.register_gauge(&Key::from_static_name(name), &METADATA);
        let dropped = recorder.register_counter(&Key::from_static_name(DROPPED), &METADATA);
        Ok(Self {
            handle: recorder.handle(),
            http: http::Http::new(&recorder),
            in_flight: gauge(IN_FLIGHT),
            queued: gauge(QUEUED),
            dropped,
            in_stage: in_stage::InStage::new(&recorder),
            admission: AdmissionMetrics::new(&recorder, admission),
            models: Mutex::default(),
            codes: requests::Codes::default(),
            vllm_names,
            spans,
            recorder,
        })
    }

    /// Admission follows other settings from now on, numbered as those before.
    pub(crate) fn follow(&self, admission: &AdmissionSettings) {
        self.admission.follow(&self.recorder, admission);
    }

    /// The figures of a model's requests.
    pub(crate) fn of_model(&self, model: &str) -> Arc<OfModel> {
        let mut models = self.models.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(of) = models.get(model) {
            return Arc::clone(of);
        }
        let name = if models.len() < MOST_MODELS {
            model
        } else {
            "other"
        };
        let make = || Arc::new(OfModel::new(&self.recorder, name, self.vllm_names));
        Arc::clone(models.entry(name.to_owned()).or_insert_with(make))
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
        self.dropped.absolute(self.spans.dropped());
        let mut text = self.handle.render();
        if self.vllm_names {
            text += &vllm::render(in_flight, view.queued, roster);
        }
        text += &admission::breakers(view, roster);
        text + &workers::render(roster) + &process::render()
    }

    /// Sorts recorded times into their buckets; to be called regularly, also where nobody scrapes.
    pub(crate) fn settle(&self) {
        self.handle.run_upkeep();
    }
}

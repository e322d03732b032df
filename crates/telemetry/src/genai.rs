//! OpenTelemetry's figures of servers of generative models, over OTLP. The gateway shows the same
//! values to Prometheus.

use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Histogram, Meter};

use crate::buckets::{GEN_AI_FIRST_TOKEN, GEN_AI_PER_TOKEN, GEN_AI_REQUEST};

/// What `gen_ai.provider.name` says.
pub const PROVIDER: &str = "tandem";

/// One request that has ended, in the conventions' terms. Every text is one of few.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// `chat` or `text_completion`.
    pub operation: &'static str,
    /// The model as it is served.
    pub model: &'a str,
    /// The code of its error.
    pub error: Option<&'a str>,
    /// Arrival to end.
    pub duration: Duration,
    /// Time to first token.
    pub ttft: Option<Duration>,
    /// Time per output token.
    pub tpot: Option<Duration>,
}

impl Request<'_> {
    /// The attributes of its figures.
    #[must_use]
    pub fn attributes(&self) -> Vec<KeyValue> {
        let mut all = vec![
            KeyValue::new("gen_ai.operation.name", self.operation),
            KeyValue::new("gen_ai.provider.name", PROVIDER),
            KeyValue::new("gen_ai.request.model", self.model.to_owned()),
        ];
        match self.error {
            Some(error) => all.push(KeyValue::new("error.type", error.to_owned())),
            None => all.push(KeyValue::new(
                "gen_ai.response.model",
                self.model.to_owned(),
            )),
        }
        all
    }
}

/// The three histograms.
#[derive(Clone, Debug)]
pub(crate) struct Instruments {
    duration: Histogram<f64>,
    ttft: Histogram<f64>,
    tpot: Histogram<f64>,
}

impl Instruments {
    pub(crate) fn new(meter: &Meter) -> Self {
        let histogram = |name: &'static str, what: &'static str, bounds: &[f64]| {
            meter
                .f64_histogram(name)
                .with_unit("s")
                .with_description(what)
                .with_boundaries(bounds.to_vec())
                .build()
        };
        Self {
            duration: histogram(
                "gen_ai.server.request.duration",
                "From a request's arrival to its end.",
                GEN_AI_REQUEST,
            ),
            ttft: histogram(
                "gen_ai.server.time_to_first_token",
                "From a request's arrival to its first token.",
                GEN_AI_FIRST_TOKEN,
            ),
            tpot: histogram(
                "gen_ai.server.time_per_output_token",
                "Mean time between a request's tokens after the first.",
                GEN_AI_PER_TOKEN,
            ),
        }
    }

    pub(crate) fn record(&self, request: &Request<'_>) {
        let attributes = request.attributes();
        self.duration
            .record(request.duration.as_secs_f64(), &attributes);
        if let Some(ttft) = request.ttft {
            self.ttft.record(ttft.as_secs_f64(), &attributes);
        }
        if let Some(tpot) = request.tpot {
            self.tpot.record(tpot.as_secs_f64(), &attributes);
        }
    }
}

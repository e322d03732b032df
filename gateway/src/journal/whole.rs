//! A request of several answers, over all of them: its span.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tandem_telemetry::TraceContext;
use tandem_telemetry::genai::PROVIDER;
use tandem_telemetry::span::{KeyValue, Span, texts};

use super::{Journal, now};
use crate::generate::Fate;
use crate::metrics::Metrics;

/// Shared by the journals of a request's answers, whose spans are parts of its own. Dropping the last of
/// them records it.
pub(super) struct Whole {
    metrics: Arc<Metrics>,
    fate: Arc<Fate>,
    pub(super) trace: TraceContext,
    arrived: Instant,
    name: String,
    /// Known from the beginning.
    facts: Vec<KeyValue>,
    sums: Mutex<Sums>,
}

/// Of the answers that have ended.
#[derive(Default)]
struct Sums {
    choices: i64,
    prompt_tokens: u64,
    tokens: u64,
    ttft: Option<Duration>,
    finish_reasons: Vec<&'static str>,
    /// What one of them failed with, where its client left.
    error: Option<String>,
}

impl Whole {
    /// Of the request that `journal` has been alone for.
    pub(super) fn new(journal: &Journal) -> Self {
        let (model, operation) = (journal.of_model.model(), journal.operation());
        let text = |name: &'static str, value: &str| KeyValue::new(name, value.to_owned());
        Self {
            metrics: Arc::clone(&journal.metrics),
            fate: Arc::clone(&journal.fate),
            trace: journal.origin.trace.clone(),
            arrived: journal.times.arrived(),
            name: format!("{operation} {model}"),
            facts: vec![
                text("gen_ai.operation.name", operation),
                text("gen_ai.provider.name", PROVIDER),
                text("gen_ai.request.model", model),
                KeyValue::new("gen_ai.request.stream", journal.stream),
                text("tandem.request.name", &journal.origin.name),
            ],
            sums: Mutex::default(),
        }
    }

    /// One of its answers has ended.
    pub(super) fn add(&self, journal: &Journal) {
        let mut sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        sums.choices += 1;
        sums.prompt_tokens += journal.prompt_tokens;
        sums.tokens += journal.times.tokens();
        sums.ttft = sums.ttft.into_iter().chain(journal.times.ttft()).min();
        sums.finish_reasons.extend(journal.finish_reason);
        if journal.finish_reason.is_none() {
            sums.error = journal.error().map(str::to_owned);
        }
    }

    fn span(&self) -> Span {
        let sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        let count = |name: &'static str, value: u64| {
            KeyValue::new(name, i64::try_from(value).unwrap_or(i64::MAX))
        };
        let error = self.fate.error().or(sums.error.as_deref());
        // Like an answer that is sent whole, it has none yet where it has ended.
        let left = self.fate.error().is_none() && error.is_some();
        let status = self.fate.status().unwrap_or(if left { 499 } else { 200 });
        let first = |ttft: Duration| {
            KeyValue::new("gen_ai.response.time_to_first_chunk", ttft.as_secs_f64())
        };
        Span::server(&self.trace, self.name.clone(), (self.arrived, now()))
            .with_all(self.facts.iter().cloned())
            .with_all([
                KeyValue::new("gen_ai.request.choice.count", sums.choices),
                count("gen_ai.usage.input_tokens", sums.prompt_tokens),
                count("gen_ai.usage.output_tokens", sums.tokens),
                texts("gen_ai.response.finish_reasons", &sums.finish_reasons),
                count("http.response.status_code", status.into()),
            ])
            .with_all(sums.ttft.map(first))
            .failed(error)
    }
}

impl Drop for Whole {
    fn drop(&mut self) {
        self.metrics.spans.record(&self.trace, || vec![self.span()]);
    }
}

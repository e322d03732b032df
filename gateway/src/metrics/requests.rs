//! What is recorded of requests, under each name that it has: Tandem's own, vLLM's for dashboards that
//! were made for it, OpenTelemetry's in Prometheus's form.
//!
//! What must hold: label values are few, whatever clients and workers send.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use ::metrics::{Counter, Histogram, Key, Label, Recorder};
use metrics_exporter_prometheus::PrometheusRecorder;
use tandem_telemetry::buckets::{
    FIRST_TOKEN, GEN_AI_FIRST_TOKEN, GEN_AI_PER_TOKEN, GEN_AI_REQUEST, PER_TOKEN, REQUEST, STAGE,
    TOKENS,
};
use tandem_telemetry::{RequestTimes, Stage, genai};

use super::METADATA;

pub(super) const TIME_TO_FIRST_TOKEN: &str = "tandem_time_to_first_token_seconds";
pub(super) const INTER_TOKEN: &str = "tandem_inter_token_latency_seconds";
pub(super) const TIME_PER_OUTPUT_TOKEN: &str = "tandem_time_per_output_token_seconds";
pub(super) const REQUEST_DURATION: &str = "tandem_request_duration_seconds";
pub(super) const QUEUE: &str = "tandem_queue_seconds";
pub(super) const STAGES: &str = "tandem_stage_seconds";
const PROMPT_SIZE: &str = "tandem_request_prompt_tokens";
const ANSWER_SIZE: &str = "tandem_request_generation_tokens";
const PROMPT_TOKENS: &str = "tandem_prompt_tokens_total";
const CACHED_TOKENS: &str = "tandem_cached_tokens_total";
const GENERATION_TOKENS: &str = "tandem_generation_tokens_total";
const ERRORS: &str = "tandem_request_errors_total";

const VLLM_FIRST_TOKEN: &str = "vllm:time_to_first_token_seconds";
const VLLM_INTER_TOKEN: &str = "vllm:inter_token_latency_seconds";
/// vLLM's older name of the same: a time for each token, no mean.
const VLLM_PER_TOKEN: &str = "vllm:time_per_output_token_seconds";
const VLLM_DURATION: &str = "vllm:e2e_request_latency_seconds";
const VLLM_QUEUE: &str = "vllm:request_queue_time_seconds";
const VLLM_PREFILL: &str = "vllm:request_prefill_time_seconds";
const VLLM_DECODE: &str = "vllm:request_decode_time_seconds";
const VLLM_INFERENCE: &str = "vllm:request_inference_time_seconds";
const VLLM_PROMPT_SIZE: &str = "vllm:request_prompt_tokens";
const VLLM_ANSWER_SIZE: &str = "vllm:request_generation_tokens";
const VLLM_PROMPT_TOKENS: &str = "vllm:prompt_tokens_total";
const VLLM_GENERATION_TOKENS: &str = "vllm:generation_tokens_total";
const VLLM_CACHE_QUERIES: &str = "vllm:prefix_cache_queries_total";
const VLLM_CACHE_HITS: &str = "vllm:prefix_cache_hits_total";
const VLLM_SUCCESS: &str = "vllm:request_success_total";

const GEN_AI_DURATION: &str = "gen_ai_server_request_duration_seconds";
const GEN_AI_TTFT: &str = "gen_ai_server_time_to_first_token_seconds";
const GEN_AI_TPOT: &str = "gen_ai_server_time_per_output_token_seconds";

/// Codes of errors that get a label of their own; the rest share one.
const MOST_CODES: usize = 64;

/// All histograms: name, buckets, what it is.
pub(super) const HISTOGRAMS: [(&str, &[f64], &str); 21] = [
    (
        TIME_TO_FIRST_TOKEN,
        FIRST_TOKEN,
        "From a request's arrival to its first token.",
    ),
    (
        INTER_TOKEN,
        PER_TOKEN,
        "From one token of a request to the next; tokens of one message share its time.",
    ),
    (
        TIME_PER_OUTPUT_TOKEN,
        PER_TOKEN,
        "Mean time between a request's tokens after the first.",
    ),
    (
        REQUEST_DURATION,
        REQUEST,
        "From a request's arrival to its end.",
    ),
    (
        QUEUE,
        REQUEST,
        "From a request's submission to the asking of the pair that took it on.",
    ),
    (STAGES, STAGE, "Time in each stage of a request."),
    (PROMPT_SIZE, TOKENS, "Prompt tokens of a request."),
    (ANSWER_SIZE, TOKENS, "Tokens generated for a request."),
    (VLLM_FIRST_TOKEN, FIRST_TOKEN, "Time to first token."),
    (VLLM_INTER_TOKEN, PER_TOKEN, "Time between tokens."),
    (
        VLLM_PER_TOKEN,
        PER_TOKEN,
        "Time between tokens, under vLLM's older name.",
    ),
    (VLLM_DURATION, REQUEST, "From arrival to end."),
    (VLLM_QUEUE, REQUEST, "Time in the queue."),
    (VLLM_PREFILL, REQUEST, "From the lease to the first token."),
    (VLLM_DECODE, REQUEST, "From the first token to the last."),
    (VLLM_INFERENCE, REQUEST, "From the lease to the last token."),
    (VLLM_PROMPT_SIZE, TOKENS, "Prompt tokens of a request."),
    (VLLM_ANSWER_SIZE, TOKENS, "Tokens generated for a request."),
    (
        GEN_AI_DURATION,
        GEN_AI_REQUEST,
        "From a request's arrival to its end.",
    ),
    (
        GEN_AI_TTFT,
        GEN_AI_FIRST_TOKEN,
        "From a request's arrival to its first token.",
    ),
    (
        GEN_AI_TPOT,
        GEN_AI_PER_TOKEN,
        "Mean time between a request's tokens after the first.",
    ),
];

/// All counters.
pub(super) const COUNTERS: [(&str, &str); 9] = [
    (
        PROMPT_TOKENS,
        "Prompt tokens of requests that got a first token.",
    ),
    (
        CACHED_TOKENS,
        "Prompt tokens of finished requests that nobody had to compute.",
    ),
    (GENERATION_TOKENS, "Tokens generated."),
    (ERRORS, "Requests that failed, by the error's code."),
    (
        VLLM_PROMPT_TOKENS,
        "Prompt tokens of requests that got a first token.",
    ),
    (VLLM_GENERATION_TOKENS, "Tokens generated."),
    (VLLM_CACHE_QUERIES, "Prompt tokens of finished requests."),
    (
        VLLM_CACHE_HITS,
        "Prompt tokens of finished requests that nobody had to compute.",
    ),
    (VLLM_SUCCESS, "Requests that ended, by how."),
];

/// The figures of one model's requests.
pub(crate) struct OfModel {
    model: String,
    times: Times,
    counts: Counts,
    /// vLLM's names of both, where they are shown.
    vllm: Option<Vllm>,
}

struct Times {
    ttft: Histogram,
    itl: Histogram,
    tpot: Histogram,
    duration: Histogram,
    stages: [Histogram; Stage::ALL.len()],
    prompt_size: Histogram,
    answer_size: Histogram,
}

struct Counts {
    prompt: Counter,
    cached: Counter,
    generated: Counter,
}

struct Vllm {
    ttft: Histogram,
    itl: Histogram,
    per_token: Histogram,
    duration: Histogram,
    queue: Histogram,
    prefill: Histogram,
    decode: Histogram,
    inference: Histogram,
    prompt_size: Histogram,
    answer_size: Histogram,
    prompt: Counter,
    generated: Counter,
    cache_queries: Counter,
    cache_hits: Counter,
}

/// How a request ended, for its figures.
pub(crate) struct End<'a> {
    pub(crate) operation: &'static str,
    pub(crate) prompt_tokens: u64,
    /// `None` where it did not finish.
    pub(crate) cached_tokens: Option<u64>,
    pub(crate) finish_reason: Option<&'static str>,
    pub(crate) error: Option<&'a str>,
}

impl OfModel {
    pub(super) fn new(recorder: &PrometheusRecorder, model: &str, vllm_names: bool) -> Self {
        let histogram =
            |name, labels| recorder.register_histogram(&Key::from_parts(name, labels), &METADATA);
        let own = |name: &'static str| histogram(name, Vec::new());
        let counter =
            |name: &'static str| recorder.register_counter(&Key::from_static_name(name), &METADATA);
        let stage = |stage: Stage| histogram(STAGES, vec![Label::new("stage", stage.as_str())]);
        Self {
            model: model.to_owned(),
            times: Times {
                ttft: own(TIME_TO_FIRST_TOKEN),
                itl: own(INTER_TOKEN),
                tpot: own(TIME_PER_OUTPUT_TOKEN),
                duration: own(REQUEST_DURATION),
                stages: Stage::ALL.map(stage),
                prompt_size: own(PROMPT_SIZE),
                answer_size: own(ANSWER_SIZE),
            },
            counts: Counts {
                prompt: counter(PROMPT_TOKENS),
                cached: counter(CACHED_TOKENS),
                generated: counter(GENERATION_TOKENS),
            },
            vllm: vllm_names.then(|| Vllm::new(recorder, model)),
        }
    }

    /// The model as it is served.
    pub(crate) fn model(&self) -> &str {
        &self.model
    }

    /// The first token has come.
    pub(crate) fn first_token(&self, times: &RequestTimes, prompt_tokens: u64) {
        self.counts.prompt.increment(prompt_tokens);
        if let Some(vllm) = &self.vllm {
            vllm.prompt.increment(prompt_tokens);
        }
        let each = [&self.times.ttft].into_iter();
        for histogram in each.chain(self.vllm.as_ref().map(|v| &v.ttft)) {
            record(histogram, times.ttft());
        }
    }

    /// Tokens have come.
    pub(crate) fn tokens(&self, times: &mut RequestTimes, tokens: u32) {
        self.counts.generated.increment(tokens.into());
        if let Some(vllm) = &self.vllm {
            vllm.generated.increment(tokens.into());
        }
        if times.gaps().is_full() {
            self.gaps(times);
        }
    }

    /// Takes the times between tokens that were gathered.
    fn gaps(&self, times: &mut RequestTimes) {
        times.gaps_mut().take(|mean, count| {
            let count = count as usize;
            self.times.itl.record_many(mean, count);
            if let Some(vllm) = &self.vllm {
                vllm.itl.record_many(mean, count);
                vllm.per_token.record_many(mean, count);
            }
        });
    }

    /// The request has ended.
    fn ended(&self, times: &mut RequestTimes, end: &End<'_>) {
        self.gaps(times);
        record(&self.times.tpot, times.tpot());
        record(&self.times.duration, times.end_to_end());
        for (stage, histogram) in Stage::ALL.iter().zip(&self.times.stages) {
            record(histogram, times.stage(*stage));
        }
        if times.tokens() > 0 {
            self.times.prompt_size.record(end.prompt_tokens as f64);
            self.times.answer_size.record(times.tokens() as f64);
        }
        self.counts.cached.increment(end.cached_tokens.unwrap_or(0));
        if let Some(vllm) = &self.vllm {
            vllm.ended(times, end);
        }
    }
}

impl Vllm {
    fn new(recorder: &PrometheusRecorder, model: &str) -> Self {
        let key = |name: &'static str| Key::from_parts(name, vec![model_name(model)]);
        let histogram = |name| recorder.register_histogram(&key(name), &METADATA);
        let counter = |name| recorder.register_counter(&key(name), &METADATA);
        Self {
            ttft: histogram(VLLM_FIRST_TOKEN),
            itl: histogram(VLLM_INTER_TOKEN),
            per_token: histogram(VLLM_PER_TOKEN),
            duration: histogram(VLLM_DURATION),
            queue: histogram(VLLM_QUEUE),
            prefill: histogram(VLLM_PREFILL),
            decode: histogram(VLLM_DECODE),
            inference: histogram(VLLM_INFERENCE),
            prompt_size: histogram(VLLM_PROMPT_SIZE),
            answer_size: histogram(VLLM_ANSWER_SIZE),
            prompt: counter(VLLM_PROMPT_TOKENS),
            generated: counter(VLLM_GENERATION_TOKENS),
            cache_queries: counter(VLLM_CACHE_QUERIES),
            cache_hits: counter(VLLM_CACHE_HITS),
        }
    }

    fn ended(&self, times: &RequestTimes, end: &End<'_>) {
        record(&self.duration, times.end_to_end());
        record(&self.queue, times.stage(Stage::Queue));
        record(&self.prefill, times.lease_to_first_token());
        record(&self.decode, times.stage(Stage::Decode));
        record(&self.inference, times.lease_to_last_token());
        if times.tokens() > 0 {
            self.prompt_size.record(end.prompt_tokens as f64);
            self.answer_size.record(times.tokens() as f64);
        }
        if let Some(cached) = end.cached_tokens {
            self.cache_queries.increment(end.prompt_tokens);
            self.cache_hits.increment(cached);
        }
    }
}

fn record(histogram: &Histogram, time: Option<std::time::Duration>) {
    if let Some(time) = time {
        histogram.record(time.as_secs_f64());
    }
}

/// vLLM's label.
pub(super) fn model_name(model: &str) -> Label {
    Label::new("model_name", model.to_owned())
}

/// The codes that have been seen.
#[derive(Default)]
pub(super) struct Codes(Mutex<BTreeSet<String>>);

impl Codes {
    /// The code itself, or what stands for all that came too late.
    fn bounded<'a>(&self, code: &'a str) -> &'a str {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.contains(code) {
            return code;
        }
        if seen.len() < MOST_CODES {
            seen.insert(code.to_owned());
            return code;
        }
        "other"
    }
}

impl super::Metrics {
    /// A request has ended.
    pub(crate) fn ended(&self, of: &OfModel, times: &mut RequestTimes, end: &End<'_>) {
        of.ended(times, end);
        let error = end.error.map(|code| self.codes.bounded(code));
        if let Some(code) = error {
            let labels = vec![Label::new("type", code.to_owned())];
            let key = Key::from_parts(ERRORS, labels);
            self.recorder.register_counter(&key, &METADATA).increment(1);
        }
        if of.vllm.is_some() {
            let reason = match (end.finish_reason, end.error) {
                (Some(reason), None) => reason,
                (_, Some("client_gone")) => "abort",
                (_, Some(_)) | (None, None) => "error",
            };
            let labels = vec![model_name(&of.model), Label::new("finished_reason", reason)];
            let key = Key::from_parts(VLLM_SUCCESS, labels);
            self.recorder.register_counter(&key, &METADATA).increment(1);
        }
        let request = genai::Request {
            operation: end.operation,
            model: &of.model,
            error,
            duration: times.end_to_end().unwrap_or_default(),
            ttft: times.ttft(),
            tpot: times.tpot(),
        };
        self.gen_ai(&request);
        self.spans.request(&request);
    }

    /// OpenTelemetry's figures, in Prometheus's form.
    fn gen_ai(&self, request: &genai::Request<'_>) {
        let label = |pair: &tandem_telemetry::span::KeyValue| {
            let name = pair.key.as_str().replace('.', "_");
            Label::new(name, pair.value.to_string())
        };
        let labels: Vec<Label> = request.attributes().iter().map(label).collect();
        let times = [
            (GEN_AI_DURATION, Some(request.duration)),
            (GEN_AI_TTFT, request.ttft),
            (GEN_AI_TPOT, request.tpot),
        ];
        for (name, time) in times {
            if time.is_some() {
                let key = Key::from_parts(name, labels.clone());
                record(&self.recorder.register_histogram(&key, &METADATA), time);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_that_nobody_expected_share_a_label() {
        let codes = Codes::default();
        for n in 0..MOST_CODES {
            let code = n.to_string();
            assert_eq!(codes.bounded(&code), code);
        }
        assert_eq!(codes.bounded("one more"), "other");
        assert_eq!(codes.bounded("3"), "3");
    }
}

//! The spans of a request as the gateway saw it.

use tandem_telemetry::Stage;
use tandem_telemetry::genai::PROVIDER;
use tandem_telemetry::span::{KeyValue, Span, texts};
use tandem_wire::proto;

use super::Journal;

/// What was asked of the model, as far as it is a number.
pub(super) struct Asked {
    max_tokens: u32,
    temperature: f32,
    top_p: f32,
    top_k: u32,
    presence_penalty: f32,
    frequency_penalty: f32,
}

impl Asked {
    pub(super) const fn new(sampling: &proto::Sampling, new_tokens: u32) -> Self {
        Self {
            max_tokens: new_tokens,
            temperature: sampling.temperature,
            top_p: sampling.top_p,
            top_k: sampling.top_k,
            presence_penalty: sampling.presence_penalty,
            frequency_penalty: sampling.frequency_penalty,
        }
    }

    fn attributes(&self) -> Vec<KeyValue> {
        let real = |name: &'static str, value: f32| KeyValue::new(name, f64::from(value));
        let mut all = vec![
            KeyValue::new("gen_ai.request.max_tokens", i64::from(self.max_tokens)),
            real("gen_ai.request.temperature", self.temperature),
            real("gen_ai.request.top_p", self.top_p),
            real("gen_ai.request.presence_penalty", self.presence_penalty),
            real("gen_ai.request.frequency_penalty", self.frequency_penalty),
        ];
        if self.top_k > 0 {
            let top_k = i64::from(self.top_k);
            all.push(KeyValue::new("gen_ai.request.top_k", top_k));
        }
        all
    }
}

impl Journal {
    /// The request itself, or one of its several answers, then its stages.
    pub(super) fn spans(&self) -> Vec<Span> {
        let model = self.of_model.model();
        let operation = self.operation();
        let arrived = self.times.arrived();
        let whole = self.times.end_to_end().unwrap_or_default();
        let time = (arrived, arrived + whole);
        let request = match &self.whole {
            None => Span::server(&self.origin.trace, format!("{operation} {model}"), time),
            // Its stages are of this answer alone.
            Some(_) => {
                let number = i64::try_from(self.choice).unwrap_or(i64::MAX);
                Span::part(&self.origin.trace, "choice", time)
                    .with(KeyValue::new("tandem.choice.index", number))
            }
        };
        let stage = |stage: &Stage| {
            let time = self.times.span(*stage)?;
            Some(request.step(stage.as_str(), time))
        };
        let stages: Vec<Span> = Stage::ALL.iter().filter_map(stage).collect();
        let mut spans = vec![
            request
                .with_all(self.facts())
                .with_all(self.asked.iter().flat_map(|asked| asked.attributes()))
                .failed(self.error()),
        ];
        spans.extend(stages);
        spans
    }

    fn facts(&self) -> Vec<KeyValue> {
        let text = |name: &'static str, value: &str| KeyValue::new(name, value.to_owned());
        let count = |name: &'static str, value: u64| {
            KeyValue::new(name, i64::try_from(value).unwrap_or(i64::MAX))
        };
        let model = self.of_model.model();
        let mut facts = vec![
            text("gen_ai.operation.name", self.operation()),
            text("gen_ai.provider.name", PROVIDER),
            text("gen_ai.request.model", model),
            KeyValue::new("gen_ai.request.stream", self.stream),
            count("gen_ai.usage.input_tokens", self.prompt_tokens),
            count("gen_ai.usage.output_tokens", self.times.tokens()),
            count("http.response.status_code", u64::from(self.status())),
            text("tandem.request.name", &self.origin.name),
            text("tandem.request.id", &self.request.to_string()),
        ];
        if let Some(cached) = self.cached_tokens {
            facts.push(count("gen_ai.usage.cache_read.input_tokens", cached));
        }
        if let Some(reason) = self.finish_reason {
            facts.push(texts("gen_ai.response.finish_reasons", &[reason]));
            facts.push(text("gen_ai.response.model", model));
        }
        if let Some(ttft) = self.times.ttft() {
            let seconds = ttft.as_secs_f64();
            facts.push(KeyValue::new(
                "gen_ai.response.time_to_first_chunk",
                seconds,
            ));
        }
        if let Some(pair) = &self.pair {
            facts.push(text("tandem.worker.decode", pair.decode.as_str()));
            facts.push(text("tandem.why", &pair.why.to_string()));
            if let Some(prefill) = &pair.prefill {
                facts.push(text("tandem.worker.prefill", prefill.as_str()));
            }
        }
        facts
    }
}

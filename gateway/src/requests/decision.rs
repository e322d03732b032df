//! What was decided about a request, and what is kept of one that has ended.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tandem_core::pairing::Pair;
use tandem_core::{RequestId, WorkerId};

use super::{Progress, why};

/// How requests end well.
const FINISHED: [&str; 4] = ["stop", "length", "tool_calls", "content_filter"];

/// Something that was decided about a request.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Asked(Pair),
    NotTaken(String),
    Reserved,
    TurnedAway(String),
    Ended(String),
}

/// An ended request's way.
#[derive(Debug)]
pub(super) struct Decision {
    pub(super) request: RequestId,
    pub(super) name: String,
    pub(super) endpoint: &'static str,
    pub(super) tenant: Arc<str>,
    pub(super) ended_at_ms: u64,
    pub(super) tokens: u64,
    pub(super) progress: Progress,
}

impl Decision {
    pub(super) fn json(&self) -> Value {
        let progress = &self.progress;
        let pair = progress.pair.as_ref();
        let mut latest = progress.steps.iter().rev();
        let how = latest.find_map(|(_, step)| match step {
            Step::Ended(how) => Some(how.as_str()),
            _ => None,
        });
        let how = how.unwrap_or("client_gone");
        let took = progress.took.as_ref();
        let stages = took.iter().flat_map(|took| &took.stages);
        let stages: Map<String, Value> = stages
            .map(|(stage, took)| (stage.as_str().to_owned(), json!(ms(*took))))
            .collect();
        json!({
            "request": self.request.to_string(),
            "request_id": self.name,
            "endpoint": self.endpoint,
            "tenant": &*self.tenant,
            "ended_at_ms": self.ended_at_ms,
            "outcome": how,
            "failed": !FINISHED.contains(&how),
            "decode": pair.map(|pair| pair.decode.as_str()),
            "prefill": pair.and_then(|pair| pair.prefill.as_ref()).map(WorkerId::as_str),
            "prompt_tokens": progress.prompt_tokens,
            "tokens": self.tokens,
            "ttft_ms": took.and_then(|took| took.ttft).map(ms),
            "total_ms": took.map(|took| ms(took.total)),
            "stages": stages,
            "steps": told(&progress.steps),
        })
    }
}

/// Milliseconds with their fraction.
pub(super) fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// The steps, each with its reason in words.
pub(super) fn told(steps: &[(u64, Step)]) -> Value {
    steps.iter().map(told_step).collect()
}

/// The steps; a choice with all figures that it was made by.
pub(super) fn explained(steps: &[(u64, Step)]) -> Value {
    let step = |step: &(u64, Step)| {
        let mut value = told_step(step);
        if let Step::Asked(pair) = &step.1 {
            value["choice"] = why::choice(&pair.why);
            value["cached_tokens"] = json!(pair.cached_tokens);
        }
        value
    };
    steps.iter().map(step).collect()
}

fn told_step((after_ms, step): &(u64, Step)) -> Value {
    let mut value = match step {
        Step::Asked(pair) => json!({
            "step": "asked",
            "decode": pair.decode.as_str(),
            "prefill": pair.prefill.as_ref().map(WorkerId::as_str),
            "why": pair.why.to_string(),
        }),
        Step::NotTaken(why) => json!({"step": "not taken on", "why": why}),
        Step::Reserved => json!({"step": "reserved"}),
        Step::TurnedAway(why) => json!({"step": "turned away", "why": why}),
        Step::Ended(how) => json!({"step": "ended", "why": how}),
    };
    value["after_ms"] = json!(after_ms);
    value
}

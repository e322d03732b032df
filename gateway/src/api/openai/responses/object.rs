//! The response itself.

use serde_json::{Map, Value, json};

use crate::api::answer::{Answer, Identity, Part, Usage};
use crate::api::error::ApiError;

/// What a response repeats of its request.
#[derive(Debug, Default)]
pub(crate) struct ResponseForm(pub(crate) Map<String, Value>);

/// How far a response is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum State<'a> {
    InProgress,
    /// It ended well, at this moment (seconds since 1970).
    Ended(&'a Answer, Usage),
    Failed(&'a Answer, &'a ApiError),
}

impl State<'_> {
    const fn word(&self) -> &'static str {
        match self {
            Self::InProgress => "in_progress",
            Self::Ended(answer, _) if answer.ending.length => "incomplete",
            Self::Ended(..) => "completed",
            Self::Failed(..) => "failed",
        }
    }
}

/// A whole answer.
pub(crate) fn whole(
    form: ResponseForm,
    identity: &Identity,
    answers: &[Answer],
    usage: Usage,
) -> Value {
    let none = Answer::default();
    let answer = answers.first().unwrap_or(&none);
    object(&form, identity, State::Ended(answer, usage))
}

/// The response as it is.
pub(crate) fn object(form: &ResponseForm, identity: &Identity, state: State<'_>) -> Value {
    let mut object = form.0.clone();
    let mut set = |name: &str, value: Value| object.insert(name.to_owned(), value);
    set("id", format!("resp_{}", identity.request).into());
    set("object", "response".into());
    set("created_at", identity.created.into());
    set("status", state.word().into());
    set("model", identity.model.as_str().into());
    set("background", false.into());
    set("previous_response_id", Value::Null);
    set("store", false.into());
    set("truncation", "disabled".into());
    set("service_tier", "default".into());
    set("error", Value::Null);
    set("incomplete_details", Value::Null);
    match state {
        State::InProgress => set("output", json!([])),
        State::Ended(answer, usage) => {
            if answer.ending.length {
                set("incomplete_details", json!({"reason": "max_output_tokens"}));
            }
            set("usage", tokens(usage));
            set("output", output(identity, answer, answer.ending.length))
        }
        State::Failed(answer, error) => {
            set(
                "error",
                json!({"code": "server_error", "message": error.message}),
            );
            set("output", output(identity, answer, true))
        }
    };
    Value::Object(object)
}

fn tokens(usage: Usage) -> Value {
    json!({
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": 0},
        "output_tokens": usage.completion,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.prompt + usage.completion,
    })
}

/// All items; where the answer was cut off, the last one is incomplete.
fn output(identity: &Identity, answer: &Answer, cut: bool) -> Value {
    let last = answer.parts.len().saturating_sub(1);
    let parts = answer.parts.iter().enumerate();
    let item = |(index, part): (usize, &Part)| {
        let status = if cut && index == last {
            "incomplete"
        } else {
            "completed"
        };
        item(identity, index, part, status)
    };
    parts.map(item).collect()
}

/// The id of the item at a place.
pub(crate) fn item_id(identity: &Identity, index: usize, part: &Part) -> String {
    let prefix = match part {
        Part::Text(_) => "msg",
        Part::Reasoning(_) => "rs",
        Part::Call { .. } => "fc",
    };
    format!("{prefix}_{}{index:02}", identity.request)
}

/// A part of the answer as an item of the output.
pub(crate) fn item(identity: &Identity, index: usize, part: &Part, status: &str) -> Value {
    let id = item_id(identity, index, part);
    let content = match content(part) {
        Some(content) if status != "in_progress" => json!([content]),
        _ => json!([]),
    };
    match part {
        Part::Text(_) => json!({
            "id": id, "type": "message", "role": "assistant", "status": status, "content": content,
        }),
        Part::Reasoning(_) => json!({
            "id": id, "type": "reasoning", "status": status, "summary": [], "content": content,
        }),
        Part::Call {
            id: own,
            name,
            arguments,
        } => json!({
            "id": id,
            "type": "function_call",
            "status": status,
            "call_id": identity.call_id(0, index, own.as_deref()),
            "name": name,
            "arguments": arguments,
        }),
    }
}

/// The content part of an item that has one.
pub(crate) fn content(part: &Part) -> Option<Value> {
    match part {
        Part::Text(text) => Some(json!({
            "type": "output_text", "text": text, "annotations": [], "logprobs": [],
        })),
        Part::Reasoning(text) => Some(json!({"type": "reasoning_text", "text": text})),
        Part::Call { .. } => None,
    }
}

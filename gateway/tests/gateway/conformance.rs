//! Every reply and every event has the form that OpenAI describes.

use std::collections::HashMap;
use std::sync::LazyLock;

use http::StatusCode;
use jsonschema::Validator;
use serde_json::{Value, json};

use crate::harness::{CHAT, COMPLETIONS, MESSAGES, RESPONSES};

static SCHEMAS: LazyLock<HashMap<String, Validator>> = LazyLock::new(|| {
    let all: Value = serde_json::from_str(include_str!("../openai/schemas.json")).unwrap();
    let names = all["components"]["schemas"].as_object().unwrap().keys();
    names
        .map(|name| {
            let mut schema = all.clone();
            schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
            schema["$ref"] = json!(format!("#/components/schemas/{name}"));
            (name.clone(), jsonschema::validator_for(&schema).unwrap())
        })
        .collect()
});

fn check(name: &str, value: &Value) {
    let schema = SCHEMAS
        .get(name)
        .unwrap_or_else(|| panic!("no schema {name}"));
    let errors: Vec<String> = schema
        .iter_errors(value)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{name}: {errors:#?}\n{value:#}");
}

/// A reply to a request for `path`.
pub(crate) fn check_reply(path: &str, status: StatusCode, value: &Value) {
    if path.starts_with(MESSAGES) {
        let kind = if status == 200 { None } else { Some("error") };
        assert!(kind.is_none_or(|kind| value["type"] == kind), "{value}");
        return;
    }
    match path {
        _ if !status.is_success() => check("ErrorResponse", value),
        CHAT => check("CreateChatCompletionResponse", value),
        COMPLETIONS => check("CreateCompletionResponse", value),
        RESPONSES => check("Response", value),
        "/v1/models" => check("ListModelsResponse", value),
        _ if path.starts_with("/v1/models/") => check("Model", value),
        _ => {}
    }
}

/// An event of the stream that `path` gave.
pub(crate) fn check_event(path: &str, value: &Value) {
    match path {
        MESSAGES => {}
        _ if value.get("error").is_some() && path != RESPONSES => check("ErrorResponse", value),
        CHAT => check("CreateChatCompletionStreamResponse", value),
        COMPLETIONS => check("CreateCompletionResponse", value),
        RESPONSES => check(response_event(value["type"].as_str().unwrap()), value),
        _ => {}
    }
}

fn response_event(kind: &str) -> &'static str {
    match kind {
        "response.created" => "ResponseCreatedEvent",
        "response.in_progress" => "ResponseInProgressEvent",
        "response.completed" => "ResponseCompletedEvent",
        "response.incomplete" => "ResponseIncompleteEvent",
        "response.failed" => "ResponseFailedEvent",
        "response.output_item.added" => "ResponseOutputItemAddedEvent",
        "response.output_item.done" => "ResponseOutputItemDoneEvent",
        "response.content_part.added" => "ResponseContentPartAddedEvent",
        "response.content_part.done" => "ResponseContentPartDoneEvent",
        "response.output_text.delta" => "ResponseTextDeltaEvent",
        "response.output_text.done" => "ResponseTextDoneEvent",
        "response.reasoning_text.delta" => "ResponseReasoningTextDeltaEvent",
        "response.reasoning_text.done" => "ResponseReasoningTextDoneEvent",
        "response.function_call_arguments.delta" => "ResponseFunctionCallArgumentsDeltaEvent",
        "response.function_call_arguments.done" => "ResponseFunctionCallArgumentsDoneEvent",
        other => panic!("an event {other}"),
    }
}

//! Fields that OpenAI's or Anthropic's API (or a common extension) has and Tandem does not do, each
//! with the values that ask for nothing and so do no harm.

use serde_json::Value;

/// A field's name, and whether its value asks for nothing.
pub(crate) type Field = (&'static str, fn(&Value) -> bool);

/// `/v1/chat/completions`.
pub(crate) const CHAT: &[Field] = &[
    ("audio", never),
    ("function_call", off),
    ("functions", empty),
    ("modalities", text_only),
    ("moderation", never),
    ("prediction", never),
    ("prompt_cache_retention", never),
    ("service_tier", standard),
    ("store", disabled),
    ("verbosity", never),
    ("web_search_options", never),
];

/// `/v1/completions`.
pub(crate) const COMPLETIONS: &[Field] = &[
    ("service_tier", standard),
    ("store", disabled),
    ("suffix", blank),
];

/// `/v1/responses`.
pub(crate) const RESPONSES: &[Field] = &[
    ("background", disabled),
    ("context_management", empty),
    ("conversation", never),
    ("include", own_reasoning),
    ("max_tool_calls", never),
    ("moderation", never),
    ("previous_response_id", never),
    ("prompt", never),
    ("prompt_cache_options", never),
    ("prompt_cache_retention", never),
    ("service_tier", standard),
    ("store", disabled),
    ("top_logprobs", zero),
    ("truncation", disabled_word),
];

/// `/v1/messages`.
pub(crate) const MESSAGES: &[Field] = &[
    ("cache_control", Value::is_object),
    ("container", never),
    ("context_management", empty),
    ("inference_geo", never),
    ("mcp_servers", empty),
    ("service_tier", standard),
];

/// A message of a chat.
pub(crate) const MESSAGE: &[Field] = &[
    ("annotations", empty),
    ("audio", never),
    ("function_call", never),
    ("refusal", blank),
    ("tool_call_id", never),
    ("tool_calls", empty),
];

/// A part of a message's content. What may be cached is decided here, not by its marks.
pub(crate) const TEXT_PART: &[Field] = &[
    ("annotations", empty),
    ("cache_control", Value::is_object),
    ("citations", empty),
    ("logprobs", empty),
    ("prompt_cache_breakpoint", never),
];

pub(crate) const fn never(_: &Value) -> bool {
    false
}

fn zero(value: &Value) -> bool {
    value.as_f64() == Some(0.0)
}

pub(crate) fn disabled(value: &Value) -> bool {
    *value == false
}

fn disabled_word(value: &Value) -> bool {
    *value == "disabled"
}

fn blank(value: &Value) -> bool {
    *value == ""
}

pub(crate) fn empty(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty) || value.as_object().is_some_and(|o| o.is_empty())
}

/// What a client without a stored response needs to hand the reasoning back: it gets that anyway, and in
/// the clear.
fn own_reasoning(value: &Value) -> bool {
    let wanted = value.as_array();
    wanted.is_some_and(|all| all.iter().all(|one| one == "reasoning.encrypted_content"))
}

/// Without tools both mean that none is called.
fn off(value: &Value) -> bool {
    *value == "none" || *value == "auto"
}

pub(crate) fn standard(value: &Value) -> bool {
    ["auto", "default", "standard_only"]
        .iter()
        .any(|word| value == word)
}

fn text_only(value: &Value) -> bool {
    value
        .as_array()
        .is_some_and(|list| list.len() == 1 && list[0] == "text")
}

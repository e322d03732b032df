//! Fields that OpenAI's API (or a common extension of it) has and Tandem does not do, each with the
//! values that ask for nothing and so do no harm.

use serde_json::Value;

/// A field's name, and whether its value asks for nothing.
pub(crate) type Field = (&'static str, fn(&Value) -> bool);

/// `/v1/chat/completions`.
pub(crate) const CHAT: &[Field] = &[
    ("audio", never),
    ("frequency_penalty", zero),
    ("function_call", off),
    ("functions", empty),
    ("logit_bias", empty),
    ("min_p", zero),
    ("min_tokens", zero),
    ("modalities", text_only),
    ("n", one),
    ("parallel_tool_calls", Value::is_boolean),
    ("prediction", never),
    ("presence_penalty", zero),
    ("reasoning_effort", off),
    ("repetition_penalty", one),
    ("response_format", text_format),
    ("service_tier", standard),
    ("store", disabled),
    ("tool_choice", off),
    ("tools", empty),
    ("verbosity", never),
    ("web_search_options", never),
];

/// `/v1/completions`.
pub(crate) const COMPLETIONS: &[Field] = &[
    ("best_of", one),
    ("echo", disabled),
    ("frequency_penalty", zero),
    ("logit_bias", empty),
    ("min_p", zero),
    ("min_tokens", zero),
    ("n", one),
    ("presence_penalty", zero),
    ("repetition_penalty", one),
    ("response_format", text_format),
    ("service_tier", standard),
    ("store", disabled),
    ("suffix", blank),
];

/// `stream_options`.
pub(crate) const STREAM_OPTIONS: &[Field] = &[("include_obfuscation", disabled)];

/// A message.
pub(crate) const MESSAGE: &[Field] = &[
    ("annotations", empty),
    ("audio", never),
    ("function_call", never),
    ("refusal", blank),
    ("tool_call_id", never),
    ("tool_calls", empty),
];

const fn never(_: &Value) -> bool {
    false
}

fn zero(value: &Value) -> bool {
    value.as_f64() == Some(0.0)
}

fn one(value: &Value) -> bool {
    value.as_f64() == Some(1.0)
}

fn disabled(value: &Value) -> bool {
    *value == false
}

fn blank(value: &Value) -> bool {
    *value == ""
}

fn empty(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty) || value.as_object().is_some_and(|o| o.is_empty())
}

/// Without tools both mean that none is called.
fn off(value: &Value) -> bool {
    *value == "none" || *value == "auto"
}

fn standard(value: &Value) -> bool {
    *value == "auto" || *value == "default"
}

fn text_only(value: &Value) -> bool {
    value
        .as_array()
        .is_some_and(|list| list.len() == 1 && list[0] == "text")
}

fn text_format(value: &Value) -> bool {
    value
        .as_object()
        .is_some_and(|o| o.len() == 1 && value["type"] == "text")
}

//! What `/v1/chat/completions` asks for that `/v1/completions` does not.

use std::time::SystemTime;

use serde_json::{Value, json};
use tandem_text::{ChatOptions, TextModel};

use super::ask::{Known, OutputLength};
use super::error::ApiError;
use super::params::Params;
use super::unsupported;

/// The prompt's text.
pub(crate) fn render(params: &mut Params, text: &TextModel) -> Result<String, ApiError> {
    let messages = params
        .take("messages")
        .ok_or_else(|| ApiError::missing("messages"))?;
    let Value::Array(messages) = messages else {
        return Err(ApiError::kind_of(
            "messages",
            "an array of objects",
            &messages,
        ));
    };
    if messages.is_empty() {
        let message = "Invalid 'messages': expected at least one message, but got none.";
        return Err(ApiError::value("messages", message));
    }
    let messages: Result<Vec<_>, _> = messages
        .into_iter()
        .enumerate()
        .map(check_message)
        .collect();
    let options = ChatOptions {
        add_generation_prompt: true,
        now: Some(SystemTime::now()),
        ..ChatOptions::default()
    };
    Ok(text.render_chat(&Value::Array(messages?), options)?)
}

/// A message as templates know it.
fn check_message((index, message): (usize, Value)) -> Result<Value, ApiError> {
    let path = format!("messages[{index}]");
    let mut fields = Params::within(&path, message)?;
    let role_name = fields.name("role");
    let role = fields
        .text("role")?
        .ok_or_else(|| ApiError::missing(&role_name))?;
    let role = match role.as_str() {
        // OpenAI's newer word; templates know the older one.
        "system" | "developer" => "system",
        "user" => "user",
        "assistant" => "assistant",
        "tool" | "function" => {
            return Err(ApiError::unsupported(
                role_name,
                &format!(" with value '{role}'"),
            ));
        }
        _ => {
            let shown: String = role.chars().take(32).collect();
            let want = "system, developer, user or assistant";
            let message = format!("Invalid '{role_name}': expected {want}, but got '{shown}'.");
            return Err(ApiError::value(role_name, message));
        }
    };
    let content_name = fields.name("content");
    let content = fields
        .take("content")
        .ok_or_else(|| ApiError::missing(&content_name))?;
    match &content {
        Value::String(_) => {}
        Value::Array(parts) if !parts.is_empty() => {}
        Value::Array(_) => {
            let message = format!("Invalid '{content_name}': expected at least one part.");
            return Err(ApiError::value(content_name, message));
        }
        other => {
            return Err(ApiError::kind_of(
                content_name,
                "a string or an array",
                other,
            ));
        }
    }
    let name = fields.text("name")?;
    fields.finish(unsupported::MESSAGE)?;
    let mut message = json!({"role": role, "content": content});
    if let Some(name) = name {
        message["name"] = Value::String(name);
    }
    Ok(message)
}

/// How many alternatives are wanted for each token; `None`: no log probabilities at all.
pub(crate) fn logprobs(params: &mut Params) -> Result<Option<u32>, ApiError> {
    let wanted = params.boolean("logprobs")?.unwrap_or(false);
    let top = params.integer("top_logprobs", 0..=20)?;
    match (wanted, top) {
        (false, Some(1..)) => {
            let message = "The 'top_logprobs' parameter needs 'logprobs' to be true.";
            Err(ApiError::value("top_logprobs", message))
        }
        (false, _) => Ok(None),
        (true, top) => Ok(Some(u32::try_from(top.unwrap_or(0)).unwrap_or(0))),
    }
}

/// `max_completion_tokens`, or its older name.
pub(crate) fn output_length(params: &mut Params, known: &Known) -> Result<OutputLength, ApiError> {
    let newer = max_tokens(params, "max_completion_tokens")?;
    let older = max_tokens(params, "max_tokens")?;
    if newer.is_some() && older.is_some() && newer != older {
        let message = "'max_tokens' and 'max_completion_tokens' differ: set one of them.";
        return Err(ApiError::value("max_tokens", message));
    }
    let param = if newer.is_some() {
        "max_completion_tokens"
    } else {
        "max_tokens"
    };
    Ok(OutputLength {
        asked: newer.or(older),
        param,
        default: known.default_max_tokens,
    })
}

/// A count of tokens to generate.
pub(crate) fn max_tokens(params: &mut Params, field: &str) -> Result<Option<u64>, ApiError> {
    let count = params.integer(field, 1..=i64::MAX)?;
    // What is over the context is refused where the context is known.
    Ok(count.map(i64::unsigned_abs))
}

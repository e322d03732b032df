//! What `/v1/completions` asks for that `/v1/chat/completions` does not.

use serde_json::Value;

use super::ask::{OutputLength, Prompt};
use super::chat::max_tokens;
use super::error::ApiError;
use super::params::Params;

/// OpenAI's default.
const DEFAULT_MAX_TOKENS: u32 = 16;

/// The one prompt: a text, or tokens.
pub(crate) fn prompt(params: &mut Params) -> Result<Prompt, ApiError> {
    let prompt = params
        .take("prompt")
        .ok_or_else(|| ApiError::missing("prompt"))?;
    let mut entries = match prompt {
        Value::String(text) => return Ok(Prompt::Text(text)),
        Value::Array(entries) => entries,
        other => return Err(ApiError::kind_of("prompt", "a string or an array", &other)),
    };
    match entries.first() {
        None => Err(ApiError::value(
            "prompt",
            "Invalid 'prompt': it holds no token.",
        )),
        Some(Value::Number(_)) => tokens(&entries).map(Prompt::Tokens),
        Some(_) if entries.len() > 1 => Err(ApiError::unsupported(
            "prompt",
            " with several prompts in one request",
        )),
        Some(_) => match entries.remove(0) {
            Value::String(text) => Ok(Prompt::Text(text)),
            Value::Array(inner) => tokens(&inner).map(Prompt::Tokens),
            other => Err(ApiError::kind_of(
                "prompt",
                "an array of strings or tokens",
                &other,
            )),
        },
    }
}

fn tokens(entries: &[Value]) -> Result<Vec<u32>, ApiError> {
    let token = |entry: &Value| match entry.as_u64().map(u32::try_from) {
        Some(Ok(token)) => Ok(token),
        _ => Err(ApiError::kind_of("prompt", "an array of token ids", entry)),
    };
    entries.iter().map(token).collect()
}

/// How many alternatives are wanted for each token; `None`: no log probabilities at all.
pub(crate) fn logprobs(params: &mut Params) -> Result<Option<u32>, ApiError> {
    let count = params.integer("logprobs", 0..=5)?;
    Ok(count.and_then(|count| u32::try_from(count).ok()))
}

/// `max_tokens`.
pub(crate) fn output_length(params: &mut Params) -> Result<OutputLength, ApiError> {
    let asked = max_tokens(params, "max_tokens")?;
    Ok(OutputLength {
        asked,
        param: "max_tokens",
        default: Some(DEFAULT_MAX_TOKENS),
    })
}

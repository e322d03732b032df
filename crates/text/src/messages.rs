//! OpenAI's messages, in the form that chat templates expect.

use serde_json::{Map, Value};

use crate::error::TemplateError;

/// Messages whose content is a string and whose tool calls have objects for arguments. Everything
/// else stays as it came.
pub(crate) fn flatten(messages: &Value) -> Result<Vec<Value>, TemplateError> {
    let messages = messages.as_array().ok_or(TemplateError::NotAnArray)?;
    messages
        .iter()
        .enumerate()
        .map(|(index, message)| flatten_one(index, message))
        .collect()
}

fn flatten_one(index: usize, message: &Value) -> Result<Value, TemplateError> {
    let malformed = |reason: &str| TemplateError::Malformed {
        index,
        reason: reason.to_owned(),
    };
    let message = message
        .as_object()
        .ok_or_else(|| malformed("must be an object"))?;
    if !message.get("role").is_some_and(Value::is_string) {
        return Err(malformed("'role' must be a string"));
    }
    let content = match message.get("content") {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => join(index, parts)?,
        Some(_) => return Err(malformed("'content' must be a string or an array of parts")),
    };
    let mut flat = Map::with_capacity(message.len() + 1);
    for (key, value) in message {
        let value = match key.as_str() {
            "content" => continue,
            "tool_calls" => tool_calls(value).map_err(|reason| malformed(&reason))?,
            _ => value.clone(),
        };
        flat.insert(key.clone(), value);
    }
    flat.insert("content".to_owned(), Value::String(content));
    Ok(Value::Object(flat))
}

/// Text parts, a line each (as in vLLM).
fn join(index: usize, parts: &[Value]) -> Result<String, TemplateError> {
    let malformed = |reason: &str| TemplateError::Malformed {
        index,
        reason: reason.to_owned(),
    };
    let mut texts = Vec::with_capacity(parts.len());
    for part in parts {
        match part["type"].as_str() {
            Some("text") => {}
            Some(kind) => {
                let kind = kind.to_owned();
                return Err(TemplateError::UnsupportedPart { index, kind });
            }
            None => return Err(malformed("a content part has no 'type'")),
        }
        let text = part["text"].as_str();
        texts.push(text.ok_or_else(|| malformed("a text part has no 'text'"))?);
    }
    Ok(texts.join("\n"))
}

/// OpenAI sends a call's arguments as JSON in a string; templates want the object itself.
fn tool_calls(calls: &Value) -> Result<Value, String> {
    let mut calls = calls.clone();
    for call in calls.as_array_mut().into_iter().flatten() {
        let Some(arguments) = call.pointer_mut("/function/arguments") else {
            continue;
        };
        if let Value::String(text) = arguments {
            *arguments = match text.trim() {
                "" => Value::Object(Map::new()),
                text => serde_json::from_str(text)
                    .map_err(|_| "a tool call's 'arguments' are not JSON".to_owned())?,
            };
        }
    }
    Ok(calls)
}

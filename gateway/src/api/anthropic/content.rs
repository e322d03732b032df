//! Anthropic's messages, in the form that templates know.

use serde_json::{Map, Value, json};

use crate::api::error::ApiError;
use crate::api::openai::messages::Calls;
use crate::api::params::Params;
use crate::api::unsupported;

/// `system`: a text or text blocks.
pub(crate) fn system(value: Value) -> Result<Value, ApiError> {
    let text = match value {
        Value::String(text) => text,
        Value::Array(blocks) => texts("system", blocks)?,
        other => return Err(ApiError::kind_of("system", "a string or an array", &other)),
    };
    Ok(json!({"role": "system", "content": text}))
}

/// `messages`: at least one. A block of results becomes a message of its own.
pub(crate) fn messages(params: &mut Params, into: &mut Vec<Value>) -> Result<(), ApiError> {
    let messages = params
        .array("messages")?
        .ok_or_else(|| ApiError::missing("messages"))?;
    if messages.is_empty() {
        let message = "Invalid 'messages': expected at least one message, but got none.";
        return Err(ApiError::value("messages", message));
    }
    let mut calls = Calls::default();
    for (index, message) in messages.into_iter().enumerate() {
        let mut fields = Params::within(&format!("messages[{index}]"), message)?;
        let name = fields.name("role");
        let role = fields.needed_text("role")?;
        let content = fields.name("content");
        let blocks = fields
            .take("content")
            .ok_or_else(|| ApiError::missing(&content))?;
        fields.finish(&[])?;
        let blocks = match blocks {
            Value::String(text) => vec![json!({"type": "text", "text": text})],
            Value::Array(blocks) => blocks,
            other => return Err(ApiError::kind_of(content, "a string or an array", &other)),
        };
        match role.as_str() {
            "user" => user(&content, blocks, &calls, into)?,
            "assistant" => into.push(assistant(&content, blocks, &mut calls)?),
            _ => {
                let message = format!("Invalid '{name}': expected user or assistant.");
                return Err(ApiError::value(name, message));
            }
        }
    }
    Ok(())
}

/// A block whose type is known, with what is left of it.
fn block(path: &str, index: usize, block: Value) -> Result<(String, Params), ApiError> {
    let mut block = Params::within(&format!("{path}[{index}]"), block)?;
    let kind = block.needed_text("type")?;
    Ok((kind, block))
}

fn other(block: &Params, kind: &str) -> ApiError {
    let shown: String = kind.chars().take(32).collect();
    ApiError::unsupported(block.name("type"), &format!(" with value '{shown}'"))
}

/// Text blocks, a line each.
fn texts(path: &str, blocks: Vec<Value>) -> Result<String, ApiError> {
    let mut texts = Vec::with_capacity(blocks.len());
    for (index, value) in blocks.into_iter().enumerate() {
        let (kind, mut block) = block(path, index, value)?;
        if kind != "text" {
            return Err(other(&block, &kind));
        }
        texts.push(block.needed_text("text")?);
        block.finish(unsupported::TEXT_PART)?;
    }
    Ok(texts.join("\n"))
}

fn user(
    path: &str,
    blocks: Vec<Value>,
    calls: &Calls,
    into: &mut Vec<Value>,
) -> Result<(), ApiError> {
    let mut texts: Vec<String> = Vec::new();
    let mut results = Vec::new();
    for (index, value) in blocks.into_iter().enumerate() {
        let (kind, mut block) = block(path, index, value)?;
        match kind.as_str() {
            "text" => texts.push(block.needed_text("text")?),
            "tool_result" => results.push(result(&mut block, calls)?),
            _ => return Err(other(&block, &kind)),
        }
        block.finish(unsupported::TEXT_PART)?;
    }
    if texts.is_empty() && results.is_empty() {
        let message = format!("Invalid '{path}': expected at least one block.");
        return Err(ApiError::value(path, message));
    }
    // Results belong right behind the calls, whatever the user says besides.
    into.extend(results);
    if !texts.is_empty() {
        into.push(json!({"role": "user", "content": texts.join("\n")}));
    }
    Ok(())
}

fn result(block: &mut Params, calls: &Calls) -> Result<Value, ApiError> {
    let name = block.name("tool_use_id");
    let id = block.needed_text("tool_use_id")?;
    calls.check(&name, &id)?;
    let field = block.name("content");
    let text = match block.take("content") {
        None => String::new(),
        Some(Value::String(text)) => text,
        Some(Value::Array(blocks)) => texts(&field, blocks)?,
        Some(other) => return Err(ApiError::kind_of(field, "a string or an array", &other)),
    };
    // Templates know no failed calls: the words have to say it.
    let failed = block.boolean("is_error")?.unwrap_or(false);
    let text = if failed {
        format!("Error: {text}")
    } else {
        text
    };
    Ok(json!({"role": "tool", "tool_call_id": id, "content": text}))
}

fn assistant(path: &str, blocks: Vec<Value>, calls: &mut Calls) -> Result<Value, ApiError> {
    let mut texts: Vec<String> = Vec::new();
    let mut made = Vec::new();
    let mut thoughts: Vec<String> = Vec::new();
    for (index, value) in blocks.into_iter().enumerate() {
        let (kind, mut block) = block(path, index, value)?;
        match kind.as_str() {
            "text" => texts.push(block.needed_text("text")?),
            "tool_use" => made.push(call(&mut block, calls)?),
            "thinking" => {
                thoughts.push(block.needed_text("thinking")?);
                block.text("signature")?;
            }
            _ => return Err(other(&block, &kind)),
        }
        block.finish(unsupported::TEXT_PART)?;
    }
    if texts.is_empty() && made.is_empty() && thoughts.is_empty() {
        let message = format!("Invalid '{path}': expected at least one block.");
        return Err(ApiError::value(path, message));
    }
    let mut message = json!({"role": "assistant", "content": texts.join("\n")});
    if !made.is_empty() {
        message["tool_calls"] = Value::Array(made);
    }
    if !thoughts.is_empty() {
        message["reasoning_content"] = thoughts.join("\n").into();
    }
    Ok(message)
}

fn call(block: &mut Params, calls: &mut Calls) -> Result<Value, ApiError> {
    let id = block.needed_text("id")?;
    let name = block.needed_text("name")?;
    let field = block.name("input");
    let input = match block.take("input") {
        None => Value::Object(Map::new()),
        Some(input @ Value::Object(_)) => input,
        Some(other) => return Err(ApiError::kind_of(field, "an object", &other)),
    };
    calls.made(&id);
    Ok(json!({
        "id": id,
        "type": "function",
        "function": {"name": name, "arguments": input},
    }))
}

//! The messages of a chat, checked one by one, and in the form that templates know.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use crate::api::error::ApiError;
use crate::api::params::Params;
use crate::api::unsupported;

/// Characters of a role that an error shows.
const SHOWN: usize = 32;

/// Takes `messages`: at least one.
pub(crate) fn read(params: &mut Params) -> Result<Vec<Value>, ApiError> {
    let messages = params
        .array("messages")?
        .ok_or_else(|| ApiError::missing("messages"))?;
    if messages.is_empty() {
        let message = "Invalid 'messages': expected at least one message, but got none.";
        return Err(ApiError::value("messages", message));
    }
    let mut calls = Calls::default();
    messages
        .into_iter()
        .enumerate()
        .map(|(index, message)| {
            let fields = Params::within(&format!("messages[{index}]"), message)?;
            check(fields, &mut calls)
        })
        .collect()
}

/// Ids of the calls that messages so far have made.
#[derive(Debug, Default)]
pub(crate) struct Calls(HashSet<String>);

impl Calls {
    /// A call was made.
    pub(crate) fn made(&mut self, id: &str) {
        self.0.insert(id.to_owned());
    }

    /// A result belongs to a call before it.
    pub(crate) fn check(&self, field: &str, id: &str) -> Result<(), ApiError> {
        if self.0.contains(id) {
            return Ok(());
        }
        let shown: String = id.chars().take(64).collect();
        let message = format!("Invalid '{field}': no call before it has the id '{shown}'.");
        Err(ApiError::value(field, message))
    }
}

fn check(mut fields: Params, calls: &mut Calls) -> Result<Value, ApiError> {
    let name = fields.name("role");
    let role = fields.needed_text("role")?;
    match role.as_str() {
        // OpenAI's newer word; templates know the older one.
        "system" | "developer" => plain(fields, "system"),
        "user" => plain(fields, "user"),
        "assistant" => assistant(fields, calls),
        "tool" => tool(fields, calls),
        "function" => Err(ApiError::unsupported(name, " with value 'function'")),
        _ => {
            let shown: String = role.chars().take(SHOWN).collect();
            let want = "system, developer, user, assistant or tool";
            let message = format!("Invalid '{name}': expected {want}, but got '{shown}'.");
            Err(ApiError::value(name, message))
        }
    }
}

fn plain(mut fields: Params, role: &str) -> Result<Value, ApiError> {
    let content =
        content(&mut fields)?.ok_or_else(|| ApiError::missing(&fields.name("content")))?;
    finish(fields, json!({"role": role, "content": content}))
}

fn assistant(mut fields: Params, calls: &mut Calls) -> Result<Value, ApiError> {
    let content = content(&mut fields)?;
    let made = tool_calls(&mut fields, calls)?;
    let mut message = match (content, made.is_empty()) {
        (None, true) => return Err(ApiError::missing(&fields.name("content"))),
        (content, _) => json!({"role": "assistant", "content": content.unwrap_or_default()}),
    };
    if !made.is_empty() {
        message["tool_calls"] = Value::Array(made);
    }
    for field in ["reasoning_content", "reasoning"] {
        if let Some(thoughts) = fields.text(field)? {
            message["reasoning_content"] = thoughts.into();
        }
    }
    finish(fields, message)
}

fn tool(mut fields: Params, calls: &Calls) -> Result<Value, ApiError> {
    let content =
        content(&mut fields)?.ok_or_else(|| ApiError::missing(&fields.name("content")))?;
    let name = fields.name("tool_call_id");
    let id = fields.needed_text("tool_call_id")?;
    calls.check(&name, &id)?;
    finish(
        fields,
        json!({"role": "tool", "content": content, "tool_call_id": id}),
    )
}

fn finish(mut fields: Params, mut message: Value) -> Result<Value, ApiError> {
    if let Some(name) = fields.text("name")? {
        message["name"] = Value::String(name);
    }
    fields.finish(unsupported::MESSAGE)?;
    Ok(message)
}

/// A message's text: parts are joined by line ends, as in vLLM.
fn content(fields: &mut Params) -> Result<Option<String>, ApiError> {
    let name = fields.name("content");
    match fields.take("content") {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(Value::Array(parts)) if parts.is_empty() => {
            let message = format!("Invalid '{name}': expected at least one part.");
            Err(ApiError::value(name, message))
        }
        Some(Value::Array(parts)) => {
            let kinds = [("text", "text"), ("refusal", "refusal")];
            text_parts(&name, parts, &kinds).map(Some)
        }
        Some(other) => Err(ApiError::kind_of(name, "a string or an array", &other)),
    }
}

/// The texts of content parts, a line each; `kinds` says which types hold text, and in which member.
pub(crate) fn text_parts(
    name: &str,
    parts: Vec<Value>,
    kinds: &[(&str, &str)],
) -> Result<String, ApiError> {
    let mut texts = Vec::with_capacity(parts.len());
    for (index, part) in parts.into_iter().enumerate() {
        let mut part = Params::within(&format!("{name}[{index}]"), part)?;
        let field = part.name("type");
        let kind = part.needed_text("type")?;
        let Some((_, member)) = kinds.iter().find(|(known, _)| *known == kind) else {
            let shown: String = kind.chars().take(SHOWN).collect();
            return Err(ApiError::unsupported(
                field,
                &format!(" with value '{shown}'"),
            ));
        };
        texts.push(part.needed_text(member)?);
        part.finish(unsupported::TEXT_PART)?;
    }
    Ok(texts.join("\n"))
}

fn tool_calls(fields: &mut Params, calls: &mut Calls) -> Result<Vec<Value>, ApiError> {
    let name = fields.name("tool_calls");
    let entries = fields.array("tool_calls")?.unwrap_or_default();
    let mut made = Vec::with_capacity(entries.len());
    for (index, entry) in entries.into_iter().enumerate() {
        let mut call = Params::within(&format!("{name}[{index}]"), entry)?;
        let kind = call.text("type")?;
        if kind.is_some_and(|kind| kind != "function") {
            return Err(ApiError::unsupported(
                call.name("type"),
                " other than 'function'",
            ));
        }
        let id = call.needed_text("id")?;
        let function = call.name("function");
        let function = call
            .object("function")?
            .ok_or_else(|| ApiError::missing(&function))?;
        call.finish(&[])?;
        made.push(function_call(&id, function)?);
        calls.made(&id);
    }
    Ok(made)
}

fn function_call(id: &str, mut function: Params) -> Result<Value, ApiError> {
    let name = function.needed_text("name")?;
    let field = function.name("arguments");
    let arguments = function.needed_text("arguments")?;
    function.finish(&[])?;
    call_value(id, &name, &field, &arguments)
}

/// A call as templates know it: its arguments are an object.
pub(crate) fn call_value(
    id: &str,
    name: &str,
    field: &str,
    arguments: &str,
) -> Result<Value, ApiError> {
    let arguments = match arguments.trim() {
        "" => Value::Object(Map::new()),
        text => serde_json::from_str(text).map_err(|error| {
            let message = format!("Invalid '{field}': expected JSON in a string: {error}.");
            ApiError::value(field, message)
        })?,
    };
    if !arguments.is_object() {
        let message = format!("Invalid '{field}': expected a JSON object in a string.");
        return Err(ApiError::value(field, message));
    }
    Ok(json!({
        "id": id,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }))
}

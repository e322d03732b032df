//! `input`: a text, or the items of a conversation.

use serde_json::{Value, json};

use crate::api::error::ApiError;
use crate::api::openai::messages::{Calls, call_value, text_parts};
use crate::api::params::Params;
use crate::api::unsupported::{self, Field};

/// Texts of a message's content, with the member that holds them.
const TEXTS: [(&str, &str); 3] = [
    ("input_text", "text"),
    ("output_text", "text"),
    ("refusal", "refusal"),
];
/// Marks of items that answers gave out; they say nothing to the model.
const MARKS: &[Field] = &[
    ("id", serde_json::Value::is_string),
    ("status", serde_json::Value::is_string),
    ("phase", serde_json::Value::is_string),
];

/// Takes `input`; `messages` gets it in the form that templates know.
pub(crate) fn read(params: &mut Params, messages: &mut Vec<Value>) -> Result<(), ApiError> {
    const FIELD: &str = "input";
    let items = match params.take(FIELD) {
        None => return Err(ApiError::missing(FIELD)),
        Some(Value::String(text)) => {
            messages.push(json!({"role": "user", "content": text}));
            return Ok(());
        }
        Some(Value::Array(items)) => items,
        Some(other) => return Err(ApiError::kind_of(FIELD, "a string or an array", &other)),
    };
    if items.is_empty() {
        let message = "Invalid 'input': expected at least one item, but got none.";
        return Err(ApiError::value(FIELD, message));
    }
    let mut reader = Reader {
        messages,
        calls: Calls::default(),
        thoughts: None,
    };
    for (index, item) in items.into_iter().enumerate() {
        reader.item(Params::within(&format!("{FIELD}[{index}]"), item)?)?;
    }
    Ok(())
}

struct Reader<'a> {
    messages: &'a mut Vec<Value>,
    calls: Calls,
    /// What the assistant thought before what it says or does next.
    thoughts: Option<String>,
}

impl Reader<'_> {
    fn item(&mut self, mut item: Params) -> Result<(), ApiError> {
        let name = item.name("type");
        let kind = item.text("type")?;
        match kind.as_deref() {
            // A message may leave its type out.
            None | Some("message") => self.message(item),
            Some("function_call") => self.call(item),
            Some("function_call_output") => self.output(item),
            Some("reasoning") => self.reasoning(item),
            Some(other) => {
                let shown: String = other.chars().take(32).collect();
                Err(ApiError::unsupported(
                    name,
                    &format!(" with value '{shown}'"),
                ))
            }
        }
    }

    fn message(&mut self, mut item: Params) -> Result<(), ApiError> {
        let name = item.name("role");
        let role = match item.needed_text("role")?.as_str() {
            "system" | "developer" => "system",
            "user" => "user",
            "assistant" => "assistant",
            _ => {
                let want = "user, assistant, system or developer";
                let message = format!("Invalid '{name}': expected {want}.");
                return Err(ApiError::value(name, message));
            }
        };
        let content = text(&mut item, "content", &TEXTS)?;
        item.finish(MARKS)?;
        let mut message = json!({"role": role, "content": content});
        if role == "assistant" {
            self.remember(&mut message);
        }
        self.messages.push(message);
        Ok(())
    }

    /// Calls of one turn stand in one message.
    fn call(&mut self, mut item: Params) -> Result<(), ApiError> {
        let id = item.needed_text("call_id")?;
        let name = item.needed_text("name")?;
        let field = item.name("arguments");
        let arguments = item.needed_text("arguments")?;
        item.finish(MARKS)?;
        let call = call_value(&id, &name, &field, &arguments)?;
        self.calls.made(&id);
        if let Some(last) = self
            .messages
            .last_mut()
            .filter(|last| last["role"] == "assistant")
        {
            match last["tool_calls"].as_array_mut() {
                Some(calls) => calls.push(call),
                None => last["tool_calls"] = json!([call]),
            }
            return Ok(());
        }
        let mut message = json!({"role": "assistant", "content": "", "tool_calls": [call]});
        self.remember(&mut message);
        self.messages.push(message);
        Ok(())
    }

    fn output(&mut self, mut item: Params) -> Result<(), ApiError> {
        let field = item.name("call_id");
        let id = item.needed_text("call_id")?;
        self.calls.check(&field, &id)?;
        let output = text(&mut item, "output", &TEXTS)?;
        item.finish(MARKS)?;
        self.messages
            .push(json!({"role": "tool", "tool_call_id": id, "content": output}));
        Ok(())
    }

    /// What an answer gave out, unencrypted.
    fn reasoning(&mut self, mut item: Params) -> Result<(), ApiError> {
        let mut thoughts = String::new();
        for (field, kind) in [("summary", "summary_text"), ("content", "reasoning_text")] {
            let name = item.name(field);
            let parts = item.array(field)?.unwrap_or_default();
            thoughts.push_str(&text_parts(&name, parts, &[(kind, "text")])?);
        }
        item.finish(&[
            MARKS[0],
            MARKS[1],
            ("encrypted_content", unsupported::never),
        ])?;
        self.thoughts = Some(thoughts).filter(|thoughts| !thoughts.is_empty());
        Ok(())
    }

    fn remember(&mut self, message: &mut Value) {
        if let Some(thoughts) = self.thoughts.take() {
            message["reasoning_content"] = thoughts.into();
        }
    }
}

fn text(item: &mut Params, field: &str, kinds: &[(&str, &str)]) -> Result<String, ApiError> {
    let name = item.name(field);
    match item.take(field) {
        None => Err(ApiError::missing(&name)),
        Some(Value::String(text)) => Ok(text),
        Some(Value::Array(parts)) => text_parts(&name, parts, kinds),
        Some(other) => Err(ApiError::kind_of(name, "a string or an array", &other)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;

    fn messages(input: &Value) -> Result<Vec<Value>, ApiError> {
        let mut fields = Map::new();
        fields.insert("input".to_owned(), input.clone());
        let mut messages = Vec::new();
        let mut params = Params::within("x", Value::Object(fields)).unwrap();
        read(&mut params, &mut messages)?;
        Ok(messages)
    }

    #[test]
    fn a_turn_with_thoughts_and_calls_is_one_message() {
        let call = |id: &str| {
            json!({"type": "function_call", "id": "fc", "call_id": id, "name": "f",
                   "arguments": "{\"a\":1}", "status": "completed"})
        };
        let thoughts = json!([{"type": "reasoning_text", "text": "hm"}]);
        let input = json!([
            {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
            {"type": "reasoning", "id": "rs", "summary": [], "content": thoughts},
            call("1"),
            call("2"),
            {"type": "function_call_output", "call_id": "2", "output": "done"},
        ]);
        let messages = messages(&input).unwrap();
        assert_eq!(messages.len(), 3);
        assert_eq!(messages[1]["reasoning_content"], "hm");
        assert_eq!(messages[1]["tool_calls"][1]["id"], "2");
        assert_eq!(
            messages[1]["tool_calls"][0]["function"]["arguments"],
            json!({"a": 1})
        );
        assert_eq!(messages[2]["role"], "tool");
    }

    #[test]
    fn an_output_of_no_call_is_refused() {
        let input = json!([{"type": "function_call_output", "call_id": "9", "output": "x"}]);
        let error = messages(&input).unwrap_err();
        assert_eq!(error.param.as_deref(), Some("input[0].call_id"));
    }
}

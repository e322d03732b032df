//! A message that is answered whole.

use serde_json::{Map, Value, json};

use crate::api::answer::{Answer, Ending, Identity, Part, Usage};

/// The message.
pub(crate) fn whole(identity: &Identity, answers: &[Answer], usage: Usage) -> Value {
    let mut message = begun(identity, usage);
    if let Some(answer) = answers.first() {
        let calls = answer.calls().next().is_some();
        let mut made = 0;
        let block = |part| {
            let block = block(identity, part, made);
            made += usize::from(matches!(part, Part::Call { .. }));
            block
        };
        message["content"] = answer.parts.iter().map(block).collect();
        for (name, value) in end(&answer.ending, calls) {
            message[name] = value;
        }
    }
    message
}

/// A message without content.
pub(crate) fn begun(identity: &Identity, usage: Usage) -> Value {
    json!({
        "id": format!("msg_{}", identity.request),
        "type": "message",
        "role": "assistant",
        "model": identity.model,
        "content": [],
        "stop_reason": null,
        "stop_sequence": null,
        "usage": tokens(usage),
    })
}

/// What was read and written: cached tokens of the prompt stand apart from the others.
pub(crate) fn tokens(usage: Usage) -> Value {
    json!({
        "input_tokens": usage.prompt - usage.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.completion,
    })
}

/// Why the message ended.
pub(crate) fn end(ending: &Ending, calls: bool) -> Map<String, Value> {
    let reason = match (ending.length, &ending.stop_text) {
        (true, _) => "max_tokens",
        (false, Some(_)) => "stop_sequence",
        (false, None) if calls => "tool_use",
        (false, None) => "end_turn",
    };
    let mut end = Map::new();
    end.insert("stop_reason".to_owned(), reason.into());
    end.insert("stop_sequence".to_owned(), json!(ending.stop_text));
    end
}

fn block(identity: &Identity, part: &Part, call: usize) -> Value {
    match part {
        Part::Text(text) => json!({"type": "text", "text": text}),
        Part::Reasoning(text) => json!({"type": "thinking", "thinking": text, "signature": ""}),
        Part::Call {
            id,
            name,
            arguments,
        } => json!({
            "type": "tool_use",
            "id": identity.call_id(0, call, id.as_deref()),
            "name": name,
            // A parser gives whole calls only; one that was cut off has what there is.
            "input": serde_json::from_str(arguments).unwrap_or_else(|_| json!({})),
        }),
    }
}

//! Chats and completions that are answered whole.

use serde_json::{Value, json};

use super::chunks::ChunkForm;
use crate::api::answer::{Answer, Identity, Usage};
use crate::api::logprobs::{self, Offset};

/// A chat completion.
pub(crate) fn chat(
    identity: &Identity,
    form: ChunkForm,
    answers: &[Answer],
    usage: Usage,
) -> Value {
    let choice = |(index, answer): (usize, &Answer)| {
        json!({
            "index": index,
            "message": message(identity, index, answer),
            "logprobs": if form.logprobs { logprobs::chat(&answer.tokens) } else { Value::Null },
            "finish_reason": answer.ending.reason(answer.calls().next().is_some()),
        })
    };
    let choices = answers.iter().enumerate().map(choice).collect();
    object("chatcmpl", "chat.completion", identity, choices, usage)
}

fn message(identity: &Identity, index: usize, answer: &Answer) -> Value {
    let text = answer.text();
    let call = |(n, (id, name, arguments)): (usize, (Option<&str>, &str, &str))| {
        json!({
            "id": identity.call_id(index, n, id),
            "type": "function",
            "function": {"name": name, "arguments": arguments},
        })
    };
    let calls: Vec<Value> = answer.calls().enumerate().map(call).collect();
    let mut message = json!({"role": "assistant", "content": text, "refusal": null});
    if !calls.is_empty() {
        if text.is_empty() {
            message["content"] = Value::Null;
        }
        message["tool_calls"] = Value::Array(calls);
    }
    let reasoning = answer.reasoning();
    if !reasoning.is_empty() {
        message["reasoning_content"] = reasoning.into();
    }
    message
}

/// A completion, behind the prompts' texts where they are to be repeated.
pub(crate) fn completions(
    identity: &Identity,
    form: ChunkForm,
    echoes: &[String],
    answers: &[Answer],
    usage: Usage,
) -> Value {
    let choice = |(index, answer): (usize, &Answer)| {
        let echo = echoes
            .get(index / identity.answers.max(1))
            .map_or("", String::as_str);
        let logprobs = if form.logprobs {
            logprobs::completions(&answer.tokens, &mut Offset::default())
        } else {
            Value::Null
        };
        json!({
            "index": index,
            "text": format!("{echo}{}", answer.text()),
            "logprobs": logprobs,
            "finish_reason": answer.ending.reason(false),
        })
    };
    let choices = answers.iter().enumerate().map(choice).collect();
    object("cmpl", "text_completion", identity, choices, usage)
}

fn object(
    prefix: &str,
    object: &str,
    identity: &Identity,
    choices: Vec<Value>,
    usage: Usage,
) -> Value {
    json!({
        "id": format!("{prefix}-{}", identity.request),
        "object": object,
        "created": identity.created,
        "model": identity.model,
        "system_fingerprint": identity.fingerprint,
        "choices": choices,
        "usage": usage.json(),
    })
}

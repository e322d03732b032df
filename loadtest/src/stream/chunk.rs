//! What one event of a streamed answer says, in chat completions and completions.
//!
//! Reads only what is measured and passes over the rest, so that servers may add what they like.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer};

/// Token counts, as the server has them.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
pub(crate) struct Usage {
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) prompt_tokens: u64,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) completion_tokens: u64,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) prompt_tokens_details: PromptDetails,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
pub(crate) struct PromptDetails {
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) cached_tokens: u64,
}

/// An event's data.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// The end.
    Done,
    /// The server's error, in the stream.
    Error(String),
    /// A part of the answer.
    Part(Part),
}

/// A part of the answer.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Part {
    /// Text of an answer, of reasoning or of a tool call stands in it.
    pub(crate) has_text: bool,
    /// The answer's own text.
    pub(crate) text: String,
    pub(crate) usage: Option<Usage>,
    pub(crate) finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Raw<'a> {
    #[serde(borrow, default, deserialize_with = "or_default")]
    choices: Vec<Choice<'a>>,
    #[serde(default)]
    usage: Option<Usage>,
    #[serde(default)]
    error: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(borrow, default, deserialize_with = "or_default")]
    delta: Delta<'a>,
    #[serde(borrow, default)]
    text: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    finish_reason: Option<Cow<'a, str>>,
}

#[derive(Default, Deserialize)]
struct Delta<'a> {
    #[serde(borrow, default)]
    content: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    reasoning_content: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    reasoning: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    refusal: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "or_default")]
    tool_calls: Vec<ToolCall<'a>>,
}

#[derive(Deserialize)]
struct ToolCall<'a> {
    #[serde(borrow, default, deserialize_with = "or_default")]
    function: Function<'a>,
}

#[derive(Default, Deserialize)]
struct Function<'a> {
    #[serde(borrow, default)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    arguments: Option<Cow<'a, str>>,
}

/// `null` is as good as nothing.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Reads an event's data; the error says why it is none of an answer's.
pub(crate) fn read(data: &[u8], keep_text: bool) -> Result<Told, String> {
    if data.trim_ascii() == b"[DONE]" {
        return Ok(Told::Done);
    }
    let raw: Raw<'_> = serde_json::from_slice(data).map_err(|error| error.to_string())?;
    if let Some(error) = raw.error {
        return Ok(Told::Error(message(&error)));
    }
    let mut part = Part {
        usage: raw.usage,
        ..Part::default()
    };
    for choice in raw.choices {
        part.has_text |= choice.has_text();
        if keep_text {
            let text = choice.delta.content.as_deref().or(choice.text.as_deref());
            part.text.push_str(text.unwrap_or(""));
        }
        if let Some(reason) = choice.finish_reason {
            part.finish_reason = Some(reason.into_owned());
        }
    }
    Ok(Told::Part(part))
}

impl Choice<'_> {
    fn has_text(&self) -> bool {
        let some = |text: &Option<Cow<'_, str>>| text.as_deref().is_some_and(|t| !t.is_empty());
        let Delta {
            content,
            reasoning_content,
            reasoning,
            refusal,
            tool_calls,
        } = &self.delta;
        [content, reasoning_content, reasoning, refusal, &self.text]
            .into_iter()
            .any(some)
            || tool_calls
                .iter()
                .any(|call| some(&call.function.name) || some(&call.function.arguments))
    }
}

/// An error's message, in the forms that servers have.
pub(crate) fn message(error: &serde_json::Value) -> String {
    let message = error.get("message").and_then(|message| message.as_str());
    match message.or(error.as_str()) {
        Some(message) => message.to_owned(),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(data: &str) -> Part {
        match read(data.as_bytes(), true) {
            Ok(Told::Part(part)) => part,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn content_reasoning_and_tool_calls_are_text_and_a_role_is_none() {
        for (delta, has_text) in [
            (r#"{"role":"assistant","content":""}"#, false),
            (r#"{"role":"assistant","content":null}"#, false),
            (r#"{"content":"a"}"#, true),
            (r#"{"reasoning_content":"a"}"#, true),
            (r#"{"reasoning":"a"}"#, true),
            (
                r#"{"tool_calls":[{"index":0,"function":{"name":"f","arguments":""}}]}"#,
                true,
            ),
            (
                r#"{"tool_calls":[{"index":0,"function":{"arguments":""}}]}"#,
                false,
            ),
            (
                r#"{"tool_calls":[{"index":0,"function":{"arguments":"{"}}]}"#,
                true,
            ),
            (r#"{"refusal":"no"}"#, true),
            (r#"{"tool_calls":null}"#, false),
            ("null", false),
        ] {
            let data = format!(
                r#"{{"choices":[{{"index":0,"delta":{delta},"finish_reason":null}}],"usage":null}}"#
            );
            assert_eq!(part(&data).has_text, has_text, "{delta}");
        }
    }

    #[test]
    fn text_in_any_of_several_choices_is_text() {
        let choice = |text: &str| format!(r#"{{"text":"{text}"}}"#);
        for (first, second, has_text) in [("a", "", true), ("", "b", true), ("", "", false)] {
            let data = format!(r#"{{"choices":[{},{}]}}"#, choice(first), choice(second));
            assert_eq!(part(&data).has_text, has_text, "{data}");
        }
    }

    #[test]
    fn usage_and_the_end_are_read_wherever_they_stand() {
        let last = part(
            r#"{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":4}}}"#,
        );
        let usage = last.usage.unwrap();
        assert_eq!((usage.prompt_tokens, usage.completion_tokens), (7, 3));
        assert_eq!(usage.prompt_tokens_details.cached_tokens, 4);
        let text = part(
            r#"{"choices":[{"text":" a","finish_reason":"length","unknown":[1]}],"usage":{"prompt_tokens":1,"completion_tokens":2,"prompt_tokens_details":null}}"#,
        );
        assert_eq!(text.finish_reason.as_deref(), Some("length"));
        assert_eq!((text.has_text, text.text.as_str()), (true, " a"));
        assert_eq!(read(b"[DONE]", false), Ok(Told::Done));
    }

    #[test]
    fn an_error_is_told_in_every_form() {
        for (data, says) in [
            (r#"{"error":{"message":"no","type":"x"}}"#, "no"),
            (r#"{"error":"no"}"#, "no"),
            (r#"{"error":{"code":5}}"#, r#"{"code":5}"#),
        ] {
            assert_eq!(
                read(data.as_bytes(), false),
                Ok(Told::Error(says.to_owned()))
            );
        }
        for garbage in ["<html>", "{\"choices\":", "{\"choices\":[7]}", "\u{fffd}"] {
            assert!(read(garbage.as_bytes(), false).is_err(), "{garbage}");
        }
    }
}

//! Requests in OpenAI's words, and conversations that grow.

use bytes::Bytes;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::workload::Prompt;

/// Which endpoint is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// `/v1/chat/completions`
    Chat,
    /// `/v1/completions`
    Completions,
}

impl Api {
    pub(crate) const fn path(self) -> &'static str {
        match self {
            Self::Chat => "/chat/completions",
            Self::Completions => "/completions",
        }
    }
}

/// What token counts a server can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageAsked {
    /// With every event (`stream_options.continuous_usage_stats`).
    Every,
    /// At the end (`stream_options.include_usage`).
    Last,
    /// None: the server refuses `stream_options`.
    Never,
}

/// What all requests of a test have in common.
#[derive(Clone, Debug)]
pub struct Asking {
    /// Which endpoint.
    pub api: Api,
    /// Which model.
    pub model: String,
    /// What token counts.
    pub usage: UsageAsked,
    /// `ignore_eos`: answers are as long as was asked for (vLLM, SGLang and Tandem know it; OpenAI does not).
    pub ignore_eos: bool,
    /// Further fields, which overrule those above.
    pub extra: Map<String, Value>,
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    messages: Option<&'a [Value]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt: Option<Said<'a>>,
    max_tokens: u32,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<StreamOptions>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    ignore_eos: bool,
    #[serde(flatten)]
    extra: &'a Map<String, Value>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Said<'a> {
    Text(&'a str),
    Ids(&'a [u32]),
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    continuous_usage_stats: bool,
}

/// What was said so far.
#[derive(Debug)]
pub(crate) enum Conversation {
    Chat(Vec<Value>),
    Text(String),
    Ids(Vec<u32>),
}

impl Conversation {
    /// Begins one.
    pub(crate) fn of(api: Api, prompt: Prompt) -> Self {
        let mut conversation = match (api, &prompt) {
            (Api::Completions, Prompt::Ids(_)) => Self::Ids(Vec::new()),
            (Api::Completions, _) => Self::Text(String::new()),
            (Api::Chat, _) => Self::Chat(Vec::new()),
        };
        conversation.ask(prompt);
        conversation
    }

    /// Goes on with the user's next words.
    pub(crate) fn ask(&mut self, prompt: Prompt) {
        match (self, prompt) {
            (Self::Chat(messages), Prompt::Text(text)) => {
                messages.push(json!({"role": "user", "content": text}));
            }
            (Self::Chat(messages), Prompt::Messages(more)) => messages.extend(more),
            (Self::Text(said), Prompt::Text(text)) => {
                if !said.is_empty() {
                    said.push(' ');
                }
                said.push_str(&text);
            }
            (Self::Ids(said), Prompt::Ids(ids)) => said.extend(ids),
            // Settings that could come to this are refused before a test starts.
            (_, _) => {}
        }
    }

    /// Goes on with the answer.
    pub(crate) fn answer(&mut self, text: String) {
        match self {
            Self::Chat(messages) => messages.push(json!({"role": "assistant", "content": text})),
            Self::Text(said) => said.push_str(&text),
            Self::Ids(_) => {}
        }
    }

    /// The next request.
    pub(crate) fn body(&self, asking: &Asking, output_tokens: u32) -> Bytes {
        let (messages, prompt) = match self {
            Self::Chat(messages) => (Some(messages.as_slice()), None),
            Self::Text(said) => (None, Some(Said::Text(said))),
            Self::Ids(said) => (None, Some(Said::Ids(said))),
        };
        // What the user sets stands once.
        let unless_set = |name: &str| !asking.extra.contains_key(name);
        let options = (asking.usage != UsageAsked::Never).then_some(StreamOptions {
            include_usage: true,
            continuous_usage_stats: asking.usage == UsageAsked::Every,
        });
        let body = Body {
            model: &asking.model,
            messages,
            prompt,
            max_tokens: output_tokens,
            stream: true,
            stream_options: options.filter(|_| unless_set("stream_options")),
            ignore_eos: asking.ignore_eos && unless_set("ignore_eos"),
            extra: &asking.extra,
        };
        serde_json::to_vec(&body)
            .expect("strings and numbers are JSON")
            .into()
    }
}

/// Fields of a request that a test sets itself.
pub const OWN_FIELDS: [&str; 5] = ["model", "messages", "prompt", "max_tokens", "stream"];

#[cfg(test)]
mod tests {
    use super::*;

    fn asking(api: Api, usage: UsageAsked) -> Asking {
        Asking {
            api,
            model: "m".to_owned(),
            usage,
            ignore_eos: true,
            extra: json!({"temperature": 0}).as_object().unwrap().clone(),
        }
    }

    fn read(bytes: &Bytes) -> Value {
        serde_json::from_slice(bytes).unwrap()
    }

    #[test]
    fn a_chat_grows_by_answer_and_question() {
        let mut chat = Conversation::of(Api::Chat, Prompt::Text("a".to_owned()));
        chat.answer("b".to_owned());
        chat.ask(Prompt::Text("c".to_owned()));
        let body = read(&chat.body(&asking(Api::Chat, UsageAsked::Every), 7));
        let wanted = json!({
            "model": "m", "max_tokens": 7, "stream": true, "ignore_eos": true, "temperature": 0,
            "stream_options": {"include_usage": true, "continuous_usage_stats": true},
            "messages": [
                {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
                {"role": "user", "content": "c"},
            ],
        });
        assert_eq!(body, wanted);
    }

    #[test]
    fn a_completion_is_text_or_ids() {
        let mut text = Conversation::of(Api::Completions, Prompt::Text("a".to_owned()));
        text.answer(" b".to_owned());
        text.ask(Prompt::Text("c".to_owned()));
        let body = read(&text.body(&asking(Api::Completions, UsageAsked::Never), 7));
        assert_eq!(body["prompt"], "a b c");
        assert!(body.get("stream_options").is_none());
        let ids = Conversation::of(Api::Completions, Prompt::Ids(vec![300, 400]));
        let body = read(&ids.body(&asking(Api::Completions, UsageAsked::Last), 7));
        assert_eq!(body["prompt"], json!([300, 400]));
        assert_eq!(body["stream_options"], json!({"include_usage": true}));
    }
}

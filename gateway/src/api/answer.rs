//! Answers in OpenAI's shapes.

use serde_json::{Value, json};
use tandem_wire::proto;

use super::ask::Endpoint;
use super::logprobs::{self, Offset};

/// What is the same in all of one answer's objects.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) endpoint: Endpoint,
    /// `chatcmpl-…` or `cmpl-…`.
    pub(crate) id: String,
    pub(crate) model: String,
    /// Seconds since 1970.
    pub(crate) created: u64,
    pub(crate) fingerprint: String,
    pub(crate) logprobs: bool,
    pub(crate) include_usage: bool,
}

/// Tokens that were read and written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) prompt: u64,
    pub(crate) completion: u64,
    /// Of the prompt's tokens, those that nobody had to compute.
    pub(crate) cached: u64,
}

impl Usage {
    fn json(self) -> Value {
        json!({
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.prompt + self.completion,
            "prompt_tokens_details": {"cached_tokens": self.cached},
        })
    }
}

/// How an answer ended well, in OpenAI's word.
pub(crate) const fn finish_reason(reason: proto::FinishReason) -> Option<&'static str> {
    match reason {
        proto::FinishReason::Stop => Some("stop"),
        proto::FinishReason::Length => Some("length"),
        proto::FinishReason::Cancelled | proto::FinishReason::Unspecified => None,
    }
}

impl Shape {
    /// A whole answer.
    pub(crate) fn whole(
        &self,
        text: &str,
        tokens: &[proto::Token],
        finish_reason: &str,
        usage: Usage,
    ) -> Value {
        let logprobs = self.logprobs_of(tokens, &mut Offset::default());
        let (object, choice) = match self.endpoint {
            Endpoint::Chat => (
                "chat.completion",
                json!({
                    "index": 0,
                    "message": {"role": "assistant", "content": text, "refusal": null},
                    "logprobs": logprobs,
                    "finish_reason": finish_reason,
                }),
            ),
            Endpoint::Completions => (
                "text_completion",
                json!({
                    "index": 0,
                    "text": text,
                    "logprobs": logprobs,
                    "finish_reason": finish_reason,
                }),
            ),
        };
        let mut answer = self.object(object, json!([choice]));
        answer["usage"] = usage.json();
        answer
    }

    /// The first event of a stream; completions have none.
    pub(crate) fn opening(&self) -> Option<Value> {
        let delta = json!({"role": "assistant", "content": ""});
        (self.endpoint == Endpoint::Chat).then(|| self.chat_chunk(delta, Value::Null, None))
    }

    /// The event of one token; `None` where there is nothing to tell.
    pub(crate) fn piece(&self, token: &proto::Token, offset: &mut Offset) -> Option<Value> {
        let logprobs = self.logprobs_of(std::slice::from_ref(token), offset);
        if token.text.is_empty() && logprobs.is_null() {
            return None;
        }
        Some(match self.endpoint {
            Endpoint::Chat => self.chat_chunk(json!({"content": token.text}), logprobs, None),
            Endpoint::Completions => self.text_chunk(&token.text, logprobs, None),
        })
    }

    /// The events at the end: text that was held back, and the reason.
    pub(crate) fn closing(&self, text: &str, finish_reason: &str) -> Vec<Value> {
        let reason = Some(finish_reason);
        match self.endpoint {
            Endpoint::Chat => {
                let rest = (!text.is_empty())
                    .then(|| self.chat_chunk(json!({"content": text}), Value::Null, None));
                let end = self.chat_chunk(json!({}), Value::Null, reason);
                rest.into_iter().chain([end]).collect()
            }
            Endpoint::Completions => vec![self.text_chunk(text, Value::Null, reason)],
        }
    }

    /// The event that tells the usage, where the client asked for it.
    pub(crate) fn usage(&self, usage: Usage) -> Option<Value> {
        let mut chunk = self.include_usage.then(|| self.chunk(json!([])))?;
        chunk["usage"] = usage.json();
        Some(chunk)
    }

    fn logprobs_of(&self, tokens: &[proto::Token], offset: &mut Offset) -> Value {
        match self.endpoint {
            _ if !self.logprobs => Value::Null,
            Endpoint::Chat => logprobs::chat(tokens),
            Endpoint::Completions => logprobs::completions(tokens, offset),
        }
    }

    fn chat_chunk(&self, delta: Value, logprobs: Value, finish_reason: Option<&str>) -> Value {
        let choice = json!({
            "index": 0,
            "delta": delta,
            "logprobs": logprobs,
            "finish_reason": finish_reason,
        });
        self.chunk(json!([choice]))
    }

    fn text_chunk(&self, text: &str, logprobs: Value, finish_reason: Option<&str>) -> Value {
        let choice = json!({
            "index": 0,
            "text": text,
            "logprobs": logprobs,
            "finish_reason": finish_reason,
        });
        self.chunk(json!([choice]))
    }

    fn chunk(&self, choices: Value) -> Value {
        let object = match self.endpoint {
            Endpoint::Chat => "chat.completion.chunk",
            Endpoint::Completions => "text_completion",
        };
        let mut chunk = self.object(object, choices);
        if self.include_usage {
            chunk["usage"] = Value::Null;
        }
        chunk
    }

    fn object(&self, object: &str, choices: Value) -> Value {
        json!({
            "id": self.id,
            "object": object,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
            "choices": choices,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(endpoint: Endpoint) -> Shape {
        Shape {
            endpoint,
            id: "chatcmpl-1".into(),
            model: "m".into(),
            created: 7,
            fingerprint: "tandem-f".into(),
            logprobs: false,
            include_usage: true,
        }
    }

    #[test]
    fn usage_comes_last_with_no_choices_and_is_null_before() {
        let shape = shape(Endpoint::Chat);
        assert_eq!(shape.opening().unwrap()["usage"], Value::Null);
        let last = shape
            .usage(Usage {
                prompt: 3,
                completion: 2,
                cached: 1,
            })
            .unwrap();
        assert_eq!(last["choices"], json!([]));
        assert_eq!(last["usage"]["total_tokens"], 5);
        let details = &last["usage"]["prompt_tokens_details"];
        assert_eq!(details["cached_tokens"], 1);
        let silent = Shape {
            include_usage: false,
            ..shape
        };
        assert!(silent.usage(Usage::default()).is_none());
        assert!(silent.opening().unwrap().get("usage").is_none());
    }

    #[test]
    fn a_token_without_text_is_no_event_unless_its_probability_is_wanted() {
        let token = proto::Token {
            token: 1,
            text: String::new(),
            logprobs: vec![],
        };
        let mut offset = Offset::default();
        assert!(shape(Endpoint::Chat).piece(&token, &mut offset).is_none());
        let wanted = Shape {
            logprobs: true,
            ..shape(Endpoint::Chat)
        };
        let token = proto::Token {
            logprobs: vec![proto::Logprob {
                token: 1,
                bytes: "é".into(),
                logprob: -0.5,
            }],
            ..token
        };
        let event = wanted.piece(&token, &mut offset).unwrap();
        assert_eq!(event["choices"][0]["delta"]["content"], "");
        assert_eq!(event["choices"][0]["logprobs"]["content"][0]["token"], "é");
    }

    #[test]
    fn text_held_back_comes_before_the_end() {
        let chunks = shape(Endpoint::Chat).closing("rest", "stop");
        assert_eq!(chunks.len(), 2);
        assert_eq!(chunks[0]["choices"][0]["delta"]["content"], "rest");
        assert_eq!(chunks[0]["choices"][0]["finish_reason"], Value::Null);
        assert_eq!(chunks[1]["choices"][0]["delta"], json!({}));
        assert_eq!(chunks[1]["choices"][0]["finish_reason"], "stop");
        let chunks = shape(Endpoint::Completions).closing("rest", "length");
        assert_eq!(chunks.len(), 1);
        assert_eq!(chunks[0]["choices"][0]["text"], "rest");
    }
}

//! One answer's parts, and what all answers of a request have in common.

use serde_json::{Value, json};
use tandem_dialect::Delta;
use tandem_wire::proto;

/// Whether a piece says nothing to a client.
pub(crate) fn is_silent(delta: &Delta) -> bool {
    match delta {
        Delta::Content(text) | Delta::Reasoning(text) | Delta::Arguments { json: text, .. } => {
            text.is_empty()
        }
        Delta::CallStart { .. } => false,
        Delta::CallEnd { .. } => true,
    }
}

/// A part of an answer, whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// For the client to read.
    Text(String),
    /// What the model thought.
    Reasoning(String),
    /// A call of a tool.
    Call {
        /// The model's own, where its family has ids.
        id: Option<String>,
        /// The tool's.
        name: String,
        /// JSON.
        arguments: String,
    },
}

/// How an answer ended well.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ending {
    /// It has as many tokens as it may have; otherwise the model or a stop text ended it.
    pub(crate) length: bool,
    /// The stop text that ended it.
    pub(crate) stop_text: Option<String>,
}

impl Ending {
    /// What the decode worker said; `None` where the answer did not end well.
    pub(crate) fn of(finished: &proto::Finished) -> Option<Self> {
        let length = match finished.reason() {
            proto::FinishReason::Stop => false,
            proto::FinishReason::Length => true,
            proto::FinishReason::Cancelled | proto::FinishReason::Unspecified => return None,
        };
        let stop_text = Some(&finished.stop_text).filter(|text| !text.is_empty());
        Some(Self {
            length,
            stop_text: stop_text.cloned(),
        })
    }

    /// OpenAI's word for it.
    pub(crate) const fn reason(&self, called: bool) -> &'static str {
        match (self.length, called) {
            (true, _) => "length",
            (false, true) => "tool_calls",
            (false, false) => "stop",
        }
    }
}

/// A whole answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Answer {
    pub(crate) parts: Vec<Part>,
    /// Where probabilities are wanted.
    pub(crate) tokens: Vec<proto::Token>,
    pub(crate) ending: Ending,
}

impl Answer {
    /// Adds a piece; whether it began a part.
    pub(crate) fn push(&mut self, delta: &Delta) -> bool {
        if is_silent(delta) {
            return false;
        }
        match (delta, self.parts.last_mut()) {
            (Delta::Content(text), Some(Part::Text(whole)))
            | (Delta::Reasoning(text), Some(Part::Reasoning(whole)))
            | (
                Delta::Arguments { json: text, .. },
                Some(Part::Call {
                    arguments: whole, ..
                }),
            ) => {
                whole.push_str(text);
                return false;
            }
            (Delta::Content(text), _) => self.parts.push(Part::Text(text.clone())),
            (Delta::Reasoning(text), _) => self.parts.push(Part::Reasoning(text.clone())),
            (Delta::CallStart { id, name, .. }, _) => self.parts.push(Part::Call {
                id: id.clone(),
                name: name.clone(),
                arguments: String::new(),
            }),
            // Arguments of no call: a parser begins the call first.
            (Delta::Arguments { .. } | Delta::CallEnd { .. }, _) => return false,
        }
        true
    }

    /// All that is for the client to read.
    pub(crate) fn text(&self) -> String {
        let text = |part: &'_ Part| match part {
            Part::Text(text) => Some(text.clone()),
            Part::Reasoning(_) | Part::Call { .. } => None,
        };
        self.parts.iter().filter_map(text).collect()
    }

    /// All that the model thought.
    pub(crate) fn reasoning(&self) -> String {
        let text = |part: &'_ Part| match part {
            Part::Reasoning(text) => Some(text.clone()),
            Part::Text(_) | Part::Call { .. } => None,
        };
        self.parts.iter().filter_map(text).collect()
    }

    /// Id, name and arguments of each call.
    pub(crate) fn calls(&self) -> impl Iterator<Item = (Option<&str>, &str, &str)> {
        self.parts.iter().filter_map(|part| match part {
            Part::Call {
                id,
                name,
                arguments,
            } => Some((id.as_deref(), name.as_str(), arguments.as_str())),
            Part::Text(_) | Part::Reasoning(_) => None,
        })
    }
}

/// What is the same in all of one request's answers and events.
#[derive(Clone, Debug, Default)]
pub(crate) struct Identity {
    /// The request's, in hexadecimal.
    pub(crate) request: String,
    pub(crate) model: String,
    /// Seconds since 1970.
    pub(crate) created: u64,
    pub(crate) fingerprint: String,
    /// Tokens of each prompt.
    pub(crate) prompts: Vec<u64>,
    /// Answers to each prompt.
    pub(crate) answers: usize,
}

impl Identity {
    /// Answers to all prompts.
    pub(crate) const fn choices(&self) -> usize {
        self.prompts.len() * self.answers
    }

    /// The id of the `call`th call that choice `index` makes, where the model gave it none itself.
    pub(crate) fn call_id(&self, index: usize, call: usize, own: Option<&str>) -> String {
        own.map_or_else(
            || format!("call_{}{index:02}{call:02}", self.request),
            str::to_owned,
        )
    }
}

/// What one answer took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) completion: u64,
    /// Of these, those that are no part of the answer.
    pub(crate) reasoning: u64,
    /// Of the prompt's tokens, those that nobody had to compute.
    pub(crate) cached: u64,
}

/// Tokens that were read and written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) prompt: u64,
    pub(crate) completion: u64,
    /// Of these, those that are no part of an answer.
    pub(crate) reasoning: u64,
    /// Of the prompts' tokens, those that nobody had to compute.
    pub(crate) cached: u64,
}

impl Usage {
    /// Of all answers: each prompt counts once, and as far as it was computed for any of them.
    pub(crate) fn of(identity: &Identity, counts: &[Count]) -> Self {
        let answers = counts.chunks(identity.answers.max(1));
        let cached = identity
            .prompts
            .iter()
            .zip(answers)
            .map(|(prompt, answers)| {
                let least = answers.iter().map(|count| count.cached).min();
                least.unwrap_or(0).min(*prompt)
            });
        Self {
            prompt: identity.prompts.iter().sum(),
            completion: counts.iter().map(|count| count.completion).sum(),
            reasoning: counts.iter().map(|count| count.reasoning).sum(),
            cached: cached.sum(),
        }
    }

    /// As OpenAI's completions tell it.
    pub(crate) fn json(self) -> Value {
        json!({
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.prompt + self.completion,
            "prompt_tokens_details": {"cached_tokens": self.cached},
            "completion_tokens_details": {"reasoning_tokens": self.reasoning},
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_one_kind_are_one_part() {
        let mut answer = Answer::default();
        let call = |index| Delta::CallStart {
            index,
            id: None,
            name: "f".into(),
        };
        let arguments = |text: &str| Delta::Arguments {
            index: 0,
            json: text.into(),
        };
        let deltas = [
            (Delta::Reasoning("a".into()), true),
            (Delta::Reasoning("b".into()), false),
            (Delta::Content(String::new()), false),
            (Delta::Content("c".into()), true),
            (call(0), true),
            (arguments("{"), false),
            (arguments("}"), false),
            (call(1), true),
        ];
        for (delta, begins) in deltas {
            assert_eq!(answer.push(&delta), begins, "{delta:?}");
        }
        assert_eq!(
            (answer.reasoning(), answer.text()),
            ("ab".into(), "c".into())
        );
        assert_eq!(
            answer.calls().collect::<Vec<_>>(),
            [(None, "f", "{}"), (None, "f", "")]
        );
    }

    #[test]
    fn each_prompt_counts_once_and_as_computed_as_it_was() {
        let identity = Identity {
            prompts: vec![10, 20],
            answers: 2,
            ..Identity::default()
        };
        let counts = [(3, 0), (4, 8), (5, 16), (6, 99)].map(|(completion, cached)| Count {
            completion,
            cached,
            ..Count::default()
        });
        let usage = Usage::of(&identity, &counts);
        assert_eq!((usage.prompt, usage.completion, usage.cached), (30, 18, 16));
    }
}

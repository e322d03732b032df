//! What is asked of a fleet, and what came of it.

use std::sync::Arc;
use std::time::Duration;

/// One request of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// When it comes, from the trace's start.
    pub at: Duration,
    /// Tokens of its prompt, at least 1.
    pub prompt: u32,
    /// Tokens of its answer, at least 1.
    pub answer: u32,
    /// What its prompt consists of, where the trace says so; nothing of it is found in a cache otherwise.
    pub blocks: Option<Blocks>,
    /// What its session goes by.
    pub session: Option<u64>,
}

/// A prompt's text, cut into blocks: equal ids are equal text. The last one may be a part of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// Tokens of a block, at least 1.
    pub tokens: u32,
    /// First to last.
    pub ids: Arc<[u64]>,
}

impl Request {
    /// A request of whose text nothing is known.
    #[must_use]
    pub const fn new(at: Duration, prompt: u32, answer: u32) -> Self {
        Self {
            at,
            prompt,
            answer,
            blocks: None,
            session: None,
        }
    }

    /// Tokens that a decode worker has to have room for: all but the last one's entry are kept.
    #[must_use]
    pub const fn room(&self) -> u64 {
        self.prompt as u64 + self.answer as u64 - 1
    }
}

/// What one request came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was answered.
    Answered(Answer),
    /// The gateway turned it away: why, by `tandem_core::front_door::Rejection`'s name.
    Rejected(&'static str),
}

/// What an answered request got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// From its coming to its first token.
    pub ttft: Duration,
    /// From its first token to its last.
    pub decoding: Duration,
    /// The longest time between two of its tokens.
    pub longest_gap: Duration,
    /// Tokens of its prompt.
    pub prompt: u32,
    /// Tokens of its answer.
    pub tokens: u32,
    /// How long it waited in the gateway.
    pub queued: Duration,
    /// What the transfer added to the prompt's time: by which its steps were longer, or, where pages travel
    /// afterwards, until they were there. Zero where the decode worker computed the prompt itself.
    pub exposed: Duration,
    /// Prompt tokens that whoever computed the prompt found in its cache.
    pub cached: u32,
    /// Its decode worker computed the prompt.
    pub local: bool,
    /// When its last token came, from the trace's start.
    pub ended: Duration,
}

impl Outcome {
    /// What it got, where it was answered.
    #[must_use]
    pub const fn answer(&self) -> Option<&Answer> {
        match self {
            Self::Answered(answer) => Some(answer),
            Self::Rejected(_) => None,
        }
    }
}

impl Answer {
    /// Time per output token after the first; zero where there is one only.
    #[must_use]
    pub fn tpot(&self) -> Duration {
        self.decoding / self.tokens.saturating_sub(1).max(1)
    }
}

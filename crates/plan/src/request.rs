//! What is asked of a fleet, and what came of it.

use std::time::Duration;

/// One request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// When it comes, from the trace's start.
    pub at: Duration,
    /// Tokens of its prompt, at least 1.
    pub prompt: u32,
    /// Tokens of its answer, at least 1.
    pub answer: u32,
}

impl Request {
    /// Tokens that a decode worker has to have room for: all but the last one's entry are kept.
    #[must_use]
    pub const fn room(&self) -> u64 {
        self.prompt as u64 + self.answer as u64 - 1
    }
}

/// What one request got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// From its coming to its first token.
    pub ttft: Duration,
    /// From its first token to its last.
    pub decoding: Duration,
    /// The longest time between two of its tokens.
    pub longest_gap: Duration,
    /// Tokens of its answer.
    pub tokens: u32,
    /// How long it waited in the gateway.
    pub queued: Duration,
    /// When its last token came, from the trace's start.
    pub ended: Duration,
}

impl Outcome {
    /// Time per output token after the first; zero where there is one only.
    #[must_use]
    pub fn tpot(&self) -> Duration {
        self.decoding / self.tokens.saturating_sub(1).max(1)
    }
}

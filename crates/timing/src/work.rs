//! What one step holds, as far as its time depends on it.

/// The tokens of one step and what they attend to. A sum of chunks and decoding sequences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Tokens that go through the model, of prompts and answers together.
    pub tokens: u64,
    /// Pairs of a prompt's token and one that it attends to (itself among them), over all chunks.
    pub pairs: u64,
    /// KV entries (tokens of one layer) that decoding sequences read.
    pub kv_tokens: u64,
}

impl Work {
    /// A chunk of a prompt: `tokens` tokens behind `start` that are there already.
    #[must_use]
    pub const fn chunk(start: u32, tokens: u32) -> Self {
        let (start, n) = (start as u64, tokens as u64);
        Self {
            tokens: n,
            pairs: n * start + n * (n + 1) / 2,
            kv_tokens: 0,
        }
    }

    /// One sequence's next token, with so many tokens before it.
    #[must_use]
    pub const fn decode(before: u32) -> Self {
        Self {
            tokens: 1,
            pairs: 0,
            kv_tokens: before as u64 + 1,
        }
    }

    /// Both in one step.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            tokens: self.tokens + other.tokens,
            pairs: self.pairs + other.pairs,
            kv_tokens: self.kv_tokens + other.kv_tokens,
        }
    }
}

impl std::iter::Sum for Work {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), Self::and)
    }
}

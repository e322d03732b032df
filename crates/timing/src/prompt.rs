//! A whole prompt: its chunks, and when each layer of a step has reached the other side.

use std::time::Duration;

use crate::{Profile, Work};

/// The chunks of one prompt that is computed alone.
#[derive(Clone, Copy, Debug)]
pub struct Chunks {
    at: u32,
    end: u32,
    chunk: u32,
}

impl Chunks {
    /// Of `end` tokens the first `cached` are there; steps take `chunk` tokens at most (1 at least).
    #[must_use]
    pub const fn new(cached: u32, end: u32, chunk: u32) -> Self {
        let chunk = if chunk == 0 { 1 } else { chunk };
        Self {
            at: cached,
            end,
            chunk,
        }
    }
}

impl Iterator for Chunks {
    type Item = Work;

    fn next(&mut self) -> Option<Work> {
        let tokens = self.end.saturating_sub(self.at).min(self.chunk);
        (tokens > 0).then(|| {
            let work = Work::chunk(self.at, tokens);
            self.at += tokens;
            work
        })
    }
}

/// When the layers of a step end, one after the other, counted from its start.
#[derive(Clone, Copy, Debug)]
pub struct LayerEnd {
    layer: Duration,
    push: Duration,
    computed: Duration,
    /// When the last one had passed the link.
    passed: Duration,
    left: u16,
}

impl Profile {
    /// What a prompt takes that is computed alone, in chunks.
    #[must_use]
    pub fn prompt(&self, cached: u32, tokens: u32, chunk: u32) -> Duration {
        Chunks::new(cached, tokens, chunk)
            .map(|work| self.step(&work))
            .sum()
    }

    /// When each layer of a step is computed and its entries of `pushed` tokens have passed the link,
    /// which takes one layer after the other. With no tokens to push, when it is computed.
    #[must_use]
    pub fn layer_ends(&self, work: &Work, pushed: u64) -> LayerEnd {
        LayerEnd {
            layer: self.layer(work).total(),
            push: self.push(pushed),
            computed: self.overhead(),
            passed: Duration::ZERO,
            left: self.kv.layers,
        }
    }
}

impl Iterator for LayerEnd {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.left = self.left.checked_sub(1)?;
        self.computed += self.layer;
        self.passed = self.passed.max(self.computed) + self.push;
        Some(self.passed)
    }
}

//! What is known of a request under way.

use std::time::Duration;

use tandem_core::FlowId;

use crate::request::{Answer, Outcome, Request};

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Life {
    pub(super) decode: usize,
    /// Its prefill worker; `None` where its decode worker computes the prompt.
    pub(super) prefill: Option<usize>,
    pub(super) flow: Option<FlowId>,
    /// Tokens that its decode worker had.
    pub(super) held: u32,
    /// Tokens that whoever computed the prompt had.
    pub(super) cached: u32,
    pub(super) left_queue: Duration,
    /// What the transfer added to its prompt's time.
    pub(super) exposed: Duration,
    pub(super) first: Option<Duration>,
    pub(super) last: Duration,
    pub(super) longest_gap: Duration,
    pub(super) rejected: Option<&'static str>,
}

impl Life {
    /// A token came. Time since the one before it; `None` of the first.
    pub(super) fn token(&mut self, now: Duration) -> Option<Duration> {
        let gap = self.first.map(|_| now - self.last);
        self.first.get_or_insert(now);
        self.longest_gap = self.longest_gap.max(gap.unwrap_or_default());
        self.last = now;
        gap
    }

    pub(super) fn outcome(&self, request: &Request) -> Outcome {
        match self.rejected {
            Some(why) => Outcome::Rejected(why),
            None => Outcome::Answered(self.answer(request)),
        }
    }

    pub(super) fn answer(&self, request: &Request) -> Answer {
        let first = self.first.unwrap_or(self.last);
        Answer {
            ttft: first - request.at,
            decoding: self.last - first,
            longest_gap: self.longest_gap,
            prompt: request.prompt,
            tokens: request.answer,
            queued: self.left_queue - request.at,
            exposed: self.exposed,
            cached: self.cached,
            local: self.prefill.is_none(),
            ended: self.last,
        }
    }
}

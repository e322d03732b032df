//! What the decode task keeps of a request besides the agent's own record.

use std::sync::Arc;
use std::time::Instant;

use tandem_core::RequestId;
use tandem_core::blocks::BlockHash;
use tandem_core::decode::{Failure, Peer, Refusal};
use tandem_engine::{FinishReason, Sampling, StopConditions, TokenLogprob};
use tandem_wire::proto;
use tandem_wire::proto::generate_reply::Kind;
use tokio::sync::{mpsc, watch};

use super::generate::{Asked, Prefill};
use super::reply;
use crate::failure;
use crate::start::Facts;

/// A request in flight.
pub(super) struct Held {
    /// The gateway's name for it.
    pub(super) request: RequestId,
    pub(super) tokens: Arc<[u32]>,
    pub(super) generated: u32,
    pub(super) sampling: Sampling,
    pub(super) stop: StopConditions,
    pub(super) prefill: Option<Prefill>,
    pub(super) salt: Arc<[u8]>,
    /// Tokens generated here.
    answer: Vec<u32>,
    /// Tokens that need not be computed.
    pub(super) cached: u32,
    pub(super) deadline: Instant,
    replies: mpsc::Sender<proto::GenerateReply>,
    /// Set to cancel its dispatch.
    pub(super) cancel: watch::Sender<bool>,
    pub(super) dispatched: Option<Instant>,
    started: bool,
    last_token: Option<Instant>,
}

impl Held {
    pub(super) fn new(asked: Asked) -> Self {
        Self {
            request: asked.request,
            tokens: asked.tokens,
            generated: asked.generated,
            sampling: asked.sampling,
            stop: asked.stop,
            prefill: asked.prefill,
            salt: asked.salt,
            answer: Vec::new(),
            cached: 0,
            deadline: asked.deadline,
            replies: asked.replies,
            cancel: watch::Sender::new(false),
            dispatched: None,
            started: false,
            last_token: None,
        }
    }

    pub(super) fn peer(&self) -> Option<Peer> {
        self.prefill.as_ref().map(|p| p.peer.clone())
    }

    /// Tokens whose KV entries prefill computes.
    pub(super) fn prefilled(&self) -> u64 {
        self.tokens.len() as u64 - 1
    }

    pub(super) const fn has_started(&self) -> bool {
        self.started
    }

    pub(super) fn refused(&self, why: &Refusal) {
        self.say(Kind::Refused(failure::refusal(why)));
    }

    pub(super) fn reserved(&self, pages: u32, held: u32) {
        let held_tokens = held;
        self.say(Kind::Reserved(proto::Reserved { pages, held_tokens }));
    }

    /// Names of the whole blocks of all tokens that have KV entries.
    pub(super) fn blocks(&self, facts: &Facts) -> Arc<[BlockHash]> {
        let all = self.tokens.iter().chain(&self.answer).copied();
        let all: Vec<u32> = all.collect();
        facts.blocks(&self.salt, &all[..all.len() - 1])
    }

    pub(super) fn started(&mut self) {
        self.started = true;
        let transfer = self
            .dispatched
            .map_or(0, |at| at.elapsed().as_micros() as u64);
        let prompt_tokens = self.prefilled();
        self.say(Kind::Started(proto::Started {
            transfer_us: transfer,
            prompt_tokens,
        }));
    }

    /// Microseconds since its last token; 0 for its first one.
    pub(super) fn gap_us(&mut self) -> u64 {
        let now = Instant::now();
        let last = self.last_token.replace(now);
        last.map_or(0, |last| (now - last).as_micros() as u64)
    }

    pub(super) fn token(&mut self, token: u32, text: String, logprobs: Vec<TokenLogprob>) {
        let logprob = |l: TokenLogprob| proto::Logprob {
            token: l.token,
            bytes: l.bytes.into(),
            logprob: l.logprob,
        };
        let logprobs = logprobs.into_iter().map(logprob).collect();
        self.answer.push(token);
        self.say(Kind::Token(proto::Token {
            token,
            text,
            logprobs,
        }));
    }

    pub(super) fn finished(&self, text: String, reason: FinishReason, stop_text: Option<String>) {
        let reason = match reason {
            FinishReason::Stop => proto::FinishReason::Stop,
            FinishReason::Length => proto::FinishReason::Length,
        };
        self.say(Kind::Finished(proto::Finished {
            text,
            reason: reason.into(),
            cached_tokens: self.cached,
            stop_text: stop_text.unwrap_or_default(),
        }));
    }

    pub(super) fn failed(&self, why: &Failure) {
        self.say(Kind::Failed(failure::failure(why)));
    }

    /// Never waits: the queue has room for all that a request can say. A gateway that has gone
    /// hears nothing.
    fn say(&self, kind: Kind) {
        let _ = self.replies.try_send(reply(kind));
    }
}

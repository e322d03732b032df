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
use super::traced::Traced;
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
    /// As the prefill worker told them.
    prompt_times: Option<proto::PromptTimes>,
    /// Until it is over.
    traced: Option<Box<Traced>>,
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
            prompt_times: None,
            traced: asked.traced,
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

    pub(super) fn refused(&mut self, why: &Refusal) {
        self.over(Some("refused"));
        self.say(Kind::Refused(failure::refusal(why)));
    }

    pub(super) fn reserved(&mut self, pages: u32, held: u32) {
        if let Some(traced) = &mut self.traced {
            traced.reserved();
        }
        let held_tokens = held;
        self.say(Kind::Reserved(proto::Reserved { pages, held_tokens }));
    }

    /// Names of the whole blocks of all tokens that have KV entries.
    pub(super) fn blocks(&self, facts: &Facts) -> Arc<[BlockHash]> {
        let all = self.tokens.iter().chain(&self.answer).copied();
        let all: Vec<u32> = all.collect();
        facts.blocks(&self.salt, &all[..all.len() - 1])
    }

    /// The dispatch is on its way: how its trace goes on there.
    pub(super) fn dispatched(&mut self, now: Instant) -> (String, String) {
        self.dispatched = Some(now);
        self.traced
            .as_mut()
            .map_or_else(Default::default, |traced| {
                traced.dispatched(now);
                traced.told()
            })
    }

    /// The prefill worker has pushed everything.
    pub(super) fn pushed(&mut self, times: proto::PromptTimes) {
        // It knows of no computation where its last layer was not seen before its last write ended.
        self.prompt_times = Some(times).filter(|times| times.compute_us > 0);
        if let Some(traced) = &mut self.traced {
            traced.pushed();
        }
    }

    pub(super) fn started(&mut self) {
        self.started = true;
        if let Some(traced) = &mut self.traced {
            traced.started();
        }
        let transfer = self
            .dispatched
            .map_or(0, |at| at.elapsed().as_micros() as u64);
        let prompt_tokens = self.prefilled();
        self.say(Kind::Started(proto::Started {
            transfer_us: transfer,
            prompt_tokens,
            cached_tokens: self.cached,
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

    pub(super) fn finished(
        &mut self,
        text: String,
        reason: FinishReason,
        stop_text: Option<String>,
    ) {
        self.over(None);
        let reason = match reason {
            FinishReason::Stop => proto::FinishReason::Stop,
            FinishReason::Length => proto::FinishReason::Length,
        };
        self.say(Kind::Finished(proto::Finished {
            text,
            reason: reason.into(),
            cached_tokens: self.cached,
            stop_text: stop_text.unwrap_or_default(),
            prompt_times: self.prompt_times,
        }));
    }

    pub(super) fn failed(&mut self, why: &Failure) {
        let failure = failure::failure(why);
        self.over(Some(&failure.code));
        self.say(Kind::Failed(failure));
    }

    /// Nothing more is said of it.
    fn over(&mut self, error: Option<&str>) {
        if let Some(traced) = self.traced.take() {
            traced.ended(self.answer.len(), error);
        }
    }

    /// Never waits: the queue has room for all that a request can say. A gateway that has gone
    /// hears nothing.
    fn say(&self, kind: Kind) {
        let _ = self.replies.try_send(reply(kind));
    }
}

//! One request's figures, and the one log line and the metrics at its end.

use std::sync::Arc;

use tandem_core::RequestId;
use tandem_core::admission::ClassId;
use tandem_core::pairing::Pair;
use tandem_wire::proto;
use tokio::time::Instant;

use crate::api::ask::Endpoint;
use crate::api::error::ApiError;
use crate::caller::Caller;
use crate::metrics::Metrics;
use crate::requests::{Stage, Tracked, Way};

/// Written down however the request ends: dropping it writes the line. Holds nothing of what the
/// client or the model said.
pub(crate) struct Journal {
    metrics: Arc<Metrics>,
    tracked: Tracked,
    request: RequestId,
    /// The client's id for it, or ours.
    request_id: String,
    endpoint: Endpoint,
    stream: bool,
    arrived: Instant,
    prompt_tokens: u64,
    class: ClassId,
    queued: Option<Instant>,
    moves: u32,
    pair: Option<Pair>,
    reserved: Option<Instant>,
    transfer_us: Option<u64>,
    first_token: Option<Instant>,
    last_token: Option<Instant>,
    tokens: u64,
    status: Option<u16>,
    finish_reason: Option<&'static str>,
    error: Option<String>,
}

impl Journal {
    /// A request has arrived.
    pub(crate) fn new(
        metrics: Arc<Metrics>,
        tracked: Tracked,
        request: RequestId,
        request_id: String,
        endpoint: Endpoint,
    ) -> Self {
        Self {
            metrics,
            tracked,
            request,
            request_id,
            endpoint,
            stream: false,
            arrived: Instant::now(),
            prompt_tokens: 0,
            class: ClassId::default(),
            queued: None,
            moves: 0,
            pair: None,
            reserved: None,
            transfer_us: None,
            first_token: None,
            last_token: None,
            tokens: 0,
            status: None,
            finish_reason: None,
            error: None,
        }
    }

    /// Its prompt is known.
    pub(crate) fn read(&mut self, prompt_tokens: usize, stream: bool) {
        self.prompt_tokens = prompt_tokens as u64;
        self.tracked.prompt(self.prompt_tokens);
        self.stream = stream;
    }

    /// It waits for a pair.
    pub(crate) fn queued(&mut self, class: ClassId) {
        self.class = class;
        self.queued = Some(Instant::now());
        self.tracked.stage(Stage::Queued);
    }

    /// A pair is asked.
    pub(crate) fn paired(&mut self, pair: &Pair) {
        self.pair = Some(pair.clone());
    }

    /// It goes on on another pair.
    pub(crate) fn moved(&mut self, pair: &Pair) {
        self.moves += 1;
        self.paired(pair);
    }

    /// The lease is granted.
    pub(crate) fn reserved(&mut self) {
        let now = Instant::now();
        self.reserved = Some(now);
        if let Some(queued) = self.queued {
            let seconds = (now - queued).as_secs_f64();
            self.metrics.admission.waited(self.class, seconds);
        }
    }

    /// Its pages have arrived.
    pub(crate) fn started(&mut self, started: &proto::Started) {
        self.transfer_us = Some(started.transfer_us);
        self.tracked.stage(Stage::Decoding);
    }

    /// A token has come.
    pub(crate) fn token(&mut self) {
        let now = Instant::now();
        self.tokens += 1;
        self.tracked.token();
        self.last_token = Some(now);
        self.metrics.generation_tokens.increment(1);
        if self.first_token.is_none() {
            self.first_token = Some(now);
            self.metrics.prompt_tokens.increment(self.prompt_tokens);
            self.metrics
                .time_to_first_token
                .record((now - self.arrived).as_secs_f64());
        }
    }

    /// Where else it is written down how far the request is.
    pub(crate) fn way(&self) -> Way {
        Way::clone(&self.tracked)
    }

    /// Who asks.
    pub(crate) fn caller(&self) -> &Caller {
        self.tracked.caller()
    }

    /// Tokens generated so far.
    pub(crate) const fn tokens(&self) -> u64 {
        self.tokens
    }

    /// The reply's status line is out.
    pub(crate) const fn replied(&mut self, status: u16) {
        self.status = Some(status);
    }

    /// The answer is complete.
    pub(crate) fn finished(&mut self, reason: &'static str) {
        self.finish_reason = Some(reason);
        self.tracked.ended(reason);
    }

    /// It failed.
    pub(crate) fn failed(&mut self, error: &ApiError) {
        self.status.get_or_insert(error.status.as_u16());
        self.error = Some(error.code.clone());
        self.tracked.ended(&error.code);
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        let total = self.arrived.elapsed();
        self.metrics.request_duration.record(total.as_secs_f64());
        if let (Some(first), Some(last), 2..) = (self.first_token, self.last_token, self.tokens) {
            let rest = (self.tokens - 1) as f64;
            self.metrics
                .time_per_output_token
                .record((last - first).as_secs_f64() / rest);
        }
        let ended_by_client = self.error.is_none() && self.finish_reason.is_none();
        let error = if ended_by_client {
            self.tracked.ended("client_gone");
            Some("client_gone")
        } else {
            self.error.as_deref()
        };
        let millis =
            |from: Option<Instant>, to: Option<Instant>| Some((to? - from?).as_secs_f64() * 1e3);
        let pair = self.pair.as_ref();
        tracing::info!(
            request_id = self.request_id,
            request = %self.request,
            endpoint = self.endpoint.as_str(),
            tenant = &*self.tracked.caller().tenant,
            key = self.tracked.caller().key.as_deref(),
            stream = self.stream,
            status = self.status.unwrap_or(499),
            error,
            finish_reason = self.finish_reason,
            decode = pair.map(|pair| pair.decode.as_str()),
            prefill = pair.and_then(|pair| pair.prefill.as_ref()).map(|worker| worker.as_str()),
            why = pair.map(|pair| pair.why.as_str()),
            prompt_tokens = self.prompt_tokens,
            tokens = self.tokens,
            queue_ms = millis(self.queued, self.reserved),
            moves = self.moves,
            transfer_us = self.transfer_us,
            ttft_ms = millis(Some(self.arrived), self.first_token),
            total_ms = total.as_secs_f64() * 1e3,
            "request"
        );
    }
}

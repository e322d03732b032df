//! One generation's figures, and the one log line and the metrics at its end.

use std::sync::Arc;

use tandem_core::RequestId;
use tandem_core::admission::ClassId;
use tandem_core::pairing::Pair;
use tandem_wire::proto;
use tokio::time::Instant;

use crate::api::error::ApiError;
use crate::api::request::Endpoint;
use crate::caller::Caller;
use crate::generate::Fate;
use crate::metrics::Metrics;
use crate::requests::{Stage, Tracked, Way};

/// Written down however the request ends: dropping it writes the line. Holds nothing of what the
/// client or the model said.
pub(crate) struct Journal {
    metrics: Arc<Metrics>,
    fate: Arc<Fate>,
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
    finish_reason: Option<&'static str>,
}

impl Journal {
    /// A request has arrived.
    pub(crate) fn new(
        metrics: Arc<Metrics>,
        (fate, tracked): (Arc<Fate>, Tracked),
        request: RequestId,
        request_id: String,
        endpoint: Endpoint,
    ) -> Self {
        Self {
            metrics,
            fate,
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
            finish_reason: None,
        }
    }

    /// Of a further answer to the same request.
    pub(crate) fn next(&self, request: RequestId, prompt_tokens: usize) -> Self {
        let (metrics, fate) = (Arc::clone(&self.metrics), Arc::clone(&self.fate));
        let name = self.request_id.clone();
        let tracked = self.tracked.another(request);
        let mut next = Self::new(metrics, (fate, tracked), request, name, self.endpoint);
        next.arrived = self.arrived;
        next.read(prompt_tokens, self.stream);
        next
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
        if let Some(local) = pair.local {
            self.metrics.local_prefill(local.as_str());
        }
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

    /// The request failed.
    pub(crate) fn failed(&self, error: &ApiError) {
        self.fate.failed(error);
    }

    /// The answer is complete.
    pub(crate) fn finished(&mut self, reason: &'static str) {
        self.finish_reason = Some(reason);
        self.tracked.ended(reason);
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
        // An answer that is sent whole has no status yet where it has ended.
        let (error, status) = match (self.fate.error(), self.finish_reason) {
            (None, None) => (Some("client_gone"), 499),
            (error, _) => (error, 200),
        };
        if self.finish_reason.is_none() {
            self.tracked.ended(error.unwrap_or("cancelled"));
        }
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
            status = self.fate.status().unwrap_or(status),
            error,
            finish_reason = self.finish_reason,
            decode = pair.map(|pair| pair.decode.as_str()),
            prefill = pair.and_then(|pair| pair.prefill.as_ref()).map(|worker| worker.as_str()),
            why = pair.map(|pair| tracing::field::display(&pair.why)),
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

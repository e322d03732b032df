//! The spans of a request as the decode worker saw it.

use std::time::Instant;

use tandem_telemetry::span::{KeyValue, Span};
use tandem_telemetry::{Spans, TraceContext};

/// What is kept of a request whose trace is recorded.
pub(super) struct Traced {
    to: Spans,
    context: TraceContext,
    /// The dispatch's own place: the prefill worker's spans are part of it.
    dispatch: TraceContext,
    arrived: Instant,
    reserved: Option<Instant>,
    dispatched: Option<Instant>,
    /// When the prefill worker had said its last.
    pushed: Option<Instant>,
    started: Option<Instant>,
}

impl Traced {
    pub(super) fn new(to: Spans, context: TraceContext, arrived: Instant) -> Self {
        Self {
            to,
            dispatch: context.child(),
            context,
            arrived,
            reserved: None,
            dispatched: None,
            pushed: None,
            started: None,
        }
    }

    pub(super) fn reserved(&mut self) {
        self.reserved = Some(Instant::now());
    }

    pub(super) fn dispatched(&mut self, at: Instant) {
        self.dispatched = Some(at);
    }

    pub(super) fn pushed(&mut self) {
        self.pushed = Some(Instant::now());
    }

    pub(super) fn started(&mut self) {
        self.started = Some(Instant::now());
    }

    /// As the prefill worker is told of it.
    pub(super) fn told(&self) -> (String, String) {
        (self.dispatch.traceparent(), self.dispatch.tracestate())
    }

    /// The request is over: hands its spans over.
    pub(super) fn ended(&self, tokens: usize, error: Option<&str>) {
        let now = Instant::now();
        self.to
            .record(&self.context, || self.spans(now, tokens, error));
    }

    fn spans(&self, now: Instant, tokens: usize, error: Option<&str>) -> Vec<Span> {
        let output = i64::try_from(tokens).unwrap_or(i64::MAX);
        let whole = Span::server(&self.context, "generate", (self.arrived, now));
        let reserved = self.reserved.unwrap_or(now);
        let mut spans = vec![whole.step("lease", (self.arrived, reserved))];
        if let Some(at) = self.dispatched {
            let pushed = self.pushed.or(self.started).unwrap_or(now);
            spans.push(Span::client(&self.dispatch, "dispatch", (at, pushed)));
            let full = self.started.unwrap_or(now);
            spans.push(whole.step("wait_for_pages", (at, full)));
        } else if let (Some(reserved), Some(started)) = (self.reserved, self.started) {
            spans.push(whole.step("prefill", (reserved, started)));
        }
        if let Some(started) = self.started {
            spans.push(whole.step("decode", (started, now)));
        }
        let whole = whole
            .with(KeyValue::new("gen_ai.usage.output_tokens", output))
            .failed(error);
        spans.push(whole);
        spans
    }
}

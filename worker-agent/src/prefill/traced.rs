//! The spans of a transfer as the prefill worker saw it.

use std::time::Instant;

use tandem_telemetry::span::{KeyValue, Span};
use tandem_telemetry::{Spans, TraceContext};
use tandem_wire::proto;

use crate::watcher::LayerPush;

/// What is kept of a transfer whose trace is recorded.
pub(super) struct Traced {
    context: TraceContext,
    arrived: Instant,
    tokens: usize,
    computed: Option<Computed>,
    ended: Option<Ended>,
}

/// What the watcher saw.
pub(super) struct Computed {
    /// When the first step was announced.
    pub(super) started: Instant,
    /// When the last layer was seen to be complete.
    pub(super) computed: Instant,
    pub(super) pushes: Vec<LayerPush>,
}

/// How it ended.
pub(super) struct Ended {
    pub(super) at: Instant,
    pub(super) last_completion: Option<Instant>,
    pub(super) result: Result<proto::Done, &'static str>,
}

impl Traced {
    pub(super) const fn new(context: TraceContext, arrived: Instant, tokens: usize) -> Self {
        Self {
            context,
            arrived,
            tokens,
            computed: None,
            ended: None,
        }
    }

    pub(super) fn computed(&mut self, computed: Computed) {
        self.computed = Some(computed);
    }

    pub(super) fn ended(&mut self, ended: Ended) {
        self.ended = Some(ended);
    }

    /// Whether nothing is to come: the watcher and the fabric tell of the end in any order.
    pub(super) fn is_complete(&self) -> bool {
        let done = |ended: &Ended| ended.result.is_ok();
        self.ended
            .as_ref()
            .is_some_and(|ended| !done(ended) || self.computed.is_some())
    }

    /// Hands its spans over.
    pub(super) fn record(&self, to: &Spans) {
        to.record(&self.context, || self.spans());
    }

    fn spans(&self) -> Vec<Span> {
        let Some(ended) = &self.ended else {
            return Vec::new();
        };
        let count = |name: &'static str, value: u64| {
            KeyValue::new(name, i64::try_from(value).unwrap_or(i64::MAX))
        };
        let mut prefill = Span::server(&self.context, "prefill", (self.arrived, ended.at))
            .with(count("gen_ai.usage.input_tokens", self.tokens as u64));
        let mut steps = Vec::new();
        if let Some(c) = &self.computed {
            steps.push(prefill.step("prefill_queue", (self.arrived, c.started)));
            steps.push(prefill.step("compute", (c.started, c.computed)));
            for push in &c.pushes {
                let span = prefill
                    .step("push", (push.seen, push.posted))
                    .with(count("tandem.layer", push.layer.into()))
                    .with(count("tandem.writes", push.writes.into()))
                    .with(count("tandem.bytes", push.bytes));
                steps.push(span);
            }
            if let Some(last) = ended.last_completion {
                steps.push(prefill.step("transfer", (c.computed, last)));
            }
        }
        match &ended.result {
            Ok(done) => {
                prefill = prefill
                    .with(count("tandem.writes", done.writes.into()))
                    .with(count("tandem.bytes", done.bytes));
            }
            Err(error) => prefill = prefill.failed(Some(error)),
        }
        steps.push(prefill);
        steps
    }
}

//! Spans, made of moments that have passed.
//!
//! Nothing is recorded while a request runs: whoever has its moments makes the spans at its end, and
//! only where its trace is recorded.

use std::borrow::Cow;
use std::time::{Instant, SystemTime};

use opentelemetry::trace::{SpanId, SpanKind, Status};
use opentelemetry::{Array, InstrumentationScope, Value};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};

use crate::trace::{TraceContext, new_span};

pub use opentelemetry::KeyValue;

/// A fact that is a list.
#[must_use]
pub fn texts(name: &'static str, values: &[&'static str]) -> KeyValue {
    let values = values.iter().map(|value| (*value).into()).collect();
    KeyValue::new(name, Value::Array(Array::String(values)))
}

/// A process's part in a request, or a step of such a part.
#[derive(Clone, Debug)]
pub struct Span {
    name: Cow<'static, str>,
    kind: SpanKind,
    id: SpanId,
    parent: Option<SpanId>,
    remote: bool,
    time: (Instant, Instant),
    attributes: Vec<KeyValue>,
    error: Option<String>,
}

impl Span {
    /// The span that stands for a whole request as its server sees it: that of `context` itself.
    #[must_use]
    pub fn server(
        context: &TraceContext,
        name: impl Into<Cow<'static, str>>,
        time: (Instant, Instant),
    ) -> Self {
        Self {
            name: name.into(),
            kind: SpanKind::Server,
            id: context.span_id(),
            parent: context.parent(),
            remote: context.parent().is_some(),
            time,
            attributes: Vec::new(),
            error: None,
        }
    }

    /// The span of `context`, a request of ours to another process.
    #[must_use]
    pub fn client(
        context: &TraceContext,
        name: impl Into<Cow<'static, str>>,
        time: (Instant, Instant),
    ) -> Self {
        Self::of_ours(SpanKind::Client, context, name, time)
    }

    /// The span of `context`, a part of a request within this process.
    #[must_use]
    pub fn part(
        context: &TraceContext,
        name: impl Into<Cow<'static, str>>,
        time: (Instant, Instant),
    ) -> Self {
        Self::of_ours(SpanKind::Internal, context, name, time)
    }

    /// The span of `context`, whose parent is of this process.
    fn of_ours(
        kind: SpanKind,
        context: &TraceContext,
        name: impl Into<Cow<'static, str>>,
        time: (Instant, Instant),
    ) -> Self {
        Self {
            kind,
            remote: false,
            ..Self::server(context, name, time)
        }
    }

    /// A step within this span.
    #[must_use]
    pub fn step(&self, name: impl Into<Cow<'static, str>>, time: (Instant, Instant)) -> Self {
        Self {
            name: name.into(),
            kind: SpanKind::Internal,
            id: new_span(),
            parent: Some(self.id),
            remote: false,
            time,
            attributes: Vec::new(),
            error: None,
        }
    }

    /// With a fact.
    #[must_use]
    pub fn with(mut self, fact: KeyValue) -> Self {
        self.attributes.push(fact);
        self
    }

    /// With several facts.
    #[must_use]
    pub fn with_all(mut self, facts: impl IntoIterator<Item = KeyValue>) -> Self {
        self.attributes.extend(facts);
        self
    }

    /// It failed; `error` is one of few short names.
    #[must_use]
    pub fn failed(mut self, error: Option<&str>) -> Self {
        if let Some(error) = error {
            self.attributes
                .push(KeyValue::new("error.type", error.to_owned()));
            self.error = Some(error.to_owned());
        }
        self
    }
}

/// The two clocks at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clocks {
    pub(crate) monotonic: Instant,
    pub(crate) wall: SystemTime,
}

impl Clocks {
    /// What the wall's clock showed at a moment.
    fn wall_at(self, moment: Instant) -> SystemTime {
        match self.monotonic.checked_duration_since(moment) {
            Some(before) => self.wall - before,
            None => self.wall + moment.saturating_duration_since(self.monotonic),
        }
    }
}

/// Spans of one trace, as an exporter takes them.
pub(crate) fn export(
    context: &TraceContext,
    scope: &InstrumentationScope,
    clocks: Clocks,
    spans: Vec<Span>,
) -> Vec<SpanData> {
    let data = |span: Span| SpanData {
        span_context: context.context_of(span.id),
        parent_span_id: span.parent.unwrap_or(SpanId::INVALID),
        parent_span_is_remote: span.remote,
        span_kind: span.kind,
        name: span.name,
        start_time: clocks.wall_at(span.time.0),
        end_time: clocks.wall_at(span.time.1.max(span.time.0)),
        attributes: span.attributes,
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status: span.error.map_or(Status::Unset, Status::error),
        instrumentation_scope: scope.clone(),
    };
    spans.into_iter().map(data).collect()
}

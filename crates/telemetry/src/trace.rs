//! W3C trace context: which trace a request belongs to, and whether it is recorded.
//!
//! What is not exactly as the recommendation says is taken for absent, as it demands: a new trace
//! begins. (<https://www.w3.org/TR/trace-context/>)

use std::str::FromStr;

use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};

/// The longest `tracestate` that is passed on, in bytes, and its most entries.
const LONGEST_STATE: usize = 512;
const MOST_ENTRIES: usize = 32;
/// `00-` + 32 + `-` + 16 + `-` + 2.
const LENGTH: usize = 55;

/// Which traces that begin here are recorded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampler {
    /// How many of them, 0 to 1. Traces that began elsewhere are recorded where their beginner says so.
    pub ratio: f64,
    /// Whether there is anybody to tell.
    pub exporting: bool,
}

/// A place in a trace: that of one span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceContext {
    trace: TraceId,
    span: SpanId,
    /// The span that this one is part of, of another process.
    parent: Option<SpanId>,
    sampled: bool,
    /// Whether anybody is told of this span.
    told: bool,
    state: TraceState,
}

impl TraceContext {
    /// A request's place: part of the trace that its headers name, or of a new one.
    #[must_use]
    pub fn begin(parent: Option<&str>, state: Option<&str>, sampler: Sampler) -> Self {
        if let Some(parent) = parent.and_then(Parent::parse) {
            return Self {
                trace: parent.trace,
                // Whoever tells nobody of its span must not stand between two that do.
                span: if sampler.exporting {
                    new_span()
                } else {
                    parent.span
                },
                parent: Some(parent.span),
                sampled: parent.sampled,
                told: sampler.exporting,
                state: state.map(read_state).unwrap_or_default(),
            };
        }
        let trace = TraceId::from(rand::random_range(1..=u128::MAX));
        Self {
            trace,
            span: new_span(),
            parent: None,
            sampled: sampler.exporting && is_drawn(trace, sampler.ratio),
            told: sampler.exporting,
            state: TraceState::default(),
        }
    }

    /// The place of another process's request of this one; `None` where it names no trace or the trace
    /// is not recorded.
    #[must_use]
    pub fn accept(parent: &str, state: &str, sampler: Sampler) -> Option<Self> {
        if parent.is_empty() {
            return None;
        }
        let place = Self::begin(Some(parent), Some(state), sampler);
        Some(place).filter(|place| place.sampled && place.parent.is_some())
    }

    /// A further span's place, as part of this one's.
    #[must_use]
    pub fn child(&self) -> Self {
        if !self.told {
            return self.clone();
        }
        Self {
            span: new_span(),
            parent: Some(self.span),
            ..self.clone()
        }
    }

    /// Whether spans of it are recorded.
    #[must_use]
    pub const fn is_sampled(&self) -> bool {
        self.sampled
    }

    /// The trace's name, 32 hexadecimal digits.
    #[must_use]
    pub fn trace_id(&self) -> String {
        self.trace.to_string()
    }

    /// As others are told of it.
    #[must_use]
    pub fn traceparent(&self) -> String {
        let flags = u8::from(self.sampled);
        format!("00-{}-{}-{flags:02x}", self.trace, self.span)
    }

    /// What goes with it.
    #[must_use]
    pub fn tracestate(&self) -> String {
        self.state.header()
    }

    /// This span's own name.
    #[must_use]
    pub const fn span_id(&self) -> SpanId {
        self.span
    }

    /// The name of the span that it is part of.
    #[must_use]
    pub const fn parent(&self) -> Option<SpanId> {
        self.parent
    }

    /// This place, or another span's in the same trace, as the exporter takes it.
    #[must_use]
    pub fn context_of(&self, span: SpanId) -> SpanContext {
        let flags = TraceFlags::default().with_sampled(self.sampled);
        SpanContext::new(self.trace, span, flags, false, self.state.clone())
    }
}

/// A fresh name.
#[must_use]
pub fn new_span() -> SpanId {
    SpanId::from(rand::random_range(1..=u64::MAX))
}

/// As OpenTelemetry's ratio sampler draws, so that all that see the trace draw alike.
fn is_drawn(trace: TraceId, ratio: f64) -> bool {
    let bytes = trace.to_bytes();
    let mut low = [0; 8];
    low.copy_from_slice(&bytes[8..]);
    let bound = (ratio.clamp(0.0, 1.0) * (1_u64 << 63) as f64) as u64;
    u64::from_be_bytes(low) >> 1 < bound
}

fn read_state(state: &str) -> TraceState {
    let fits = state.len() <= LONGEST_STATE && state.split(',').count() <= MOST_ENTRIES;
    let read = if fits {
        TraceState::from_str(state).ok()
    } else {
        None
    };
    read.unwrap_or_default()
}

struct Parent {
    trace: TraceId,
    span: SpanId,
    sampled: bool,
}

impl Parent {
    fn parse(text: &str) -> Option<Self> {
        let fits = match text.get(..3)? {
            "00-" => text.len() == LENGTH,
            // Versions to come may go on behind these fields.
            _ => text.len() == LENGTH || text.as_bytes().get(LENGTH) == Some(&b'-'),
        };
        let mut fields = text.get(..LENGTH).filter(|_| fits)?.split('-');
        let mut field = |digits: usize| {
            fields
                .next()
                .filter(|f| f.len() == digits)
                .filter(|f| f.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')))
        };
        let (version, trace, span, flags) = (field(2)?, field(32)?, field(16)?, field(2)?);
        let trace = TraceId::from_hex(trace).ok()?;
        let span = SpanId::from_hex(span).ok()?;
        let flags = u8::from_str_radix(flags, 16).ok()?;
        let valid = version != "ff" && trace != TraceId::INVALID && span != SpanId::INVALID;
        valid.then_some(Self {
            trace,
            span,
            sampled: flags & 1 == 1,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    const ALL: Sampler = Sampler {
        ratio: 1.0,
        exporting: true,
    };

    #[test]
    fn a_request_joins_the_trace_that_its_header_names() {
        let context = TraceContext::begin(Some(GOOD), Some("a=1,b=2"), ALL);
        assert_eq!(context.trace_id(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(
            context.parent(),
            SpanId::from_hex("00f067aa0ba902b7").ok(),
            "the client's span"
        );
        assert!(context.is_sampled());
        assert_eq!(context.tracestate(), "a=1,b=2");
        assert_ne!(context.traceparent(), GOOD, "it is a span of its own");
        assert!(
            context
                .traceparent()
                .starts_with("00-4bf92f3577b34da6a3ce929d0e0e4736-")
        );
        let next =
            TraceContext::accept(&context.traceparent(), &context.tracestate(), ALL).unwrap();
        assert_eq!(next.parent(), Some(context.span_id()));
        assert_eq!(next.trace_id(), context.trace_id());
        assert_eq!(next.tracestate(), "a=1,b=2");
    }

    #[test]
    fn what_is_not_exactly_a_traceparent_begins_a_new_trace() {
        let zero_trace = "00-00000000000000000000000000000000-00f067aa0ba902b7-01";
        let zero_span = "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01";
        for bad in [
            "",
            "00",
            "garbage",
            zero_trace,
            zero_span,
            &GOOD.replacen("00-", "ff-", 1),
            &GOOD.to_uppercase(),
            &GOOD.replacen("00-", "0-", 1),
            &format!("{GOOD}-more"),
            &format!("{GOOD}0"),
            &format!(" {GOOD}"),
            &GOOD[..54],
            &GOOD.replace('-', "_"),
            &GOOD.replace("-01", "-0g"),
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b-701",
            &"é".repeat(40),
        ] {
            let context = TraceContext::begin(Some(bad), Some("a=1"), ALL);
            assert_eq!(context.parent(), None, "{bad:?}");
            assert_ne!(context.trace_id(), "4bf92f3577b34da6a3ce929d0e0e4736");
            assert_eq!(context.tracestate(), "", "it belongs to the other trace");
            assert_eq!(TraceContext::accept(bad, "", ALL), None);
        }
        // A version to come.
        let next = format!("{}-more", GOOD.replacen("00-", "01-", 1));
        assert!(
            TraceContext::begin(Some(&next), None, ALL)
                .parent()
                .is_some()
        );
    }

    #[test]
    fn whoever_began_a_trace_says_whether_it_is_recorded() {
        let not = GOOD.replace("-01", "-00");
        let context = TraceContext::begin(Some(&not), None, ALL);
        assert!(!context.is_sampled());
        assert_eq!(TraceContext::accept(&context.traceparent(), "", ALL), None);
        let none = Sampler { ratio: 0.0, ..ALL };
        assert!(TraceContext::begin(Some(GOOD), None, none).is_sampled());
        assert!(!TraceContext::begin(None, None, none).is_sampled());
        assert!(TraceContext::begin(None, None, ALL).is_sampled());
        let deaf = Sampler {
            exporting: false,
            ..ALL
        };
        assert!(!TraceContext::begin(None, None, deaf).is_sampled());
        // It records nothing, so it hands on what it was given.
        let passed = TraceContext::begin(Some(GOOD), None, deaf);
        assert_eq!(passed.traceparent(), GOOD);
        assert_eq!(passed.child().traceparent(), GOOD);
    }

    #[test]
    fn about_the_configured_part_of_traces_is_recorded() {
        let some = Sampler { ratio: 0.25, ..ALL };
        let drawn = (0..4000).filter(|_| TraceContext::begin(None, None, some).is_sampled());
        let drawn = drawn.count();
        assert!((800..1200).contains(&drawn), "{drawn} of 4000");
    }

    #[test]
    fn a_tracestate_that_is_too_long_is_dropped() {
        let long = format!("a={}", "x".repeat(600));
        let many = vec!["a=1"; 33].join(",");
        for bad in [long.as_str(), many.as_str(), "not a state"] {
            let context = TraceContext::begin(Some(GOOD), Some(bad), ALL);
            assert_eq!(context.tracestate(), "", "{bad}");
            assert!(context.is_sampled(), "the parent holds all the same");
        }
    }

    proptest! {
        #[test]
        fn no_header_makes_it_panic(parent in ".{0,80}", state in ".{0,80}") {
            let _ = TraceContext::begin(Some(&parent), Some(&state), ALL);
        }

        #[test]
        fn what_is_written_is_read_again(trace in 1_u128.., span in 1_u64.., sampled: bool) {
            let flags = u8::from(sampled);
            let text = format!("00-{trace:032x}-{span:016x}-{flags:02x}");
            let context = TraceContext::begin(Some(&text), None, Sampler { exporting: false, ..ALL });
            prop_assert_eq!(context.traceparent(), text);
        }
    }
}

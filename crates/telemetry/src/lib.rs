//! What is told of requests: the times of one, what is derived of them, the trace that it belongs to,
//! and the way of both to a collector.
//!
//! Owns the definitions: TTFT, TPOT, ITL and each stage's time are computed in [`times`] and nowhere
//! else, so metrics, logs and spans agree. [`times`], [`gaps`], [`buckets`] and [`trace`] are pure.
//! Refuses to hold anybody up: what a collector does not take in time is dropped, and counted.
//!
//! What must hold: nothing here knows what a client or a model said.
#![forbid(unsafe_code)]

pub mod buckets;
pub mod gaps;
pub mod genai;
pub mod otlp;
pub mod span;
#[cfg(feature = "testing")]
pub mod testing;
pub mod times;
pub mod trace;

pub use otlp::{Spans, Telemetry, TelemetryError};
pub use times::{PromptTimes, RequestTimes, Stage};
pub use trace::{Sampler, TraceContext};

//! What a streamed answer's events say and when, and what follows from that: TTFT, TPOT, ITL.
//!
//! Definitions, all in one place:
//! - *first token*: the first event with text of an answer, of reasoning or of a tool call, or whose own
//!   usage counts a token, as where a parser holds text back.
//! - *gap*: the time between one event with tokens and the next.
//! - *ITL*: a gap divided by the tokens that came with its end, once for each of them. Their number is in the
//!   event's own usage where the server offers that; else the last usage is spread evenly over the events.
//! - *TPOT*: from first to last token, divided by the tokens that came after the first event.

mod chunk;
mod meter;
mod sse;

pub(crate) use chunk::message;
pub(crate) use meter::Meter;
pub use meter::{AnswerTimes, StreamError, TokenSource};
pub use sse::{EventTooLong, LONGEST_EVENT};

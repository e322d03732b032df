//! How model families mark reasoning and tool calls in their text.
//!
//! Owns: recognising a family ([`Dialect`]), turning an answer's text into content, reasoning and calls while it
//! comes ([`Parser`]), holding the decoding to valid calls ([`Grammar`]), and checking a request's `tools` and
//! `tool_choice` ([`Tools`], [`ToolChoice`]). Refuses: I/O, clocks, ids, knowing any API's messages, and guessing: a
//! family that is not known has no calls.
//!
//! The families, their formats and where these are documented: the modules of `family`, and `docs/dialects.md`.
#![forbid(unsafe_code)]

mod calls;
mod choice;
mod delta;
mod dialect;
mod family;
mod frame;
mod grammar;
mod json;
mod kind;
mod lark;
mod marker;
mod object;
mod parser;
mod python;
mod run;
mod schema;
mod shape;
mod step;
mod thinking;
mod tools;
mod value;

pub use choice::{Must, ToolChoice};
pub use delta::Delta;
pub use dialect::{Dialect, UnknownDialect};
pub use grammar::{CannotConstrain, Decoding, Grammar};
pub use parser::{MAX_CALL, Options, Parser, Release};
pub use shape::Shape;
pub use tools::{MAX_DESCRIPTION, MAX_NAME, MAX_PARAMETERS, MAX_TOOLS, Tool, Tools, ToolsError};

// Of the fuzz target in the tests.
#[cfg(test)]
use bolero as _;

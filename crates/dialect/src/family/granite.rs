//! `<|tool_call|>[{"name": "f", "arguments": {...}}, ...]`, all calls in one list.
//!
//! Granite 3.0 to 3.3; 3.1 may write `<tool_call>` for the token. Documented in IBM's chat templates and
//! vLLM's `granite` parser.

use crate::family::Family;
use crate::frame::{Arguments, Frame, Piece};
use crate::step::{Go, Step};

/// A list of calls in JSON; [`IN_LIST`] stands behind its opening bracket.
pub(super) static LIST: &[Step] = &[
    Step::Space,
    Step::Text("["),
    Step::Object(&[]),
    Step::Space,
    Step::Branch(&[(",", Go::To(IN_LIST)), ("]", Go::Leave)], Go::Break),
];

pub(super) const IN_LIST: usize = 2;

/// One of the list's calls.
pub(super) const CALL: &[Piece] = &[
    Piece::Text("{\"name\": \""),
    Piece::Name,
    Piece::Text("\", \"arguments\": "),
    Piece::Arguments,
    Piece::Text("}"),
];

pub(crate) static GRANITE: Family = Family {
    name: "granite",
    steps: LIST,
    opens: &[("<|tool_call|>", 0), ("<tool_call>", 0)],
    bare: &[],
    markers: &["<|tool_call|>"],
    frame: Frame {
        before: &[Piece::Marker("<|tool_call|>"), Piece::Text("[")],
        call: CALL,
        between: Some(", "),
        after: &[Piece::Text("]")],
        arguments: Arguments::Json,
    },
    detect: |template| template.contains("<|tool_call|>"),
};

//! `functools[{"name": "f", "arguments": {...}}, ...]`, all calls in one list.
//!
//! Phi-4-mini, as its model card and vLLM's `phi4_mini_json` parser have it. Microsoft's own template does
//! not say `functools`: there the dialect has to be named.

use crate::family::Family;
use crate::family::granite::{CALL, IN_LIST, LIST};
use crate::frame::{Arguments, Frame, Piece};

pub(crate) static PHI4_MINI: Family = Family {
    name: "phi4_mini",
    steps: LIST,
    opens: &[("functools[", IN_LIST)],
    bare: &[],
    markers: &[],
    frame: Frame {
        before: &[Piece::Marker("functools[")],
        call: CALL,
        between: Some(", "),
        after: &[Piece::Text("]")],
        arguments: Arguments::Json,
    },
    detect: |template| template.contains("functools["),
};

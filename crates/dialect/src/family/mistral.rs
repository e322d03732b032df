//! `[TOOL_CALLS] [{"name": "f", "arguments": {...}}, ...]`, or from mistral-common's tokenizers of version 11 on
//! `[TOOL_CALLS]f[ARGS]{...}` for each call (with `[CALL_ID]id` behind the name in version 11 itself).
//!
//! Documented in mistral-common and by vLLM's `mistral` parser. Both forms are read whichever
//! family is named; which one a model is held to follows from whether its template knows `[ARGS]`.

use crate::family::Family;
use crate::family::granite::CALL;
use crate::frame::{Arguments, Frame, Piece};
use crate::step::{Go, Step};

static STEPS: &[Step] = &[
    Step::Space,
    Step::Branch(&[("[", Go::To(2))], Go::To(5)),
    // The list.
    Step::Object(&[]),
    Step::Space,
    Step::Branch(&[(",", Go::To(2)), ("]", Go::Leave)], Go::Break),
    // The name.
    Step::Name,
    Step::Branch(
        &[
            ("[CALL_ID]", Go::To(7)),
            ("[ARGS]", Go::To(9)),
            ("{", Go::Peek(10)),
        ],
        Go::Break,
    ),
    Step::CallId,
    Step::Text("[ARGS]"),
    Step::Space,
    Step::Start,
    Step::Arguments,
    Step::End,
    Step::Space,
    Step::Branch(&[], Go::Leave),
];

const OPENS: &[(&str, usize)] = &[("[TOOL_CALLS]", 0)];
const MARKERS: &[&str] = &["[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"];

/// From version 11 on.
pub(crate) static MISTRAL: Family = Family {
    name: "mistral",
    steps: STEPS,
    opens: OPENS,
    bare: &[],
    markers: MARKERS,
    frame: Frame {
        before: &[],
        call: &[
            Piece::Marker("[TOOL_CALLS]"),
            Piece::Name,
            Piece::Marker("[ARGS]"),
            Piece::Arguments,
        ],
        between: Some(""),
        after: &[],
        arguments: Arguments::Json,
    },
    detect: |template| template.contains("[TOOL_CALLS]") && template.contains("[ARGS]"),
};

/// Before version 11.
pub(crate) static MISTRAL_LIST: Family = Family {
    name: "mistral_list",
    steps: STEPS,
    opens: OPENS,
    bare: &[],
    markers: MARKERS,
    frame: Frame {
        before: &[Piece::Marker("[TOOL_CALLS]"), Piece::Text(" [")],
        call: CALL,
        between: Some(", "),
        after: &[Piece::Text("]")],
        arguments: Arguments::Json,
    },
    detect: |template| template.contains("[TOOL_CALLS]"),
};

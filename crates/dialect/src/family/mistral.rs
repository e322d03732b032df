//! `[TOOL_CALLS] [{"name": "f", "arguments": {...}}, ...]`, or from mistral-common's tokenizers of version 11 on
//! `[TOOL_CALLS]f[ARGS]{...}` for each call (with `[CALL_ID]id` behind the name in version 11 itself).
//!
//! Documented in mistral-common and by vLLM's `mistral` parser. Both forms are read; which one a model is held
//! to follows from its template.

use crate::family::Family;
use crate::step::{Go, Step};

pub(crate) static MISTRAL: Family = Family {
    name: "mistral",
    steps: &[
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
    ],
    opens: &[("[TOOL_CALLS]", 0)],
    bare: &[],
    markers: &["[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"],
    detect: |template| template.contains("[TOOL_CALLS]"),
};

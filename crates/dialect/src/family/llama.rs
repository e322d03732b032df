//! `{"name": "f", "parameters": {...}}` as the whole answer, perhaps behind `<|python_tag|>`; several with `; ` between.
//!
//! Llama 3.1 to 3.3; documented in Meta's prompt formats and by vLLM's `llama3_json` parser. An answer that begins
//! with an object whose first member is neither `name` nor `type` is content from there on. Calls of built-in
//! tools (`brave_search.call(...)`) are content.

use crate::family::Family;
use crate::frame::{Arguments, Frame, Piece};
use crate::step::{Go, Step};

pub(crate) static LLAMA3_JSON: Family = Family {
    name: "llama3_json",
    steps: &[
        Step::Object(&["name", "type"]),
        Step::Space,
        Step::Branch(&[(";", Go::To(0))], Go::Leave),
    ],
    opens: &[("<|python_tag|>", 0)],
    bare: &[("{", 0)],
    markers: &["<|python_tag|>"],
    frame: Frame {
        before: &[],
        call: &[
            Piece::Text("{\"name\": \""),
            Piece::Name,
            Piece::Text("\", \"parameters\": "),
            Piece::Arguments,
            Piece::Text("}"),
        ],
        between: None,
        after: &[],
        arguments: Arguments::Json,
    },
    detect: |template| {
        template.contains("<|python_tag|>")
            || template.contains("\"parameters\": dictionary of argument name")
    },
};

//! `<tool_call>\n{"name": "f", "arguments": {...}}\n</tool_call>`, one pair of tags for each call.
//!
//! Hermes 2 Pro and later, Qwen2.5, Qwen3, QwQ, Granite 4, SmolLM3. Documented on the model cards of
//! NousResearch/Hermes-2-Pro and in Qwen's guide on function calling. A missing closing tag is forgiven.

use crate::family::Family;
use crate::frame::{Arguments, Frame, Piece};
use crate::step::{Go, Step};

pub(crate) static HERMES: Family = Family {
    name: "hermes",
    steps: &[
        Step::Space,
        Step::Object(&[]),
        Step::Space,
        Step::Branch(&[("</tool_call>", Go::Leave)], Go::Leave),
    ],
    opens: &[("<tool_call>", 0)],
    bare: &[],
    markers: &["<tool_call>", "</tool_call>"],
    frame: Frame {
        before: &[],
        call: &[
            Piece::Marker("<tool_call>"),
            Piece::Text("\n{\"name\": \""),
            Piece::Name,
            Piece::Text("\", \"arguments\": "),
            Piece::Arguments,
            Piece::Text("}\n"),
            Piece::Marker("</tool_call>"),
        ],
        between: Some("\n"),
        after: &[],
        arguments: Arguments::Json,
    },
    detect: |template| template.contains("<tool_call>"),
};

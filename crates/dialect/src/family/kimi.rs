//! `<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{...}<|tool_call_end|>`
//! for each call, `<|tool_calls_section_end|>`.
//!
//! Kimi K2; documented in its guide on tool calls and chat template. `functions.f:0` is the call's id as well, and
//! the template writes it out again. A missing last marker is forgiven.

use crate::family::Family;
use crate::frame::{Arguments, Frame, Piece};
use crate::step::{Go, Step};

pub(crate) static KIMI_K2: Family = Family {
    name: "kimi_k2",
    steps: &[
        Step::Space,
        Step::Text("<|tool_call_begin|>"),
        Step::Space,
        Step::Id,
        Step::Space,
        Step::Text("<|tool_call_argument_begin|>"),
        Step::Space,
        Step::Start,
        Step::Arguments,
        Step::End,
        Step::Space,
        Step::Text("<|tool_call_end|>"),
        Step::Space,
        Step::Branch(
            &[
                ("<|tool_call_begin|>", Go::To(2)),
                ("<|tool_calls_section_end|>", Go::Leave),
            ],
            Go::Leave,
        ),
    ],
    opens: &[("<|tool_calls_section_begin|>", 0)],
    bare: &[],
    markers: &[
        "<|tool_calls_section_begin|>",
        "<|tool_calls_section_end|>",
        "<|tool_call_begin|>",
        "<|tool_call_argument_begin|>",
        "<|tool_call_end|>",
    ],
    frame: Frame {
        before: &[Piece::Marker("<|tool_calls_section_begin|>")],
        call: &[
            Piece::Marker("<|tool_call_begin|>"),
            Piece::Text("functions."),
            Piece::Name,
            Piece::Text(":"),
            Piece::Number,
            Piece::Marker("<|tool_call_argument_begin|>"),
            Piece::Arguments,
            Piece::Marker("<|tool_call_end|>"),
        ],
        between: Some(""),
        after: &[Piece::Marker("<|tool_calls_section_end|>")],
        arguments: Arguments::Json,
    },
    detect: |template| template.contains("<|tool_calls_section_begin|>"),
};

//! `<tool_call>\n<function=f>\n<parameter=k>\nv\n</parameter>\n</function>\n</tool_call>`, strings as they are and other
//! values in JSON; the function's schema says which is which.
//!
//! Qwen3-Coder and Qwen3.5; documented in their chat templates and by vLLM's `qwen3_coder` parser. Missing
//! `<tool_call>` tags are forgiven. A string that contains `</parameter>` cannot be written: it ends there.

use crate::family::Family;
use crate::frame::{Arguments, Frame, Piece};
use crate::step::{Go, Step};

pub(crate) static QWEN3_CODER: Family = Family {
    name: "qwen3_coder",
    steps: &[
        Step::Space,
        Step::Text("<function="),
        Step::Name,
        Step::Text(">"),
        Step::Start,
        Step::Open,
        Step::Space,
        Step::Branch(
            &[("<parameter=", Go::To(8)), ("</function>", Go::To(11))],
            Go::Break,
        ),
        Step::Key(">"),
        Step::Value("</parameter>", true),
        Step::Go(6),
        Step::Close,
        Step::End,
        Step::Space,
        Step::Branch(&[("</tool_call>", Go::Leave)], Go::Leave),
    ],
    opens: &[("<tool_call>", 0), ("<function=", 2)],
    bare: &[],
    markers: &["<tool_call>", "</tool_call>"],
    frame: Frame {
        before: &[],
        call: &[
            Piece::Marker("<tool_call>"),
            Piece::Text("\n<function="),
            Piece::Name,
            Piece::Text(">\n"),
            Piece::Arguments,
            Piece::Text("</function>\n"),
            Piece::Marker("</tool_call>"),
        ],
        between: Some("\n"),
        after: &[],
        arguments: Arguments::Tags {
            before: &[Piece::Text("<parameter=")],
            between: &[Piece::Text(">\n")],
            inside: "\n",
            closing: Piece::Text("</parameter>"),
            behind: "\n",
        },
    },
    detect: |template| template.contains("<function=") && template.contains("<parameter="),
};

//! `<tool_call>f\n<arg_key>k</arg_key>\n<arg_value>v</arg_value>\n</tool_call>`, strings as they are and other values in
//! JSON; the function's schema says which is which.
//!
//! GLM-4.5 and 4.6; documented in Z.ai's chat template and by vLLM's `glm45` parser. A string that contains
//! `</arg_value>` cannot be written: it ends there.

use crate::family::Family;
use crate::frame::{Arguments, Frame, Piece};
use crate::step::{Go, Step};

pub(crate) static GLM45: Family = Family {
    name: "glm45",
    steps: &[
        Step::Space,
        Step::Name,
        Step::Space,
        Step::Start,
        Step::Open,
        Step::Branch(
            &[("<arg_key>", Go::To(6)), ("</tool_call>", Go::To(12))],
            Go::Break,
        ),
        Step::Key("</arg_key>"),
        Step::Space,
        Step::Text("<arg_value>"),
        Step::Value("</arg_value>", false),
        Step::Space,
        Step::Go(5),
        Step::Close,
        Step::End,
        Step::Space,
        Step::Branch(&[], Go::Leave),
    ],
    opens: &[("<tool_call>", 0)],
    bare: &[],
    markers: &[
        "<tool_call>",
        "</tool_call>",
        "<arg_key>",
        "</arg_key>",
        "<arg_value>",
        "</arg_value>",
    ],
    frame: Frame {
        before: &[],
        call: &[
            Piece::Marker("<tool_call>"),
            Piece::Name,
            Piece::Text("\n"),
            Piece::Arguments,
            Piece::Marker("</tool_call>"),
        ],
        between: Some("\n"),
        after: &[],
        arguments: Arguments::Tags {
            before: &[Piece::Marker("<arg_key>")],
            between: &[
                Piece::Marker("</arg_key>"),
                Piece::Text("\n"),
                Piece::Marker("<arg_value>"),
            ],
            inside: "",
            closing: Piece::Marker("</arg_value>"),
            behind: "\n",
        },
    },
    detect: |template| template.contains("<arg_key>"),
};

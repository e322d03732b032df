//! `[f(a=1, b="x"), g()]` as the whole answer; Llama 4 may write `<|python_start|>` and `<|python_end|>` around it.
//!
//! Llama 3.2 and 4, ToolACE; documented in Meta's prompt formats and by vLLM's `pythonic` and `llama4_pythonic`
//! parsers. Arguments are literals of Python: strings, numbers, `True`, `False`, `None`, lists and dictionaries.

use crate::family::Family;
use crate::frame::{Arguments, Frame, Piece};
use crate::step::{Go, Step};

pub(crate) static PYTHONIC: Family = Family {
    name: "pythonic",
    steps: &[
        Step::Space,
        Step::Text("["),
        Step::Space,
        Step::Name,
        Step::Space,
        Step::Text("("),
        Step::Start,
        Step::Open,
        Step::Space,
        Step::Branch(&[(")", Go::To(14))], Go::To(10)),
        Step::Key("="),
        Step::Python,
        Step::Space,
        Step::Branch(&[(",", Go::To(8)), (")", Go::To(14))], Go::Break),
        Step::Close,
        Step::End,
        Step::Space,
        Step::Branch(&[(",", Go::To(2)), ("]", Go::To(18))], Go::Break),
        Step::Space,
        Step::Branch(&[("<|python_end|>", Go::Leave)], Go::Leave),
    ],
    opens: &[("<|python_start|>", 0)],
    bare: &[("[", 0)],
    markers: &["<|python_start|>", "<|python_end|>"],
    frame: Frame {
        before: &[Piece::Text("[")],
        call: &[
            Piece::Name,
            Piece::Text("("),
            Piece::Arguments,
            Piece::Text(")"),
        ],
        between: Some(", "),
        after: &[Piece::Text("]")],
        arguments: Arguments::Python,
    },
    detect: |template| template.contains("<|python_start|>") || template.contains("[func_name1("),
};

//! V3 and R1: `<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f`, a line break, the arguments in a
//! fence of three backquotes and `json`, `<｜tool▁call▁end｜>` for each call, `<｜tool▁calls▁end｜>`.
//! V3.1: `<｜tool▁call▁begin｜>f<｜tool▁sep｜>{...}<｜tool▁call▁end｜>` in the same brackets.
//!
//! Documented in DeepSeek's chat templates and by vLLM's `deepseek_v3` and `deepseek_v31` parsers. A missing
//! first marker and a missing last one are forgiven.

use crate::family::Family;
use crate::frame::{Arguments, Frame, Piece};
use crate::step::{Go, Step};

const CALLS_BEGIN: &str = "<｜tool▁calls▁begin｜>";
const CALLS_END: &str = "<｜tool▁calls▁end｜>";
const BEGIN: &str = "<｜tool▁call▁begin｜>";
const END: &str = "<｜tool▁call▁end｜>";
const SEPARATOR: &str = "<｜tool▁sep｜>";
const MARKERS: &[&str] = &[CALLS_BEGIN, CALLS_END, BEGIN, END, SEPARATOR];

pub(crate) static DEEPSEEK_V3: Family = Family {
    name: "deepseek_v3",
    steps: &[
        Step::Space,
        Step::Text(BEGIN),
        Step::Text("function"),
        Step::Text(SEPARATOR),
        Step::Name,
        Step::Space,
        Step::Text("```json"),
        Step::Space,
        Step::Start,
        Step::Arguments,
        Step::End,
        Step::Space,
        Step::Text("```"),
        Step::Space,
        Step::Text(END),
        Step::Space,
        Step::Branch(&[(BEGIN, Go::To(2)), (CALLS_END, Go::Leave)], Go::Leave),
    ],
    opens: &[(CALLS_BEGIN, 0), (BEGIN, 2)],
    bare: &[],
    markers: MARKERS,
    frame: Frame {
        before: &[Piece::Marker(CALLS_BEGIN)],
        call: &[
            Piece::Marker(BEGIN),
            Piece::Text("function"),
            Piece::Marker(SEPARATOR),
            Piece::Name,
            Piece::Text("\n```json\n"),
            Piece::Arguments,
            Piece::Text("\n```"),
            Piece::Marker(END),
        ],
        between: Some("\n"),
        after: &[Piece::Marker(CALLS_END)],
        arguments: Arguments::Json,
    },
    detect: |template| template.contains(CALLS_BEGIN) && template.contains("```json"),
};

pub(crate) static DEEPSEEK_V31: Family = Family {
    name: "deepseek_v31",
    steps: &[
        Step::Space,
        Step::Text(BEGIN),
        Step::Name,
        Step::Text(SEPARATOR),
        Step::Space,
        Step::Start,
        Step::Arguments,
        Step::End,
        Step::Space,
        Step::Text(END),
        Step::Space,
        Step::Branch(&[(BEGIN, Go::To(2)), (CALLS_END, Go::Leave)], Go::Leave),
    ],
    opens: &[(CALLS_BEGIN, 0), (BEGIN, 2)],
    bare: &[],
    markers: MARKERS,
    frame: Frame {
        before: &[Piece::Marker(CALLS_BEGIN)],
        call: &[
            Piece::Marker(BEGIN),
            Piece::Name,
            Piece::Marker(SEPARATOR),
            Piece::Arguments,
            Piece::Marker(END),
        ],
        between: Some(""),
        after: &[Piece::Marker(CALLS_END)],
        arguments: Arguments::Json,
    },
    detect: |template| template.contains(CALLS_BEGIN),
};

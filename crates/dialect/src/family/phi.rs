//! `functools[{"name": "f", "arguments": {...}}, ...]`, all calls in one list.
//!
//! Phi-4-mini, as its model card and vLLM's `phi4_mini_json` parser have it. Microsoft's own template does
//! not say `functools`: there the dialect has to be named.

use crate::family::Family;
use crate::family::granite::{IN_LIST, LIST};

pub(crate) static PHI4_MINI: Family = Family {
    name: "phi4_mini",
    steps: LIST,
    opens: &[("functools[", IN_LIST)],
    bare: &[],
    markers: &[],
    detect: |template| template.contains("functools["),
};

//! The families, each with its syntax.

use crate::frame::Frame;
use crate::step::Step;

mod deepseek;
mod glm;
mod granite;
mod hermes;
mod kimi;
mod llama;
mod mistral;
mod phi;
mod pythonic;
mod qwen_coder;

/// How a family writes calls.
#[derive(Debug)]
pub(crate) struct Family {
    pub(crate) name: &'static str,
    /// Its syntax. The calls are over (`Go::Leave`) only where one is complete, and a call is complete
    /// (`Step::End`) with a character of its own.
    pub(crate) steps: &'static [Step],
    /// Texts that begin calls wherever they stand, and the step behind each.
    pub(crate) opens: &'static [(&'static str, usize)],
    /// Texts that begin calls at the answer's beginning only, and the step that reads them.
    pub(crate) bare: &'static [(&'static str, usize)],
    /// All texts of it that may be tokens of their own.
    pub(crate) markers: &'static [&'static str],
    /// What a grammar holds it to.
    pub(crate) frame: Frame,
    /// Whether a chat template is of this family.
    pub(crate) detect: fn(&str) -> bool,
}

/// In the order in which they are recognised: what has unmistakable markers first.
pub(crate) static TOOLS: &[&Family] = &[
    &kimi::KIMI_K2,
    &deepseek::DEEPSEEK_V3,
    &deepseek::DEEPSEEK_V31,
    &mistral::MISTRAL,
    &mistral::MISTRAL_LIST,
    &phi::PHI4_MINI,
    &glm::GLM45,
    &qwen_coder::QWEN3_CODER,
    &granite::GRANITE,
    &hermes::HERMES,
    &pythonic::PYTHONIC,
    &llama::LLAMA3_JSON,
];

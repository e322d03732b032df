//! The APIs: what clients ask, and what they are told. No I/O here.

pub(crate) mod answer;
pub(crate) mod anthropic;
pub(crate) mod budget;
pub(crate) mod constraint;
pub(crate) mod error;
pub(crate) mod form;
#[cfg(test)]
mod fuzz;
pub(crate) mod json;
pub(crate) mod logprobs;
pub(crate) mod openai;
pub(crate) mod params;
pub(crate) mod prompt;
pub(crate) mod request;
pub(crate) mod sampling;
pub(crate) mod script;
pub(crate) mod tools;
pub(crate) mod unsupported;
pub(crate) mod vllm;

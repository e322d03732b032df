//! OpenAI's API: what clients ask, and what they are told. No I/O here.

pub(crate) mod answer;
pub(crate) mod ask;
pub(crate) mod budget;
pub(crate) mod chat;
pub(crate) mod completions;
pub(crate) mod error;
pub(crate) mod logprobs;
pub(crate) mod params;
pub(crate) mod unsupported;

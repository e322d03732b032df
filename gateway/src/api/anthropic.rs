//! Anthropic's messages API.

pub(crate) mod answer;
pub(crate) mod content;
pub(crate) mod error;
pub(crate) mod events;
pub(crate) mod request;

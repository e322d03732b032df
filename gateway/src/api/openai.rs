//! OpenAI's APIs: chat completions, completions and responses.

pub(crate) mod chat;
pub(crate) mod chunks;
pub(crate) mod completions;
pub(crate) mod messages;
pub(crate) mod responses;
pub(crate) mod streaming;
pub(crate) mod whole;

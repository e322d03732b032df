//! HTTP/1 as it comes over a socket: hyper sees only what two readers cannot take for different
//! requests, and what is refused is refused with a reply.

mod framing;
mod guard;
mod head;
mod refusal;

pub(super) use guard::{Guard, Patience};
pub(super) use head::HeadLimits;
pub(super) use refusal::Refusal;

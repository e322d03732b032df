//! HTTP: connections, the layers around every reply, and the paths.

mod body;
mod catch;
mod envelope;
mod observe;
mod patience;
pub(crate) mod reply;
mod request_id;
mod routes;
mod server;
mod sse;
mod target;

pub(crate) use routes::ready;
pub(crate) use server::{Limits, serve};
pub(crate) use target::percent_decoded;

//! HTTP: connections, the layers around every reply, and the paths.

mod body;
mod catch;
mod observe;
mod patience;
mod reply;
mod request_id;
mod routes;
mod server;
mod sse;
mod target;
mod trace_context;

pub(crate) use server::{Limits, serve};

//! HTTP: connections, the layers around every reply, and the paths.

mod addresses;
mod body;
mod bounds;
mod catch;
mod connection;
mod cors;
mod envelope;
mod foreign;
mod http1;
mod http3;
mod inflate;
mod layers;
mod link;
mod observe;
mod open;
mod pace;
mod patience;
mod prefixed;
pub(crate) mod reply;
mod reply_headers;
mod request_id;
mod room;
mod routes;
mod server;
mod sse;
mod target;
mod tls;
mod trace_context;
mod unread;

pub(crate) use foreign::is_local;
pub(crate) use layers::answers;
pub(crate) use open::{FollowsLimits, OpenError, Opened, open};
pub(crate) use routes::ready;
pub(crate) use server::{Stages, serve};
pub(crate) use target::percent_decoded;
pub use tls::TlsError;
pub(crate) use tls::{NextCertificate, Tls, Whom};

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod memory;

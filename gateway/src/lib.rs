//! The front door: HTTP in, pairs and leases out.
//!
//! Owns client connections, the reading of requests (JSON, chat template, tokens) and the streams to
//! decode workers. The rules, who waits and who goes where, are [`tandem_core::front_door`]'s; the
//! pages are the workers'.
//!
//! **Architecture Invariant:** nobody is let in without the key that the configuration asks for, and no key
//! goes further than the layer that asks for it (see `auth`).
//!
//! **Architecture Invariant:** no request is dispatched before a decode worker has granted its lease,
//! and none ends without the door and that worker being told (see `door` and `relay`). What a client
//! or a model says is never logged.
#![forbid(unsafe_code)]

mod admin;
mod api;
mod app;
mod auth;
mod caller;
mod clock;
mod door;
mod generate;
mod http;
mod journal;
mod live;
mod metrics;
mod parts;
mod reading;
mod relay;
mod reload;
mod requests;
mod roster;
mod run;
mod status;
mod workers;

pub use auth::AuthError;
pub use http::TlsError;
pub use reload::Origin;
pub use run::{Gateway, StartError, Started, run};

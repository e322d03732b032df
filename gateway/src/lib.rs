//! The front door: HTTP in, pairs and leases out.
//!
//! Owns client connections, the reading of requests (JSON, chat template, tokens) and the streams to
//! decode workers. The rules, who waits and who goes where, are [`tandem_core::front_door`]'s; the
//! pages are the workers'.
//!
//! **Architecture Invariant:** no request is dispatched before a decode worker has granted its lease,
//! and none ends without the door and that worker being told (see `door` and `relay`). What a client
//! or a model says is never logged.
#![forbid(unsafe_code)]

mod api;
mod app;
mod caller;
mod clock;
mod door;
mod generate;
mod http;
mod journal;
mod metrics;
mod reading;
mod relay;
mod roster;
mod run;
mod status;
mod workers;

pub use http::TlsError;
pub use run::{StartError, run};

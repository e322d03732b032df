//! The messenger beside an engine: it leases pages, pushes them, counts them, and makes requests
//! ready.
//!
//! A worker is an engine, an arena, a fabric and one of two tasks: a `decode` task that owns a
//! [`tandem_core::decode::DecodeAgent`], or a `prefill` task that owns a
//! [`tandem_core::prefill::PrefillAgent`] with the `watcher` thread beside it. The tasks carry out
//! what the agents decide and decide nothing themselves.
//!
//! Order of the end: take no new requests, let the others finish or cancel them, wait for drains,
//! close the fabric, close QUIC.
#![forbid(unsafe_code)]

mod cache;
mod clock;
mod decode;
mod deferred;
mod engines;
mod fabrics;
mod failure;
mod load;
pub mod measure;
mod peers;
mod placement;
mod prefill;
mod run;
mod serve;
mod start;
mod watcher;

pub use engines::run_engine;
pub use run::run;
pub use start::{StartError, Started};

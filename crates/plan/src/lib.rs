//! A fleet in simulated time: requests, a gateway's queue, workers that take a profile's time, leases.
//!
//! [`simulate`] runs a trace through a [`FleetPlan`] and says what each request got; [`Summary`] what all of
//! them came to under an [`Slo`]; [`search`](search::search) which numbers of prefill and decode workers
//! serve the highest rate.
//!
//! Simulated are: the gateway's queue (first come, first served; a request leaves it when a decode worker
//! can lease room for all its tokens), the choice of the worker with the least to do, chunked prefill and
//! continuous batching as the engines do it, transfers layer by layer, leases, the extra step for a prompt's
//! last token. Not simulated: the time of the gateway and the network for messages, prefix caches, failures,
//! rejections.
//!
//! **Architecture Invariant:** no I/O, no clock, no randomness: the same trace and the same plan give the
//! same report.
#![forbid(unsafe_code)]

mod fleet;
mod request;
pub mod search;
mod summary;
mod worker;

pub use fleet::{FleetPlan, PlanError, Pool, simulate};
pub use request::{Outcome, Request};
pub use summary::{Slo, Summary};

#[cfg(test)]
mod tests;

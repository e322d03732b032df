//! A fleet in simulated time, over the same core as the real one.
//!
//! [`simulate`] runs a trace through a [`FleetPlan`] and says what each request got; [`Summary`] what all of
//! them came to under an [`Slo`]; [`search`](search::search) which numbers of workers serve the highest rate.
//!
//! The real thing is what decides: the gateway's front door (queue, admission, retries) with a policy of
//! `tandem-policies` and its prefix index, the agents of decode and prefill workers with their page pools, leases
//! and prefix caches, and the batching of the engines. Workers report their loads as real ones do, so a
//! policy sees figures as old as there. What takes time is a step, and a layer's way to the other worker,
//! both as `tandem-timing` gives them.
//!
//! Not simulated: the time of messages and of the gateway itself, failures, clients that leave. An answer's own
//! blocks are not kept for later prompts, since traces do not name them.
//!
//! **Architecture Invariant:** no I/O, no clock, no randomness but a policy's seeded one: the same trace and
//! the same plan give the same outcomes.
#![forbid(unsafe_code)]

mod blocks;
mod engine;
mod plan;
mod request;
mod run;
pub mod search;
mod summary;
mod usage;
mod worker;

pub use plan::{FleetPlan, PlanError, Pool, Transfer};
pub use request::{Answer, Blocks, Outcome, Request};
pub use run::{Simulation, simulate};
pub use summary::{Quantiles, Slo, Summary};
pub use usage::Usage;

#[cfg(test)]
mod tests;

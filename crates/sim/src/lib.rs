//! The lease and transfer protocol, explored: the core's own state machines in a world that delays,
//! duplicates and loses, in which workers crash and writes land late.
//!
//! Owns a [`World`]: a gateway, some prefill and some decode workers, the control streams between
//! them and the writes in flight, with everything that may happen next as an [`Action`].
//! [`Exploration`] gives it to `stateright`, which visits every state that a small [`Config`] allows;
//! [`simulation`] draws one run of a larger one from a seed. Both check the same [`Violation`]s after
//! every step. A [`Fault`] breaks one rule on purpose, to show that it would be found.
//!
//! Refuses to decide anything that the core decides: what stands around the machines here only
//! carries their outputs out, as the worker's shell and the fabric do, one small step at a time.
#![forbid(unsafe_code)]

mod action;
mod budget;
mod config;
mod decode;
mod exploration;
mod fault;
mod gateway;
mod memory;
mod names;
mod prefill;
pub mod simulation;
mod stream;
mod violation;
mod wire;
mod world;

pub use action::Action;
pub use budget::Budget;
pub use config::{Config, LateReads, Pool, RequestPlan};
pub use exploration::Exploration;
pub use fault::Fault;
pub use names::{Attempt, Life};
pub use violation::Violation;
pub use wire::WriteName;
pub use world::World;

//! How long a GPU and a model take for a step, a layer of it, and a layer's transfer.
//!
//! A [`Profile`] is a model of one worker's hardware in a dozen numbers; [`Work`] is what a step holds.
//! Time is a sum: of what a step costs in any case, of reading weights, of multiplying, of attention and
//! of what ranks exchange. Nothing overlaps but what a number was fitted to, so the knee between
//! memory-bound and compute-bound steps is round: on either side the larger term decides.
//!
//! **Architecture Invariant:** no I/O, no clock, no randomness: the same profile and the same work give
//! the same time everywhere, so an engine that waits and a simulation that adds agree.
#![forbid(unsafe_code)]

mod points;
mod profile;
mod prompt;
mod step;
mod work;

pub use points::{Points, PointsError};
pub use profile::{Attention, Dense, Exchange, Experts, KvShape, Link, Profile, StepCost};
pub use prompt::{Chunks, LayerEnd};
pub use step::LayerTime;
pub use work::Work;

#[cfg(test)]
mod tests;

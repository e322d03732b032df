//! The boundary between an agent and whatever computes, and two engines behind it: the embedded one, and
//! one that only takes the time.
//!
//! An engine owns a model and runs steps on a thread of its own. It never allocates a page, never
//! decides when one may be read, and never talks to a peer: the agent leases pages, hands their
//! numbers over with a sequence, and takes them back only when the engine has said (by
//! [`Event::Prefilled`], [`Event::Finished`], [`Event::Cancelled`] or [`Event::Failed`]) that it
//! will touch them no more.
#![forbid(unsafe_code)]

mod arenas;
pub mod boundary;
mod embedded;
mod forward;
mod kernel;
mod model;
mod settings;
mod stepping;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod timed;

pub use arenas::{ArenaError, Arenas};
pub use boundary::{
    Command, Engine, EngineDescription, Event, FinishReason, Progress, StepItem, StepPlan,
    StepWatch, TokenLogprob,
};
pub use embedded::{EmbeddedEngine, EngineOptions, MAX_SPECULATIVE_TOKENS};
pub use model::{EmbeddedModel, LoadError, ModelOptions, SUPPORTED};
pub use settings::{
    MAX_LOGIT_BIASES, MAX_STOP_TOKENS, OutOfRange, Penalties, Sampling, StopConditions,
};
pub use stepping::StartError;
pub use tandem_constraint::{Constraint, ConstraintError, Grammars};
pub use timed::{
    Clock, Elapsed, JumpClock, TimedEngine, TimedModel, TimedModelError, TimedModelOptions,
    TimedOptions, WallClock,
};

//! Tandem's pure core: every rule about pages, leases, counting, planning, pairing and the
//! life of a request.
//!
//! **Architecture Invariant:** nothing here does I/O, reads a clock, draws randomness, makes ids,
//! logs or spawns. Time comes in as [`Instant`], ids and seeds as arguments; facts leave as
//! outputs, from which the shells make messages, logs and metrics. So every machine can be
//! explored exhaustively and replayed byte for byte.
//!
//! State machines have one shape: `handle(now, input)`, `poll() -> Option<Output>`,
//! `deadline() -> Option<Instant>`.
#![forbid(unsafe_code)]

pub mod admission;
pub mod arena;
pub mod batching;
pub mod blocks;
pub mod decode;
pub mod fleet;
pub mod flow;
pub mod front_door;
pub mod geometry;
pub mod ids;
pub mod immediate;
pub mod layout;
pub mod lease;
pub mod ledger;
pub mod pairing;
pub mod plan;
pub mod pool;
pub mod prefill;
pub mod prefix_index;
pub mod push;
pub mod spread;
pub mod step_times;
pub mod time;

pub use ids::{
    EndpointId, FlowId, Incarnation, PageIndex, RequestId, SequenceId, TransferId, WorkerId,
    WorkerRole,
};
pub use time::Instant;

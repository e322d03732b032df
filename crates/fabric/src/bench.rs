//! Measures the engine beside what it is made of: the same pages pushed through [`crate::Fabric`], by
//! the leanest correct loop of `fi_writemsg`, over one plain TCP stream, and by `memcpy`.
//!
//! Two processes take part, on one host or two ([`Receiver`]). The one that measures sends; the other
//! receives, counts, and checks bytes. They meet over a TCP stream, without authentication: for
//! networks that are trusted.
//!
//! **Like with like.** All four move the same planned writes, from the same page numbers through
//! [`tandem_core::plan::templates`]: pages that lie together on both sides are merged for the bare
//! loop, for TCP and for `memcpy` as they are for the engine. The bare loop has the engine's provider,
//! flags, window for each NIC, arena and memory, and knows its writes before the clock starts; the
//! engine plans while it runs. What merging brings is seen by comparing the engine with itself, over
//! [`Layout::Scattered`] and [`Layout::Contiguous`].
//!
//! **What a rate is.** From before the first write is planned until the sender has all completions
//! (on delivery, where the provider has that) *and* the receiver's word that its count is full. CPU
//! time is user and system time of both processes meanwhile. Subjects and cases take turns in
//! every round, since machines drift, and only medians over rounds are reported. Every run has a part before it
//! that is not timed, so that none pays for connecting or for page faults.
//!
//! Everything here blocks: call it from a plain thread, inside a runtime by `spawn_blocking`.
//!
//! The bare loop yields its core where it finds nothing. One that spins hard is no fair measure on a
//! machine with as many busy threads as cores: there it starves its own other half.

mod bare;
mod case;
mod clock;
mod engine;
mod latency;
mod meeting;
mod memcpy;
mod message;
mod patience;
mod plan;
mod receive;
mod receiver;
mod report;
mod run;
mod table;
mod target;
mod tcp;
mod workload;

pub use case::{Case, Layout};
pub use plan::Plan;
pub use receive::{receive, serve};
pub use receiver::Receiver;
pub use report::{CaseResult, LatencyResult, Microseconds, Report};
pub use run::{Bench, run};
pub use target::Target;

use std::time::Duration;

use crate::error::{ArmError, CallError, FabricError, OpenError};

/// The longest arena of either side, in bytes. Longer loads go over it again.
pub const ARENA: usize = 64 << 20;

/// Why a measurement failed.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A case outside its bounds.
    #[error("a case cannot be run: {0}")]
    Case(String),
    /// The provider could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A call of libfabric failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The fabric refused.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// The receiver's slots cannot be armed.
    #[error(transparent)]
    Arm(#[from] ArmError),
    /// No memory.
    #[error(transparent)]
    Memory(#[from] tandem_memory::CreateError),
    /// The other process is gone, or cannot be reached.
    #[error("the other process of the measurement is gone, or was never there: {0}")]
    Gone(#[from] std::io::Error),
    /// The other process says what this one does not understand.
    #[error("the other process does not speak this measurement's protocol: {0}")]
    Protocol(String),
    /// The other process failed, in its own words.
    #[error("the other process failed: {0}")]
    Other(String),
    /// A write or an endpoint failed, in libfabric's words.
    #[error("a write failed: {0}")]
    Write(String),
    /// Nothing has moved.
    #[error("nothing has moved for {0:?}")]
    Stuck(Duration),
    /// Bytes arrived that were not sent there.
    #[error("wrong bytes arrived in page {page}")]
    Wrong {
        /// Of the receiver's arena.
        page: u32,
    },
}

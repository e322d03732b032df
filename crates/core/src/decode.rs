//! The decode side of a request: lease, expose, count, activate, free.
//!
//! One [`DecodeAgent`] owns a worker's page pool. It decides; the shell carries out: it talks to
//! the gateway, the prefill workers, the fabric and the engine, and reports what they said.
//!
//! What must hold:
//! - a page whose address was given out is freed only when its writer has confirmed that it writes
//!   no more, or has been fenced, and when the engine has let go of it (I2);
//! - the engine is made ready only when the count is full (I1);
//! - every request ends, by its own course, by a failure or by its deadline (I6), and so does its
//!   lease (I4).

mod agent;
mod request;
#[cfg(test)]
mod tests;

pub use agent::DecodeAgent;

use std::sync::Arc;
use std::time::Duration;

use crate::blocks::BlockHash;
use crate::layout::WorkerLayout;
use crate::ledger::Armed;
use crate::pool::{CacheChange, NoLease};
use crate::{Incarnation, Instant, PageIndex, RequestId, SequenceId, WorkerId};

/// A prefill worker, in one life of its process.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Peer {
    /// Its name.
    pub worker: WorkerId,
    /// Its process.
    pub incarnation: Incarnation,
}

/// What a worker can take, and how long it waits.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "explore", derive(PartialEq, Eq, Hash))]
pub struct DecodeLimits {
    /// Its pages and shards, all of one data-parallel rank.
    pub layout: Arc<WorkerLayout>,
    /// Requests in flight at once.
    pub requests: usize,
    /// A writer that was asked to stop and says nothing for so long is fenced.
    pub drain_timeout: Duration,
}

/// A prefill worker and the pages that it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Writer {
    /// Who.
    pub peer: Peer,
    /// Its layout. The peer refuses the dispatch where this is not so.
    pub layout: Arc<WorkerLayout>,
}

/// A request for a lease.
#[derive(Clone, Debug)]
pub struct Reserve {
    /// Which request.
    pub request: RequestId,
    /// Tokens that are there: the prompt, and an answer begun elsewhere. At least 1.
    pub tokens: u32,
    /// Names of the whole blocks of all tokens but the last.
    pub blocks: Arc<[BlockHash]>,
    /// Tokens that may still be generated. At least 1.
    pub new_tokens: u32,
    /// Who computes the prompt; `None` where this worker does.
    pub prefill: Option<Writer>,
    /// When the request must have ended.
    pub deadline: Instant,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// A gateway asks for a lease.
    Reserve(Reserve),
    /// Every shard's fabric waits for the request's immediates.
    Armed {
        /// Which request.
        request: RequestId,
        /// A slot for each shard, in their order.
        armed: Arc<[Armed]>,
    },
    /// Some shard's fabric cannot: no endpoint, or no slot. None waits.
    NotArmed {
        /// Which request.
        request: RequestId,
        /// Why.
        reason: String,
    },
    /// The prefill worker will do it.
    Accepted {
        /// Which request.
        request: RequestId,
    },
    /// The prefill worker will write no more: it refused, finished, drained or failed.
    WriterGone {
        /// Which request.
        request: RequestId,
        /// How.
        how: WriterEnd,
    },
    /// The prefill worker can no longer say that nothing of it will land: the connection broke, or
    /// it failed with writes that nobody acknowledged.
    WriterLost {
        /// Which request.
        request: RequestId,
        /// What is known.
        why: String,
    },
    /// Every piece of one shard has arrived.
    Full {
        /// Which request.
        request: RequestId,
        /// Which shard.
        shard: u16,
    },
    /// More pieces arrived than there are.
    Overfull {
        /// Which request.
        request: RequestId,
    },
    /// The endpoints that this peer wrote to are closed, of all shards: nothing of it can land any
    /// more.
    Fenced {
        /// Which peer.
        peer: Peer,
    },
    /// A later life of this peer's worker is there: this one is dead, and its endpoint can go.
    Superseded {
        /// The earlier life.
        peer: Peer,
    },
    /// The engine has computed the prompt here.
    PrefilledHere {
        /// Which request.
        request: RequestId,
    },
    /// The engine has let go of a sequence.
    SequenceEnded {
        /// Which request.
        request: RequestId,
        /// Which of its sequences.
        which: Which,
        /// How.
        how: SequenceEnd,
    },
    /// The gateway, or its client, wants no more of it.
    Cancel {
        /// Which request.
        request: RequestId,
    },
    /// Time has passed.
    Tick,
}

/// A request's sequence in the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// It generates.
    Decode,
    /// It computes the prompt, where this worker does so itself.
    Prefill,
}

/// How a sequence ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SequenceEnd {
    /// The answer is complete. Names of the whole blocks of prompt and answer, but the last token
    /// of it.
    Finished(Arc<[BlockHash]>),
    /// As asked.
    Cancelled,
    /// The engine failed.
    Failed(String),
}

/// Why a prefill worker writes no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriterEnd {
    /// It took nothing on.
    Refused(Refusal),
    /// Every write has completed.
    Done,
    /// As asked.
    Drained,
    /// It failed; what it had posted has completed.
    Failed(String),
}

/// Why a worker takes a request not on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[cfg_attr(feature = "explore", derive(Hash))]
pub enum Refusal {
    /// No room now.
    #[error("no room: {0}")]
    NoRoom(String),
    /// No room ever.
    #[error("{0}")]
    NeverFits(String),
    /// A bounded queue is full.
    #[error("{0}")]
    Busy(String),
    /// The request makes no sense to this worker.
    #[error("{0}")]
    Invalid(String),
    /// Models or geometries differ.
    #[error("{0}")]
    Mismatch(String),
    /// The worker is going away.
    #[error("the worker is stopping")]
    Stopping,
    /// It was meant for another life of this process.
    #[error("it was meant for an earlier life of this worker")]
    StalePeer,
}

impl From<NoLease> for Refusal {
    fn from(why: NoLease) -> Self {
        match why {
            NoLease::NeverFits { .. } => Self::NeverFits(why.to_string()),
            NoLease::FullNow { .. } => Self::NoRoom(why.to_string()),
        }
    }
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "explore", derive(Hash))]
pub enum Output {
    /// Tell the gateway that nothing was started.
    Refuse {
        /// Which request.
        request: RequestId,
        /// Why.
        why: Refusal,
    },
    /// Give the sequence to the engine, not to be run yet.
    Admit {
        /// Which request.
        request: RequestId,
        /// Its sequence.
        sequence: SequenceId,
        /// Its pages.
        pages: Arc<[PageIndex]>,
    },
    /// Have each shard's fabric wait for its pieces at its endpoint of `peer`.
    Arm {
        /// Which request.
        request: RequestId,
        /// Who will write.
        peer: Peer,
        /// How many pieces, shard by shard.
        pieces: Arc<[u64]>,
    },
    /// Tell the gateway that the lease is granted.
    Reserved {
        /// Which request.
        request: RequestId,
        /// Pages leased.
        pages: u32,
        /// Tokens whose entries were here already.
        held: u32,
    },
    /// Have the prefill worker compute and push the prompt.
    Dispatch {
        /// Which request.
        request: RequestId,
        /// Who.
        peer: Peer,
        /// What its immediates carry, shard by shard.
        armed: Arc<[Armed]>,
        /// Where to: the pages of the prompt's tokens but the last, from the first that is not held
        /// here already.
        pages: Arc<[PageIndex]>,
        /// Tokens, whole pages of them, that are held here already.
        held: u32,
    },
    /// Have the engine compute the prompt here.
    PrefillHere {
        /// Which request.
        request: RequestId,
        /// The sequence for it.
        sequence: SequenceId,
        /// Its pages.
        pages: Arc<[PageIndex]>,
        /// Tokens, whole pages of them, that need not be computed: their entries are there.
        cached: u32,
    },
    /// Every byte is there: have the engine run the last prompt token.
    MakeReady {
        /// Which request.
        request: RequestId,
        /// Its sequence.
        sequence: SequenceId,
        /// Whether the context of the prompt lies in its slot, where the geometry has one. It does not
        /// where all of the prompt was held: only the KV entries are then.
        context: bool,
    },
    /// Ask the prefill worker to write no more.
    CancelPrefill {
        /// Which request.
        request: RequestId,
    },
    /// Ask the engine to let go.
    CancelSequence {
        /// Its sequence.
        sequence: SequenceId,
    },
    /// The slot is free: nothing of its transfer counts any more.
    ReleaseSlot {
        /// Whose.
        shard: u16,
        /// Which slot.
        armed: Armed,
    },
    /// Close the endpoints that this peer writes to, of all shards, and say [`Input::Fenced`].
    Fence {
        /// Which peer.
        peer: Peer,
    },
    /// Tell the gateway that the request has failed (or that the cancelled one has ended). The
    /// request may still hold pages.
    Fail {
        /// Which request.
        request: RequestId,
        /// Why.
        why: Failure,
    },
    /// Forget the request: everything it held has come back.
    Gone {
        /// Which request.
        request: RequestId,
    },
    /// What this worker holds for later prompts has changed.
    Cache(CacheChange),
}

/// Why a request ended without an answer. Who is to blame is in the variant's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[cfg_attr(feature = "explore", derive(Hash))]
pub enum Failure {
    /// It was cancelled.
    #[error("cancelled")]
    Cancelled,
    /// Its deadline passed.
    #[error("the deadline passed {0}")]
    Deadline(&'static str),
    /// The prefill worker took it not on.
    #[error("the prefill worker refused: {0}")]
    PrefillRefused(Refusal),
    /// The prefill worker failed.
    #[error("the prefill worker failed: {0}")]
    PrefillFailed(String),
    /// The prefill worker is gone.
    #[error("the prefill worker was lost before all pages had arrived: {0}")]
    PrefillLost(String),
    /// The transport failed, or the peer broke its rules.
    #[error("the transfer failed: {0}")]
    Fabric(String),
    /// This worker's engine failed.
    #[error("the engine failed: {0}")]
    Engine(String),
}

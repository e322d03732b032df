//! The prefill side of a request: queue, lease source pages, compute, push, unpin.
//!
//! One [`PrefillAgent`] owns a prefill worker's page pool.
//!
//! What must hold: source pages are freed only when no write of any shard reads them any more and the
//! engine has let go of them; the word "drained" (or "done", or "failed") goes out only when no write is in
//! flight and none will be posted (I2).

mod agent;
#[cfg(test)]
mod tests;

pub use agent::PrefillAgent;

use std::sync::Arc;
use std::time::Duration;

use crate::blocks::BlockHash;
use crate::decode::Refusal;
use crate::layout::WorkerLayout;
use crate::pool::CacheChange;
use crate::{FlowId, Instant, PageIndex, SequenceId, TransferId};

/// What a worker can take, and how long it waits.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "explore", derive(PartialEq, Eq, Hash))]
pub struct PrefillLimits {
    /// Its pages and shards.
    pub layout: Arc<WorkerLayout>,
    /// Transfers that wait for pages.
    pub queue: usize,
    /// Writes that were posted and do not complete for so long are ended by closing their endpoint.
    pub drain_timeout: Duration,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// A decode worker wants a prompt computed and pushed.
    Dispatch {
        /// A fresh name for it.
        transfer: TransferId,
        /// Tokens of the prompt; all but the last are computed. At least 2.
        tokens: u32,
        /// Names of the whole blocks of what is computed: all tokens but the last.
        blocks: Arc<[BlockHash]>,
        /// Into how many flows it is cut: pairs of a source and a target shard. At least 1.
        flows: u16,
        /// When the request must have ended.
        deadline: Instant,
    },
    /// The ways of all flows are open, and the watcher knows of the transfer.
    Opened {
        /// Which transfer.
        transfer: TransferId,
    },
    /// Some way could not be opened. None is open, and the watcher knows nothing.
    NotOpened {
        /// Which transfer.
        transfer: TransferId,
        /// Why.
        reason: String,
    },
    /// The engine has let go of the sequence.
    SequenceEnded {
        /// Which transfer.
        transfer: TransferId,
        /// Whether the prompt is computed; otherwise why not.
        how: Result<(), String>,
    },
    /// The watcher hands out no more writes of the transfer.
    WatchStopped {
        /// Which transfer.
        transfer: TransferId,
    },
    /// Of a flow no write is in flight and none will be posted. Said by the thread that owns the
    /// completions.
    Drained {
        /// Which flow.
        flow: FlowId,
        /// Whether all were posted and completed well.
        complete: bool,
        /// Whether the target acknowledged every write that was posted. Otherwise bytes may still be
        /// on their way, and the decode worker must not hear that nothing is.
        settled: bool,
        /// What the transport said, where it failed.
        error: Option<String>,
    },
    /// The decode worker wants it to end.
    Cancel {
        /// Which transfer.
        transfer: TransferId,
    },
    /// The decode worker is lost.
    PeerLost {
        /// Which transfer.
        transfer: TransferId,
    },
    /// The decode worker is through with the transfer: it has fenced this worker if it had to, and
    /// reads no source page.
    PeerEnded {
        /// Which transfer.
        transfer: TransferId,
    },
    /// The decode worker that was lost reads the source pages no more.
    Fenced {
        /// Which transfer.
        transfer: TransferId,
    },
    /// Time has passed.
    Tick,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "explore", derive(Hash))]
pub enum Output {
    /// Tell the decode worker that the transfer is taken on.
    Accept {
        /// Which transfer.
        transfer: TransferId,
    },
    /// Tell the decode worker that nothing was or will be written.
    Refuse {
        /// Which transfer.
        transfer: TransferId,
        /// Why.
        why: Refusal,
    },
    /// Open the way to the decode worker, have the watcher push the sequence's pages, then say
    /// [`Input::Opened`].
    Open {
        /// Which transfer.
        transfer: TransferId,
        /// The sequence that will compute it.
        sequence: SequenceId,
        /// Source pages.
        pages: Arc<[PageIndex]>,
        /// Names of its flows.
        flows: Arc<[FlowId]>,
        /// Tokens whose entries are in the first of these pages already.
        cached: u32,
    },
    /// Have the engine compute the prompt.
    Prefill {
        /// Which transfer.
        transfer: TransferId,
        /// Its sequence.
        sequence: SequenceId,
        /// Its pages.
        pages: Arc<[PageIndex]>,
        /// Tokens, whole pages of them, that need not be computed: their entries are there.
        cached: u32,
    },
    /// Ask the engine to let go.
    CancelSequence {
        /// Which sequence.
        sequence: SequenceId,
    },
    /// Have the watcher hand out no more writes, then say [`Input::WatchStopped`].
    StopWatch {
        /// Which transfer.
        transfer: TransferId,
    },
    /// Have the fabric post no more writes of a flow; it says [`Input::Drained`] when none is in
    /// flight.
    StopWrites {
        /// Of which transfer.
        transfer: TransferId,
        /// Which flow.
        flow: FlowId,
    },
    /// Close the ways to the transfer's decode worker: its flows drain then.
    Close {
        /// Which transfer.
        transfer: TransferId,
    },
    /// Tell the decode worker how it ended.
    End {
        /// Which transfer.
        transfer: TransferId,
        /// How.
        how: TransferEnd,
    },
    /// Make sure that the decode worker, which is lost, reads the source pages no more; then say
    /// [`Input::Fenced`].
    Fence {
        /// Which transfer.
        transfer: TransferId,
    },
    /// The transfer is forgotten: everything it held has come back.
    Gone {
        /// Which transfer.
        transfer: TransferId,
    },
    /// What this worker holds for later prompts has changed.
    Cache(CacheChange),
}

/// How a transfer ended. Nothing of it is in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "explore", derive(Hash))]
pub enum TransferEnd {
    /// Every write has completed.
    Done,
    /// As the decode worker asked.
    Drained,
    /// It failed.
    Failed(String),
    /// It failed, and bytes of it may still land: only the decode worker's fence makes its pages
    /// safe.
    Unsettled(String),
}

//! One transfer at a prefill worker.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::TransferEnd;
use crate::blocks::BlockHash;
use crate::lease::{Active, Lease};
use crate::pool::Prefix;
use crate::{FlowId, Instant, PageIndex, SequenceId, TransferId};

#[derive(Debug)]
#[cfg_attr(feature = "explore", derive(Clone, PartialEq, Eq, Hash))]
pub(super) struct Waiting {
    pub(super) transfer: TransferId,
    pub(super) tokens: u32,
    pub(super) blocks: Arc<[BlockHash]>,
    pub(super) flows: u16,
    pub(super) deadline: Instant,
}

/// The pages that a transfer reads.
#[derive(Debug)]
#[cfg_attr(feature = "explore", derive(Clone, PartialEq, Eq, Hash))]
pub(super) struct Source {
    pub(super) prefix: Prefix,
    pub(super) lease: Lease<Active>,
}

#[derive(Debug)]
#[cfg_attr(feature = "explore", derive(Clone, PartialEq, Eq, Hash))]
pub(super) struct Transfer {
    pub(super) source: Source,
    /// Whole blocks of what is computed.
    pub(super) blocks: Arc<[BlockHash]>,
    pub(super) tokens: u32,
    pub(super) deadline: Instant,
    pub(super) sequence: SequenceId,
    pub(super) stage: Stage,
    /// Flows that have not drained.
    pub(super) flows: BTreeSet<FlowId>,
    /// Whether the engine may still touch the pages.
    pub(super) engine: bool,
    /// Set once it shall end before its time.
    pub(super) ending: Option<TransferEnd>,
    /// Whether bytes may be on their way that nobody acknowledged.
    pub(super) unsettled: bool,
    /// What became of the decode worker.
    pub(super) peer: PeerState,
    /// When its endpoint is closed, to end writes that do not complete.
    pub(super) close_by: Option<Instant>,
}

/// Pages that a lost reader may still read.
#[derive(Debug)]
#[cfg_attr(feature = "explore", derive(Clone, PartialEq, Eq, Hash))]
pub(super) struct Unsettled {
    pub(super) source: Source,
    /// Whether the reader is being fenced.
    pub(super) fencing: bool,
}

/// What is known of the decode worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "explore", derive(Hash))]
pub(super) enum PeerState {
    There,
    /// It may still read, and will not say when it has stopped.
    Lost,
    /// It reads nothing any more.
    Ended,
}

/// Who may still post or complete writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "explore", derive(Hash))]
pub(super) enum Stage {
    /// The way is being opened.
    Opening,
    /// The watcher hands out writes.
    Pushing,
    /// The watcher was asked to stop.
    StoppingWatch,
    /// The fabric was asked to stop.
    StoppingWrites,
    /// Nobody.
    Drained,
}

impl Source {
    /// In the order of their tokens.
    pub(super) fn pages(&self) -> Arc<[PageIndex]> {
        let (prefix, own) = (self.prefix.pages().iter(), self.lease.pages().iter());
        prefix.chain(own).copied().collect()
    }
}

impl Transfer {
    pub(super) fn wake_at(&self) -> Option<Instant> {
        let deadline = self.ending.is_none().then_some(self.deadline);
        [deadline, self.close_by].into_iter().flatten().min()
    }
}

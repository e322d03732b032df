//! Writes in the network. Nothing is ordered between two of them, and one whose sender has given it
//! up may land all the same.

use tandem_core::immediate::Immediate;
use tandem_core::plan::PlannedWrite;
use tandem_core::{EndpointId, FlowId};

use crate::names::{Attempt, Life};

/// Names a write.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriteName {
    /// Who sent it.
    pub(crate) from: Life,
    pub(crate) flow: FlowId,
    /// Which of its flow.
    pub(crate) number: u8,
}

impl std::fmt::Debug for WriteName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}:f{}.{}", self.from, self.flow.0, self.number)
    }
}

/// What its sender knows of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Sender {
    /// Its completion has not come.
    Waits,
    /// It completed well.
    Done,
    /// It completed in error, or its outbox was closed, or its sender is dead.
    GaveUp,
}

/// A posted write, until it can have no more effect.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Flying {
    pub(crate) attempt: Attempt,
    pub(crate) shard: u16,
    pub(crate) outbox: EndpointId,
    pub(crate) to: Life,
    pub(crate) target: u16,
    pub(crate) inbox: EndpointId,
    pub(crate) source_at: u64,
    pub(crate) target_at: u64,
    pub(crate) bytes: u32,
    pub(crate) immediate: Immediate,
    pub(crate) sender: Sender,
    /// Its bytes are in memory.
    pub(crate) landed: bool,
    /// Its immediate has been read.
    pub(crate) counted: bool,
    /// It holds its bytes, and reads the source no more.
    pub(crate) carries: bool,
}

impl Flying {
    pub(crate) const fn places(&mut self, write: &PlannedWrite) {
        self.source_at = write.source;
        self.target_at = write.target;
        self.bytes = write.bytes;
    }
}

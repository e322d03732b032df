//! One request at a decode worker.

use std::sync::Arc;

use crate::blocks::BlockHash;
use crate::lease::{Active, Draining, Exposed, Lease, Leased, Quarantined};
use crate::ledger::Armed;
use crate::pool::Prefix;
use crate::{Instant, SequenceId};

use super::Peer;

/// A request and what it holds.
#[derive(Debug)]
#[cfg_attr(feature = "explore", derive(Clone, PartialEq, Eq, Hash))]
pub(super) struct Request {
    pub(super) pages: Pages,
    /// Cached pages that the request begins with.
    pub(super) prefix: Prefix,
    /// Names of the whole blocks of its prefilled tokens.
    pub(super) blocks: Arc<[BlockHash]>,
    pub(super) peer: Option<Peer>,
    /// Tokens whose KV entries come from prefill.
    pub(super) prefilled: u32,
    /// The generating sequence, until the engine has let go of it.
    pub(super) decode: Option<SequenceId>,
    /// The sequence that computes the prompt here, until the engine has let go of it.
    pub(super) prefill_here: Option<SequenceId>,
    /// Slots that are armed, by shard; taken out as they become full.
    pub(super) armed: Vec<Option<Armed>>,
    pub(super) deadline: Instant,
    /// Set when the gateway has been told of the end.
    pub(super) over: bool,
    /// When a writer that was asked to stop is fenced.
    pub(super) drain_by: Option<Instant>,
}

/// Who may touch the request's pages.
#[derive(Debug)]
#[cfg_attr(feature = "explore", derive(Clone, PartialEq, Eq, Hash))]
pub(super) enum Pages {
    /// Nobody outside. The fabric is being asked to wait for immediates.
    Arming(Lease<Leased>),
    /// As `Arming`, but the request has ended: the slot goes back as soon as it comes.
    ArmingInVain(Lease<Leased>),
    /// The prefill worker.
    Exposed {
        lease: Lease<Exposed>,
        /// The writer has said that all its writes have completed.
        done: bool,
    },
    /// The prefill worker, which was asked to stop.
    Draining(Lease<Draining>),
    /// A prefill worker that is lost.
    Quarantined(Lease<Quarantined>),
    /// The engine.
    Active(Lease<Active>),
    /// Nobody: only the engine's word is missing.
    Idle(Idle),
    /// On the way from one state to another, within one call.
    Moving,
}

/// A lease that no writer can touch any more.
#[derive(Debug)]
#[cfg_attr(feature = "explore", derive(Clone, PartialEq, Eq, Hash))]
pub(super) enum Idle {
    Leased(Lease<Leased>),
    Drained(Lease<Draining>),
    Fenced(Lease<Quarantined>),
}

impl Request {
    /// Whether the engine has let go of everything.
    pub(super) const fn engine_gone(&self) -> bool {
        self.decode.is_none() && self.prefill_here.is_none()
    }

    /// The next moment at which something must happen.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        let deadline = (!self.over).then_some(self.deadline);
        [deadline, self.drain_by].into_iter().flatten().min()
    }
}

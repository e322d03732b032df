//! How large a world is, and what may go wrong in it.

use std::sync::Arc;
use std::time::Duration;

use tandem_core::geometry::{KvDtype, KvGeometry, KvKind, KvOrder};
use tandem_core::layout::WorkerLayout;
use tandem_core::{Instant, WorkerRole};

use crate::budget::Budget;
use crate::fault::Fault;

/// Workers of one role, all alike.
#[derive(Clone, Copy, Debug)]
pub struct Pool {
    /// How many.
    pub workers: u8,
    /// KV pages of each.
    pub pages: u32,
    /// Shards of each.
    pub shards: u16,
}

/// A client's request.
#[derive(Clone, Copy, Debug)]
pub struct RequestPlan {
    /// Tokens of its prompt.
    pub tokens: u32,
    /// Tokens that it may generate.
    pub new_tokens: u32,
    /// Its deadline, in ticks after the origin. A drain takes [`Config::DRAIN`]: an earlier deadline
    /// passes before any drain's does, a later one after those that began at the origin.
    pub deadline: u64,
}

/// Until when a write that its sender has given up, and that lands all the same, may read its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LateReads {
    /// It carries its bytes, as in a socket's buffer (tcp).
    Never,
    /// Until its outbox is closed.
    UntilClosed,
    /// Whenever it lands: the target reads the source's memory (shm).
    Always,
}

/// A world.
#[derive(Clone, Debug)]
pub struct Config {
    /// Prefill workers.
    pub prefill: Pool,
    /// Decode workers.
    pub decode: Pool,
    /// Requests, in the order in which they come.
    pub requests: Vec<RequestPlan>,
    /// Whether they have all come at the start.
    pub at_once: bool,
    /// Layers of the model: writes of each flow, where pages are neighbours.
    pub layers: u16,
    /// Tokens of a page.
    pub page_tokens: u16,
    /// Whether the model has a context: one write more for each flow.
    pub context: bool,
    /// Transfer slots of each decode shard.
    pub slots: u16,
    /// Times that a request is tried again after it failed.
    pub retries: u32,
    /// What may go wrong.
    pub budget: Budget,
    /// The rule that is broken.
    pub fault: Option<Fault>,
    /// When a write that completed in error reads its source.
    pub late_reads: LateReads,
    /// Whether a decode worker draws an id for each lease that it is asked for, as it does; or goes by
    /// the gateway's id of the request.
    pub fresh_ids: bool,
    /// Whether closing an outbox that somebody is opening keeps it closed, as it does.
    pub close_holds: bool,
    /// Whether a fence of the source waits for closes that are under way, as it does.
    pub fence_waits: bool,
}

impl Config {
    /// Ticks after which a writer that was asked to stop is fenced.
    pub const DRAIN: u64 = 100;

    /// One worker of each role with one shard, one page a request, one write a page.
    #[must_use]
    pub fn small(requests: u8) -> Self {
        let pool = Pool {
            workers: 1,
            pages: 1,
            shards: 1,
        };
        let plan = RequestPlan {
            tokens: 2,
            new_tokens: 1,
            deadline: 1000,
        };
        Self {
            prefill: pool,
            decode: pool,
            requests: vec![plan; requests.into()],
            at_once: true,
            layers: 1,
            page_tokens: 2,
            context: false,
            slots: 1,
            retries: 0,
            budget: Budget::NONE,
            fault: None,
            late_reads: LateReads::Never,
            fresh_ids: true,
            close_holds: true,
            fence_waits: true,
        }
    }

    pub(crate) fn layout(&self, role: WorkerRole) -> Arc<WorkerLayout> {
        let pool = self.pool(role);
        let geometry = KvGeometry {
            layers: self.layers,
            kv_heads: self.prefill.shards.max(self.decode.shards),
            head_dim: 1,
            page_tokens: self.page_tokens,
            dtype: KvDtype::F16,
            kind: KvKind::Heads,
            order: KvOrder::Together,
            // As large as an entry.
            context_bytes: if self.context { 2 } else { 0 },
        };
        let layout = WorkerLayout::tensor_parallel(geometry, pool.pages, pool.shards);
        Arc::new(layout.expect("shards divide the heads"))
    }

    pub(crate) const fn pool(&self, role: WorkerRole) -> Pool {
        match role {
            WorkerRole::Prefill => self.prefill,
            _ => self.decode,
        }
    }

    pub(crate) fn plan(&self, request: u8) -> RequestPlan {
        self.requests[usize::from(request) - 1]
    }

    pub(crate) const fn drain() -> Duration {
        Duration::from_nanos(Self::DRAIN)
    }

    pub(crate) fn is(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }
}

/// A moment, in ticks.
pub(crate) const fn at(ticks: u64) -> Instant {
    Instant::from_nanos(ticks)
}

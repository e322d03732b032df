//! A worker that is a page pool and a clock.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tandem_core::blocks::BlockHash;
use tandem_core::fleet::{WorkerFacts, WorkerLoad, pages_for};
use tandem_core::geometry::{KvDtype, KvGeometry, KvKind, KvOrder};
use tandem_core::layout::WorkerLayout;
use tandem_core::lease::{Active, Lease};
use tandem_core::pairing::RequestFacts;
use tandem_core::pool::{CacheChange, PagePool, Prefix};
use tandem_core::{Incarnation, WorkerId, WorkerRole};

use super::{Shape, seed};

/// How long things take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// A prompt, whatever its length.
    pub(crate) prefill_base: Duration,
    /// And for each token that is not held.
    pub(crate) prefill_token: Duration,
    /// From the end of the prompt to its last page on the decode worker.
    pub(crate) push: Duration,
    /// A decode step,
    pub(crate) step_base: Duration,
    /// and for each sequence in it,
    pub(crate) step_sequence: Duration,
    /// and for each 1,000 tokens that they attend to.
    pub(crate) step_kilotoken: Duration,
}

/// One worker.
/// Pages of a prompt that is computed: those found, those new, and the blocks that they will hold.
type Source = (Prefix, Option<Lease<Active>>, Arc<[BlockHash]>);

pub(crate) struct Worker {
    pub(crate) facts: WorkerFacts,
    pub(crate) role: WorkerRole,
    times: Times,
    pool: PagePool,
    held: BTreeMap<usize, (Prefix, Lease<Active>)>,
    /// Prompts that wait, and the one that is computed.
    pub(crate) queue: VecDeque<usize>,
    pub(crate) computing: Option<usize>,
    source: Option<Source>,
    /// Sequences that decode, with the tokens that they attend to; the first `stepping` are in a step.
    pub(crate) batch: Vec<(usize, u32)>,
    stepping: usize,
    delay: Duration,
    /// Time that it computed prompts.
    pub(crate) busy: Duration,
    /// A report is on its way.
    pub(crate) reports: bool,
    sequence: u64,
    last_step: Duration,
}

impl Worker {
    pub(crate) fn new(role: WorkerRole, n: usize, shape: Shape) -> Self {
        let geometry = KvGeometry {
            layers: 80,
            kv_heads: 8,
            head_dim: 128,
            page_tokens: shape.page_tokens,
            dtype: KvDtype::F16,
            kind: KvKind::Heads,
            order: KvOrder::Together,
            context_bytes: 0,
        };
        let layout = WorkerLayout::tensor_parallel(geometry, shape.pages, 8).expect("a layout");
        let facts = WorkerFacts {
            worker: WorkerId::new(format!("{role}-{n:02}")).expect("a name"),
            incarnation: Incarnation(1),
            role,
            model: String::new(),
            fingerprint: String::new(),
            context_length: 1 << 20,
            layout: layout.into(),
            provider: String::new(),
            seed: Some(seed(shape.page_tokens)),
            labels: BTreeMap::new(),
        };
        Self {
            facts,
            role,
            times: shape.times,
            pool: PagePool::new(shape.pages),
            held: BTreeMap::new(),
            queue: VecDeque::new(),
            computing: None,
            source: None,
            batch: Vec::new(),
            stepping: 0,
            delay: Duration::ZERO,
            busy: Duration::ZERO,
            reports: false,
            sequence: 1,
            last_step: Duration::ZERO,
        }
    }

    pub(crate) fn name(&self) -> WorkerId {
        self.facts.worker.clone()
    }

    fn page_tokens(&self) -> u16 {
        self.facts.layout.geometry().page_tokens
    }

    /// Pages for a whole request; whether there are enough.
    pub(crate) fn lease(&mut self, request: usize, facts: &RequestFacts) -> bool {
        let prefix = self.pool.hold(&facts.blocks[0].blocks);
        let own = pages_for(self.page_tokens(), facts) - prefix.pages().len() as u32;
        match self.pool.lease(own) {
            Ok(lease) => {
                let lease = self.pool.activate_unexposed(lease);
                self.held.insert(request, (prefix, lease));
                true
            }
            Err(_) => {
                self.pool.let_go(prefix);
                false
            }
        }
    }

    /// Begins to compute a prompt: tokens that it holds, and how long it takes.
    pub(crate) fn prefill(&mut self, request: usize, facts: &RequestFacts) -> (u32, Duration) {
        let blocks = Arc::clone(&facts.blocks[0].blocks);
        let prefix = self.pool.hold(&blocks);
        let known = prefix.pages().len();
        let held = known as u32 * u32::from(self.page_tokens());
        // What it decodes itself has its pages already.
        let own = facts.prompt_tokens.div_ceil(self.page_tokens().into()) - known as u32;
        let lease = match self.role {
            WorkerRole::Prefill => self.pool.lease(own).ok(),
            _ => None,
        };
        let lease = lease.map(|lease| self.pool.activate_unexposed(lease));
        self.computing = Some(request);
        self.source = Some((prefix, lease, blocks[known..].into()));
        let took =
            self.times.prefill_base + self.times.prefill_token * (facts.prompt_tokens - held);
        self.busy += took;
        (held, took)
    }

    /// The prompt is computed: which request's.
    pub(crate) fn prefilled(&mut self) -> Option<usize> {
        if let Some((prefix, lease, blocks)) = self.source.take() {
            if let Some(lease) = lease {
                self.pool.publish(&lease, &blocks);
                self.pool.free_active(lease);
            }
            self.pool.let_go(prefix);
        }
        self.computing.take()
    }

    /// A request is over: its whole blocks stay for others.
    pub(crate) fn free(&mut self, request: usize, facts: &RequestFacts) {
        self.batch.retain(|(other, _)| *other != request);
        if let Some((prefix, lease)) = self.held.remove(&request) {
            let known = prefix.pages().len();
            self.pool.publish(&lease, &facts.blocks[0].blocks[known..]);
            self.pool.free_active(lease);
            self.pool.let_go(prefix);
        }
    }

    /// Starts a step; how long it takes. `None` where one is under way, or nothing is to do.
    pub(crate) fn step(&mut self) -> Option<Duration> {
        if self.stepping > 0 || self.batch.is_empty() {
            return None;
        }
        self.stepping = self.batch.len();
        let tokens: u64 = self
            .batch
            .iter()
            .map(|(_, tokens)| u64::from(*tokens))
            .sum();
        let attention = self.times.step_kilotoken.mul_f64(tokens as f64 / 1e3);
        let took =
            self.times.step_base + self.times.step_sequence * self.stepping as u32 + attention;
        self.last_step = took;
        Some(took)
    }

    /// Ends a step: each request in it has a token more.
    pub(crate) fn stepped(&mut self) -> Vec<usize> {
        let count = std::mem::take(&mut self.stepping);
        self.batch[..count]
            .iter_mut()
            .for_each(|(_, tokens)| *tokens += 1);
        self.batch[..count]
            .iter()
            .map(|(request, _)| *request)
            .collect()
    }

    /// A prompt computed here keeps the batch waiting.
    pub(crate) fn delay(&mut self, took: Duration) {
        if self.stepping > 0 {
            self.delay += took;
        }
    }

    pub(crate) fn take_delay(&mut self) -> Duration {
        std::mem::take(&mut self.delay)
    }

    pub(crate) fn load(&self) -> WorkerLoad {
        WorkerLoad {
            sequence: self.sequence,
            free_pages: self.pool.free(),
            running: self.batch.len() as u32,
            queued_requests: (self.held.len().max(self.batch.len()) - self.batch.len()) as u32,
            prefill_ns_per_token: self.times.prefill_token.as_nanos() as u32,
            decode_step_us: self.last_step.as_micros() as u32,
            ..WorkerLoad::default()
        }
    }

    pub(crate) fn next_load(&mut self) -> WorkerLoad {
        self.sequence += 1;
        self.load()
    }

    pub(crate) fn changes(&mut self) -> Vec<CacheChange> {
        self.pool.take_changes()
    }
}

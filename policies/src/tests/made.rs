//! Fleets made for tests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tandem_core::blocks::{BlockChain, BlockHash, BlockSeed};
use tandem_core::fleet::{Fleet, WorkerFacts, WorkerLoad};
use tandem_core::geometry::{KvDtype, KvGeometry, KvKind, KvOrder};
use tandem_core::layout::WorkerLayout;
use tandem_core::pairing::{NoPair, Pair, Policy, RequestFacts};
use tandem_core::pool::CacheChange;
use tandem_core::{Incarnation, Instant, RequestId, WorkerId, WorkerRole};

use crate::{Pairing, PolicySettings, Rule};

pub(crate) const PAGE: u32 = 16;

pub(crate) fn name(worker: &str) -> WorkerId {
    WorkerId::new(worker).unwrap()
}

pub(crate) fn seed() -> BlockSeed {
    BlockSeed::announced(BlockHash([7; 16]), PAGE as u16)
}

/// A worker of 1000 pages that is idle.
pub(crate) struct Made {
    pub(crate) facts: WorkerFacts,
    pub(crate) load: WorkerLoad,
    holds: u32,
}

/// `p…` prefills, `d…` decodes, others do both.
pub(crate) fn worker(worker: &str) -> Made {
    let geometry = KvGeometry {
        layers: 2,
        kv_heads: 1,
        head_dim: 64,
        page_tokens: PAGE as u16,
        dtype: KvDtype::F16,
        kind: KvKind::Heads,
        order: KvOrder::Together,
        context_bytes: 0,
    };
    let role = match worker.as_bytes()[0] {
        b'p' => WorkerRole::Prefill,
        b'd' => WorkerRole::Decode,
        _ => WorkerRole::Both,
    };
    Made {
        facts: WorkerFacts {
            worker: name(worker),
            incarnation: Incarnation(1),
            role,
            model: String::new(),
            fingerprint: String::new(),
            context_length: 1 << 20,
            layout: WorkerLayout::tensor_parallel(geometry, 1000, 1)
                .unwrap()
                .into(),
            provider: String::new(),
            seed: Some(seed()),
            labels: BTreeMap::new(),
        },
        load: WorkerLoad {
            sequence: 1,
            free_pages: 1000,
            ..WorkerLoad::default()
        },
        holds: 0,
    }
}

impl Made {
    pub(crate) fn free(mut self, pages: u32) -> Self {
        self.load.free_pages = pages;
        self
    }

    pub(crate) fn queued(mut self, tokens: u64) -> Self {
        self.load.queued_prompt_tokens = tokens;
        self
    }

    pub(crate) fn running(mut self, requests: u32) -> Self {
        self.load.running = requests;
        self
    }

    /// It has measured a microsecond a token and such steps at its batch.
    pub(crate) fn measured(mut self, step: Duration) -> Self {
        self.load.prefill_ns_per_token = 1_000;
        self.load.decode_step_us = step.as_micros() as u32;
        self
    }

    pub(crate) fn label(mut self, key: &str, value: &str) -> Self {
        self.facts.labels.insert(key.into(), value.into());
        self
    }

    /// It holds so many blocks of [`request`]'s prompt.
    pub(crate) fn holds(mut self, blocks: u32) -> Self {
        self.holds = blocks;
        self
    }
}

pub(crate) fn fleet(workers: impl IntoIterator<Item = Made>) -> Fleet {
    let mut fleet = Fleet::default();
    for worker in workers {
        let id = worker.facts.worker.clone();
        fleet.join(worker.facts, worker.load).unwrap();
        let changes: Vec<_> = (0..worker.holds)
            .map(|at| CacheChange::Stored(block(at)))
            .collect();
        fleet.cached(&id, Incarnation(1), true, &changes);
    }
    fleet
}

fn block(at: u32) -> BlockHash {
    let mixed = u64::from(at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&mixed.to_le_bytes());
    BlockHash(bytes)
}

/// A prompt of so many blocks, for 16 tokens.
pub(crate) fn request(blocks: u32) -> RequestFacts {
    let chain = BlockChain {
        seed: seed(),
        blocks: (0..blocks).map(block).collect(),
    };
    RequestFacts {
        blocks: Arc::new([chain]),
        ..RequestFacts::new(RequestId(1), blocks * PAGE, 16)
    }
}

pub(crate) fn both(rule: Rule) -> PolicySettings {
    let mut settings = PolicySettings::default();
    (settings.prefill.choose, settings.decode.choose) = (rule, rule);
    settings
}

pub(crate) fn pairing(settings: &PolicySettings) -> Pairing {
    Pairing::new(settings, 11)
}

pub(crate) fn pair(policy: &mut Pairing, fleet: &Fleet, request: &RequestFacts) -> Pair {
    try_pair(policy, fleet, request).unwrap()
}

pub(crate) fn try_pair(
    policy: &mut Pairing,
    fleet: &Fleet,
    request: &RequestFacts,
) -> Result<Pair, NoPair> {
    policy.pair(Instant::ZERO, fleet, request)
}

/// Who was chosen, how often, as prefill and as decode worker.
pub(crate) fn counts(
    settings: &PolicySettings,
    fleet: &Fleet,
    request: &RequestFacts,
    times: usize,
) -> BTreeMap<String, usize> {
    let mut policy = pairing(settings);
    let mut counts = BTreeMap::new();
    for _ in 0..times {
        let pair = pair(&mut policy, fleet, request);
        for worker in [Some(pair.decode), pair.prefill].into_iter().flatten() {
            *counts.entry(worker.to_string()).or_default() += 1;
        }
    }
    counts
}

/// The one pair that is chosen every time: prefill, decode.
pub(crate) fn always(
    settings: &PolicySettings,
    fleet: &Fleet,
    request: &RequestFacts,
) -> (String, String) {
    let counts = counts(settings, fleet, request, 20);
    let names: Vec<&String> = counts.keys().collect();
    assert_eq!(names.len(), 2, "{counts:?}");
    (names[1].clone(), names[0].clone())
}

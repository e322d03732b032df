//! A fleet that is to be, and what of it and of a trace cannot be.

use std::sync::Arc;

use tandem_core::geometry::{KvDtype, KvGeometry, KvOrder};
use tandem_core::layout::WorkerLayout;
use tandem_policies::PolicySettings;
use tandem_timing::Profile;

use crate::Request;

/// Workers that are alike.
#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    /// How long they take.
    pub profile: Profile,
    /// How many there are.
    pub workers: u32,
    /// Prompt tokens in one step, at most.
    pub chunk_tokens: u32,
    /// Sequences that decode in one step, at most.
    pub max_batch: u32,
    /// Tokens that one has room for, in whole pages.
    pub kv_tokens: u64,
    /// Tokens of a page.
    pub page_tokens: u16,
}

/// When a prompt's pages travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transfer {
    /// Each layer's while the next ones are computed, as Tandem does.
    #[default]
    LayerByLayer,
    /// All of them when the whole prompt is computed, one prompt after the other, while the worker goes on.
    Afterwards,
}

/// A fleet that is to be.
#[derive(Clone, Debug, PartialEq)]
pub struct FleetPlan {
    /// Who computes prompts; `None` where those who decode do.
    pub prefill: Option<Pool>,
    /// Who decodes.
    pub decode: Pool,
    /// How the gateway chooses among them.
    pub policy: PolicySettings,
    /// When pages travel.
    pub transfer: Transfer,
}

/// A fleet or a trace that cannot be simulated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A pool that nothing can run on: no workers, or a limit of 0.
    #[error("a pool has no workers, no page, or lets nothing run")]
    Empty,
    /// Prefill workers that cannot push to the decode workers.
    #[error("the two pools' profiles do not fit together: {0}")]
    Unlike(String),
    /// A fleet that the gateway does not take.
    #[error("the gateway refuses the fleet: {0}")]
    Refused(String),
    /// A request without tokens.
    #[error("request {0} has no prompt or no answer: want a token of each")]
    NoTokens(usize),
    /// A request that no worker ever has room for.
    #[error("request {request} needs {needed} tokens of KV cache, a worker has {room}")]
    TooLong {
        /// Its number in the trace, from 0.
        request: usize,
        /// Tokens that it needs.
        needed: u64,
        /// Tokens that a worker has.
        room: u64,
    },
}

impl Pool {
    /// Workers of a profile, with all the room that it has, pages of 64 tokens, and the limits that docs and
    /// experiments use: 8,192 prompt tokens and 128 sequences in a step.
    #[must_use]
    pub fn new(profile: Profile, workers: u32) -> Self {
        Self {
            kv_tokens: u64::from(profile.kv.tokens),
            profile,
            workers,
            chunk_tokens: 8192,
            max_batch: 128,
            page_tokens: 64,
        }
    }

    /// The same workers, but so many.
    #[must_use]
    pub fn of(&self, workers: u32) -> Self {
        Self {
            workers,
            ..self.clone()
        }
    }

    /// GPUs of all of them.
    #[must_use]
    pub fn gpus(&self) -> u32 {
        self.workers * u32::from(self.profile.gpus)
    }

    pub(crate) fn pages(&self) -> u32 {
        let pages = self.kv_tokens / u64::from(self.page_tokens.max(1));
        u32::try_from(pages).unwrap_or(u32::MAX)
    }

    fn room(&self) -> u64 {
        u64::from(self.pages()) * u64::from(self.page_tokens)
    }

    /// The KV cache of one of them.
    pub(crate) fn layout(&self) -> Result<Arc<WorkerLayout>, PlanError> {
        let kv = &self.profile.kv;
        let geometry = KvGeometry {
            layers: kv.layers,
            kv_heads: kv.heads,
            head_dim: kv.head_dim,
            page_tokens: self.page_tokens,
            dtype: KvDtype::F16,
            kind: kv.kind,
            order: KvOrder::Together,
            context_bytes: 0,
        };
        let layout = WorkerLayout::tensor_parallel(geometry, self.pages(), 1);
        layout
            .map(Arc::new)
            .map_err(|error| PlanError::Refused(error.to_string()))
    }
}

impl FleetPlan {
    /// Each worker does both.
    #[must_use]
    pub fn mixed(pool: Pool) -> Self {
        Self {
            prefill: None,
            decode: pool,
            policy: PolicySettings::default(),
            transfer: Transfer::default(),
        }
    }

    /// Prefill and decode apart.
    #[must_use]
    pub fn apart(prefill: Pool, decode: Pool) -> Self {
        Self {
            prefill: Some(prefill),
            ..Self::mixed(decode)
        }
    }

    /// The same fleet under another policy.
    #[must_use]
    pub fn under(mut self, policy: &PolicySettings) -> Self {
        self.policy = policy.clone();
        self
    }

    pub(crate) fn pools(&self) -> impl Iterator<Item = &Pool> {
        self.prefill.iter().chain([&self.decode])
    }

    /// GPUs of all workers.
    #[must_use]
    pub fn gpus(&self) -> u32 {
        self.pools().map(Pool::gpus).sum()
    }

    pub(crate) fn check(&self, trace: &[Request]) -> Result<(), PlanError> {
        let runs = |pool: &Pool| {
            let limits = [
                pool.workers,
                pool.chunk_tokens,
                pool.max_batch,
                pool.pages(),
            ];
            limits.iter().all(|limit| *limit > 0) && pool.page_tokens > 0
        };
        if !self.pools().all(runs) {
            return Err(PlanError::Empty);
        }
        if let Some(prefill) = &self.prefill {
            let matches = self.decode.layout()?.matches(&*prefill.layout()?);
            matches.map_err(|error| PlanError::Unlike(error.to_string()))?;
        }
        for (request, asked) in trace.iter().enumerate() {
            if asked.prompt == 0 || asked.answer == 0 {
                return Err(PlanError::NoTokens(request));
            }
            let prompt = u64::from(asked.prompt - 1);
            let needs = [
                (self.prefill.as_ref(), prompt),
                (Some(&self.decode), asked.room()),
            ];
            for (pool, needed) in needs {
                let room = pool.map_or(u64::MAX, Pool::room);
                if needed > room {
                    return Err(PlanError::TooLong {
                        request,
                        needed,
                        room,
                    });
                }
            }
        }
        Ok(())
    }
}

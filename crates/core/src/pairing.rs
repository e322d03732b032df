//! What a routing policy is asked, and what it answers.

use crate::admission::{ClassId, Targets, TenantId};
use crate::fleet::Worker;
use crate::{RequestId, WorkerId};

/// Which worker of a pair is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// The one that computes the prompt.
    Prefill,
    /// The one that generates.
    Decode,
}

/// What a policy may know of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "explore", derive(Hash))]
pub struct RequestFacts {
    /// Which.
    pub request: RequestId,
    /// Tokens of its prompt.
    pub prompt_tokens: u32,
    /// Tokens that it may generate.
    pub new_tokens: u32,
    /// Whose it is.
    pub tenant: TenantId,
    /// Its class.
    pub class: ClassId,
    /// Among its tenant's requests of its class a lower number is served first.
    pub priority: i32,
    /// What its class aims at.
    pub targets: Targets,
}

impl RequestFacts {
    /// A request of the default tenant, in the first class.
    #[must_use]
    pub fn new(request: RequestId, prompt_tokens: u32, new_tokens: u32) -> Self {
        Self {
            request,
            prompt_tokens,
            new_tokens,
            tenant: TenantId::default(),
            class: ClassId::default(),
            priority: 0,
            targets: Targets::default(),
        }
    }
}

/// Which candidate, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Index into the candidates.
    pub index: usize,
    /// For logs and traces: the policy's name and the figures that decided.
    pub why: String,
}

/// Chooses among workers that can take the request now. Never called without candidates; they come
/// in the order of their names.
pub trait Policy {
    /// One of `candidates`.
    fn choose(&mut self, stage: Stage, candidates: &[&Worker], request: &RequestFacts) -> Choice;
}

/// A prefill and a decode worker for one request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "explore", derive(Hash))]
pub struct Pair {
    /// Who generates.
    pub decode: WorkerId,
    /// Who computes the prompt; `None` where the decode worker does.
    pub prefill: Option<WorkerId>,
    /// Why these.
    pub why: String,
}

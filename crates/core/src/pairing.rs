//! What a routing policy is asked, and what it answers.

mod filter;
mod why;

use std::sync::Arc;
use std::time::Duration;

use crate::admission::{ClassId, TenantId};
use crate::blocks::BlockChain;
use crate::fleet::Fleet;
use crate::{Instant, RequestId, WorkerId};

pub use crate::admission::Targets;
pub use filter::{FILTERS, Filtered, of_decode, of_prefill, takes_decode, takes_prefill};
pub use why::{Score, Shown, StageWhy, Why};

/// Which worker of a pair is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// The one that computes the prompt.
    Prefill,
    /// The one that generates.
    Decode,
}

impl Stage {
    /// As written in configuration and messages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Prefill => "prefill",
            Self::Decode => "decode",
        }
    }
}

/// What a policy may know of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "explore", derive(Hash))]
pub struct RequestFacts {
    /// Which.
    pub request: RequestId,
    /// Tokens of its prompt. At least 1.
    pub prompt_tokens: u32,
    /// Tokens that it may generate. At least 1.
    pub new_tokens: u32,
    /// Whose it is.
    pub tenant: TenantId,
    /// Its class.
    pub class: ClassId,
    /// Among its tenant's requests of its class a lower number is served first.
    pub priority: i32,
    /// When it arrived: its TTFT counts from then on.
    pub arrived: Instant,
    /// A hash of what its session goes by: a header, `prompt_cache_key` or the user. Equal ones go to
    /// the same workers where the policy says so.
    pub affinity: Option<u64>,
    /// What its class promises.
    pub targets: Targets,
    /// Workers that it must not go to at a stage: they failed it before.
    pub avoid: Arc<[(Stage, WorkerId)]>,
    /// The whole blocks of its prompt, for each way in which workers name them.
    pub blocks: Arc<[BlockChain]>,
}

impl RequestFacts {
    /// A request of the default tenant, in the first class, without a session or known blocks.
    #[must_use]
    pub fn new(request: RequestId, prompt_tokens: u32, new_tokens: u32) -> Self {
        Self {
            request,
            prompt_tokens,
            new_tokens,
            tenant: TenantId::default(),
            class: ClassId::default(),
            priority: 0,
            arrived: Instant::ZERO,
            affinity: None,
            targets: Targets::default(),
            avoid: [].into(),
            blocks: [].into(),
        }
    }
}

impl RequestFacts {
    /// Whether it must not go to a worker for a stage.
    #[must_use]
    pub fn avoids(&self, stage: Stage, worker: &WorkerId) -> bool {
        self.avoid.iter().any(|(s, w)| *s == stage && w == worker)
    }
}

/// A session's number, the same in every gateway: FNV-1a over its name.
#[must_use]
pub fn session(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

/// Why the decode worker computes the prompt itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Local {
    /// It does both by its role.
    Role,
    /// The prompt is short.
    ShortPrompt,
    /// It holds nearly all of the prompt.
    Held,
    /// No prefill worker is left, and the policy allows it.
    NoPrefill,
    /// All prefill workers have too much to do (`splitwise`).
    Mixed,
}

impl Local {
    /// As in metrics and messages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Role => "role",
            Self::ShortPrompt => "short_prompt",
            Self::Held => "held",
            Self::NoPrefill => "no_prefill",
            Self::Mixed => "mixed",
        }
    }
}

/// A prefill and a decode worker for one request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "explore", derive(Hash))]
pub struct Pair {
    /// Who generates.
    pub decode: WorkerId,
    /// Who computes the prompt; `None` where the decode worker does.
    pub prefill: Option<WorkerId>,
    /// Why the decode worker does; `None` where it does not.
    pub local: Option<Local>,
    /// Prompt tokens that whoever computes it seems to hold.
    pub cached_tokens: u32,
    /// Why these.
    pub why: Arc<Why>,
}

/// Why there is no pair for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "explore", derive(Hash))]
pub struct NoPair {
    /// The reason.
    pub reason: NoPairReason,
    /// Who was looked at.
    pub why: Arc<Why>,
}

/// Whether it is worth waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NoPairReason {
    /// Workers that could take it have no room now: it waits.
    NoRoom(Stage),
    /// No worker takes this stage of it.
    NoWorker(Stage),
    /// Its answer would come too late.
    TooLate(TooLate),
}

/// A promise that would be broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("predicted {what} is {} ms, and {} ms were promised", predicted.as_millis(), promised.as_millis())]
pub struct TooLate {
    /// `TTFT` or `TPOT`.
    pub what: &'static str,
    /// What the best pair would take.
    pub predicted: Duration,
    /// What was promised.
    pub promised: Duration,
}

/// Chooses a pair for a request.
pub trait Policy {
    /// The pair, or why there is none. Called again for a request that waits.
    fn pair(&mut self, now: Instant, fleet: &Fleet, request: &RequestFacts)
    -> Result<Pair, NoPair>;

    /// What [`Policy::pair`] would answer, with every worker's part in it; changes nothing.
    fn explain(&self, now: Instant, fleet: &Fleet, request: &RequestFacts) -> Result<Pair, NoPair>;

    /// Blocks that the prefix index knows at most.
    fn index_blocks(&self) -> usize {
        1_000_000
    }

    /// Whether decode workers compute prompts where no prefill worker is left.
    fn decodes_alone(&self) -> bool {
        false
    }
}

//! What the `[policy]` table says, typed. Defaults are those of `README.md`, with their sources there.

use std::time::Duration;

use tandem_core::pairing::{Stage, Targets};

/// The `[policy]` table and its tables.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PolicySettings {
    /// Seed of all random choices; drawn anew at every start where it is absent.
    pub seed: Option<u64>,
    /// What happens where no prefill worker is left.
    pub when_no_prefill: WhenNoPrefill,
    /// What names a request's session.
    pub session_header: SessionHeader,
    /// `[policy.prefill]`: how the worker that computes the prompt is chosen.
    pub prefill: StageSettings,
    /// `[policy.decode]`: how the worker that generates is chosen.
    pub decode: StageSettings,
    /// `[policy.pair]`: how the two are weighed together.
    pub pair: PairSettings,
    /// `[policy.topology]`: what "near" means.
    pub topology: TopologySettings,
    /// `[policy.local_prefill]`: prompts that the decode worker computes itself.
    pub local_prefill: LocalPrefill,
    /// `[policy.index]`: what is known of the workers' caches.
    pub index: IndexSettings,
    /// `[policy.slo]`: what is promised where a request's class does not say.
    pub slo: Targets,
    /// `[policy.consistent_hash]`.
    pub consistent_hash: ConsistentHash,
    /// `[policy.prefix_aware]`.
    pub prefix_aware: PrefixAware,
    /// `[policy.kv_cost]`.
    pub kv_cost: KvCost,
    /// `[policy.kvcache_centric]`.
    pub kvcache_centric: KvcacheCentric,
    /// `[policy.splitwise]`.
    pub splitwise: Splitwise,
    /// `[policy.slo_aware]`.
    pub slo_aware: SloAware,
}

/// The header that names a request's session. No policy reads it: whoever makes a request's facts does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionHeader(Option<String>);

impl SessionHeader {
    /// The header of that name, in lower case.
    #[must_use]
    pub const fn named(name: String) -> Self {
        Self(Some(name))
    }

    /// No header does.
    #[must_use]
    pub const fn none() -> Self {
        Self(None)
    }

    /// Its name, in lower case; `None` where none does.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.0.as_deref()
    }
}

impl Default for SessionHeader {
    fn default() -> Self {
        Self::named("x-session-id".to_owned())
    }
}

/// What happens where no prefill worker is left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenNoPrefill {
    /// Requests are refused until one is back.
    #[default]
    Refuse,
    /// Decode workers compute prompts themselves.
    Local,
}

/// A `[policy.prefill]` or `[policy.decode]` table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StageSettings {
    /// The rule.
    pub choose: Rule,
    /// Of `scored`: how one of the scored candidates is picked.
    pub picker: Picker,
    /// Of `scored`: the scorers that count, and how much.
    pub weights: Vec<(Scorer, f32)>,
    /// Labels that a worker must have.
    pub labels: Vec<(String, String)>,
}

/// How one of several workers is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rule {
    /// Any, with equal chances.
    Random,
    /// One after another, in the order of their names.
    RoundRobin,
    /// The less loaded one of two drawn by chance.
    PowerOfTwo,
    /// Prefill: the fewest prompt tokens waiting. Decode: the largest share of free pages. Equals by
    /// chance.
    #[default]
    LeastLoaded,
    /// The same for every request of a session.
    ConsistentHash,
    /// Whoever holds most of the prompt, unless loads are too unequal.
    PrefixAware,
    /// Mooncake's: the earliest first token.
    KvcacheCentric,
    /// Dynamo's: the lowest cost in blocks.
    KvCost,
    /// Splitwise's: pools with bounds.
    Splitwise,
    /// Whoever keeps the promises.
    SloAware,
    /// The best weighted sum of scorers.
    Scored,
}

impl Rule {
    /// All of them, by their names in configuration.
    pub const NAMES: [(&'static str, Self); 11] = [
        ("random", Self::Random),
        ("round_robin", Self::RoundRobin),
        ("power_of_two", Self::PowerOfTwo),
        ("least_loaded", Self::LeastLoaded),
        ("consistent_hash", Self::ConsistentHash),
        ("prefix_aware", Self::PrefixAware),
        ("kvcache_centric", Self::KvcacheCentric),
        ("kv_cost", Self::KvCost),
        ("splitwise", Self::Splitwise),
        ("slo_aware", Self::SloAware),
        ("scored", Self::Scored),
    ];

    /// As written in configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        name_of(&Self::NAMES, self)
    }

    /// Whether it asks what workers hold of the prompt.
    pub(crate) const fn wants_hits(self) -> bool {
        matches!(
            self,
            Self::PrefixAware | Self::KvcacheCentric | Self::KvCost | Self::SloAware
        )
    }
}

fn name_of<T: Copy + PartialEq>(names: &[(&'static str, T)], one: T) -> &'static str {
    let named = names.iter().find(|(_, other)| *other == one);
    named.map_or("", |(name, _)| name)
}

/// How one of the scored candidates is picked.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Picker {
    /// The highest score; equals by chance.
    #[default]
    Highest,
    /// By chance, those with higher scores more often: `exp(score / temperature)` with scores
    /// stretched to 0..1.
    Softmax {
        /// 0 is [`Picker::Highest`], infinity [`Rule::Random`].
        temperature: f32,
    },
    /// By chance, in proportion to the score.
    WeightedRandom,
    /// The better one of two drawn by chance.
    PowerOfTwo,
}

impl Picker {
    /// As written in configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Highest => "highest",
            Self::Softmax { .. } => "softmax",
            Self::WeightedRandom => "weighted_random",
            Self::PowerOfTwo => "power_of_two",
        }
    }
}

/// One measure of a candidate, from 0 (worst) to 1 (best).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scorer {
    /// Few prompt tokens waiting, against the most of any candidate.
    Queue,
    /// Share of pages that are free.
    Pages,
    /// Few requests, against the most of any candidate.
    Requests,
    /// Share of the prompt that it holds.
    Prefix,
    /// 1 for the worker of the request's session, 0 for the others.
    Session,
    /// How near the decode worker it is; of prefill workers only.
    Topology,
    /// Early first token, against the latest of any candidate; of prefill workers only.
    Ttft,
    /// Quick steps, against the slowest of any candidate; of decode workers only.
    Tpot,
}

impl Scorer {
    /// All of them, by their names in configuration.
    pub const NAMES: [(&'static str, Self); 8] = [
        ("queue", Self::Queue),
        ("pages", Self::Pages),
        ("requests", Self::Requests),
        ("prefix", Self::Prefix),
        ("session", Self::Session),
        ("topology", Self::Topology),
        ("ttft", Self::Ttft),
        ("tpot", Self::Tpot),
    ];

    /// As written in configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        name_of(&Self::NAMES, self)
    }

    /// Whether it means anything at this stage.
    #[must_use]
    pub const fn fits(self, stage: Stage) -> bool {
        match self {
            Self::Topology | Self::Ttft => matches!(stage, Stage::Prefill),
            Self::Tpot => matches!(stage, Stage::Decode),
            _ => true,
        }
    }
}

/// `[policy.pair]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PairSettings {
    /// Best candidates of each stage whose pairs are compared; 1: each stage chooses alone.
    pub candidates: u32,
    /// Worth of the nearest pair against the farthest, where a stage's best candidate is worth 1 more
    /// than its worst.
    pub topology: f32,
}

impl Default for PairSettings {
    fn default() -> Self {
        Self {
            candidates: 1,
            topology: 1.0,
        }
    }
}

/// `[policy.topology]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopologySettings {
    /// Labels' keys, the nearest first: workers with the same value are near.
    pub levels: Vec<String>,
}

impl Default for TopologySettings {
    fn default() -> Self {
        Self {
            levels: vec!["host".to_owned()],
        }
    }
}

/// `[policy.local_prefill]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalPrefill {
    /// Prompts of at most so many tokens; 0: none.
    pub max_prompt_tokens: u32,
    /// Prompts of which the decode worker holds all but so many tokens, and something; 0: none.
    pub max_uncached_tokens: u32,
    /// Only where fewer prompt tokens than this wait on the decode worker.
    pub max_queued_tokens: u32,
}

impl Default for LocalPrefill {
    fn default() -> Self {
        Self {
            max_prompt_tokens: 0,
            max_uncached_tokens: 0,
            max_queued_tokens: 2048,
        }
    }
}

/// `[policy.index]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexSettings {
    /// Blocks that are known at most.
    pub max_blocks: usize,
}

impl Default for IndexSettings {
    fn default() -> Self {
        Self {
            max_blocks: 1_000_000,
        }
    }
}

/// `[policy.consistent_hash]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConsistentHash {
    /// A worker with more than so many times the mean of requests is passed over; 0: never.
    pub load_factor: f32,
}

impl Default for ConsistentHash {
    fn default() -> Self {
        Self { load_factor: 1.25 }
    }
}

/// `[policy.prefix_aware]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PrefixAware {
    /// Share of the prompt that a worker must hold to be chosen for it.
    pub cache_threshold: f32,
    /// Loads are too unequal where the most and the fewest requests differ by more than this
    pub balance_abs_threshold: u32,
    /// and by more than this as a ratio: then the least loaded is chosen.
    pub balance_rel_threshold: f32,
}

impl Default for PrefixAware {
    fn default() -> Self {
        Self {
            cache_threshold: 0.3,
            balance_abs_threshold: 64,
            balance_rel_threshold: 1.5,
        }
    }
}

/// `[policy.kv_cost]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KvCost {
    /// What a block that the worker holds saves, of a block to compute.
    pub overlap_score_credit: f32,
    /// How much less where the worker has more to compute than the one with least: the credit is
    /// divided by 1 + decay * (its blocks / this prompt's blocks).
    pub overlap_score_credit_decay: f32,
    /// Worth of a block to compute against one to read while decoding.
    pub prefill_load_scale: f32,
    /// 0: the lowest cost; more: by chance, lower costs more often.
    pub router_temperature: f32,
}

impl Default for KvCost {
    fn default() -> Self {
        Self {
            overlap_score_credit: 1.0,
            overlap_score_credit_decay: 0.0,
            prefill_load_scale: 1.0,
            router_temperature: 0.0,
        }
    }
}

/// When a request is turned away because its promise would be broken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reject {
    /// Never.
    #[default]
    None,
    /// By the loads as they are when it is to be paired.
    Arrival,
    /// By the decode load as it will be when the prompt is computed.
    Predicted,
}

impl Reject {
    /// All of them, by their names in configuration.
    pub const NAMES: [(&'static str, Self); 3] = [
        ("none", Self::None),
        ("arrival", Self::Arrival),
        ("predicted", Self::Predicted),
    ];

    /// As written in configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        name_of(&Self::NAMES, self)
    }
}

/// `[policy.kvcache_centric]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KvcacheCentric {
    /// A prompt's time in milliseconds: constant, per token to compute, per token held, per square of
    /// a token to compute. `None`: what workers measured.
    pub prefill_model: Option<[f32; 4]>,
    /// Speed of the push in gigabits a second, where it can be what takes longest.
    pub transfer_gbps: Option<f32>,
    /// When to reject.
    pub reject: Reject,
    /// Of `predicted`: how long a request decodes, taken as the same for all.
    pub predicted_decode: Duration,
}

impl Default for KvcacheCentric {
    fn default() -> Self {
        Self {
            prefill_model: None,
            transfer_gbps: None,
            reject: Reject::None,
            predicted_decode: Duration::from_secs(10),
        }
    }
}

/// `[policy.splitwise]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Splitwise {
    /// A prefill worker with something to do takes no prompt past so many waiting tokens.
    pub prompt_max_pending_tokens: u32,
    /// A decode worker takes requests up to this share of its pages.
    pub token_mem_high: f32,
    /// Whether decode workers compute prompts that no prefill worker takes.
    pub mixed_pool: bool,
}

impl Default for Splitwise {
    fn default() -> Self {
        Self {
            prompt_max_pending_tokens: 8192,
            token_mem_high: 1.0,
            mixed_pool: true,
        }
    }
}

/// Which of those that keep the promise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Headroom {
    /// The one that is farthest from breaking it.
    #[default]
    Most,
    /// The one that is nearest to breaking it, so that others stay free.
    Least,
}

/// `[policy.slo_aware]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SloAware {
    /// Which of those that keep the promise.
    pub headroom: Headroom,
    /// When to reject.
    pub reject: Reject,
}

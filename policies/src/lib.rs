//! Routing policies: which of the workers that can take a request does.
//!
//! Pure, like the core: a policy sees the fleet's figures and the request's facts, and answers with
//! a choice and its reason. [`PolicySettings`] is the `[policy]` table of the configuration;
//! `presets/` holds tables to copy.
#![forbid(unsafe_code)]

mod choose;
mod random;

use serde::Deserialize;
use tandem_core::fleet::Worker;
use tandem_core::pairing::{Choice, Policy, RequestFacts, Stage};

use choose::Chooser;

/// The `[policy]` table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PolicySettings {
    /// Seed of all random choices; drawn anew at every start where it is absent.
    pub seed: Option<u64>,
    /// How the worker that computes the prompt is chosen.
    pub prefill: StageSettings,
    /// How the worker that generates is chosen.
    pub decode: StageSettings,
}

/// A `[policy.prefill]` or `[policy.decode]` table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StageSettings {
    /// The rule.
    pub choose: Rule,
}

/// How one of several workers is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// One after another, in the order of their names.
    RoundRobin,
    /// Any, with equal chances.
    Random,
    /// Prefill: the fewest prompt tokens waiting. Decode: the largest share of free pages. Equals by
    /// chance.
    #[default]
    LeastLoaded,
}

impl Rule {
    /// As written in configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RoundRobin => "round_robin",
            Self::Random => "random",
            Self::LeastLoaded => "least_loaded",
        }
    }
}

/// A policy made from its settings.
#[derive(Debug)]
pub struct Pairing {
    prefill: Chooser,
    decode: Chooser,
}

impl Pairing {
    /// `drawn_seed` is used where the settings hold none.
    #[must_use]
    pub fn new(settings: &PolicySettings, drawn_seed: u64) -> Self {
        let seed = settings.seed.unwrap_or(drawn_seed);
        Self {
            prefill: Chooser::new(settings.prefill.choose, seed ^ 0x70),
            decode: Chooser::new(settings.decode.choose, seed ^ 0x64),
        }
    }
}

impl Policy for Pairing {
    fn choose(&mut self, stage: Stage, candidates: &[&Worker], _: &RequestFacts) -> Choice {
        match stage {
            Stage::Prefill => self.prefill.choose(stage, candidates),
            Stage::Decode => self.decode.choose(stage, candidates),
        }
    }
}

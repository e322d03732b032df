//! Routing policies: which of the workers that can take a request do.
//!
//! Pure, like the core: a policy sees the fleet's figures and the request's facts, and answers with a
//! pair and its reason. A stage is filters, a rule that scores, and a picker; the decode worker is
//! chosen first, then the prefill worker, then their pairs are compared where the settings say so.
//! [`PolicySettings`] is the `[policy]` table of the configuration; `presets/` holds tables to copy.
//!
//! What must hold: no choice looks at more than the fleet's figures and the prefix index;
//! equals are told apart by chance.
#![forbid(unsafe_code)]

mod look;
mod measures;
mod pairing;
mod pick;
mod random;
mod rules;
mod settings;
mod stage;
#[cfg(test)]
mod tests;

pub use pairing::Pairing;
pub use settings::{
    ConsistentHash, Headroom, IndexSettings, KvCost, KvcacheCentric, LocalPrefill, PairSettings,
    Picker, PolicySettings, PrefixAware, Reject, Rule, Scorer, SessionHeader, SloAware, Splitwise,
    StageSettings, TopologySettings, WhenNoPrefill,
};
/// Labels of one worker, and labels that a stage can ask for, at most.
pub use tandem_core::fleet::LABELS as MAX_LABELS;

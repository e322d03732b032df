//! Choosing a token from logits.
//!
//! A choice depends on the logits, the sequence's own settings and its own tokens, never on the batch:
//! random numbers are computed from the seed and how many tokens were generated before, and what is
//! kept of those tokens is the same wherever they were generated. So a sequence that is continued
//! elsewhere, or checks the guesses of a draft head, chooses as it would have done without.
//!
//! The order is that of [`Sampling`]. Where nothing changes the logits, they are not copied.

mod adjust;
mod choice;
mod constrained;
mod logprobs;

pub(crate) use choice::choose;
pub(super) use logprobs::log_probabilities;

use adjust::Penalised;
use constrained::Constrained;
use tandem_constraint::{ConstraintError, Matching};

use crate::{Sampling, StopConditions};

/// How one sequence chooses, and what it must remember for it.
pub(crate) struct Sampler {
    settings: Sampling,
    penalised: Option<Penalised>,
    constrained: Constrained,
    /// Tokens that end the answer.
    ends: Vec<u32>,
    /// The model's end tokens, where they do not end the answer.
    ignored: Vec<u32>,
    min_tokens: u32,
}

/// What comes next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    Token(u32),
    /// Nothing may: the answer is complete.
    Complete,
    /// There is none, and why.
    Failed(String),
}

impl Sampler {
    /// For a prompt and the answer begun elsewhere. The model's own ends are `ends`.
    pub(super) fn new(
        settings: Sampling,
        stop: &StopConditions,
        ends: &[u32],
        (prompt, answer): (&[u32], &[u32]),
    ) -> Self {
        let (own, ignored) = match stop.ignore_eos {
            true => (&[][..], ends),
            false => (ends, &[][..]),
        };
        Self {
            constrained: Constrained::by(settings.constraint.as_deref()),
            ignored: ignored.to_vec(),
            penalised: Penalised::new(settings.penalties, prompt, answer),
            ends: own.iter().chain(&stop.token_ids).copied().collect(),
            min_tokens: stop.min_tokens,
            settings,
        }
    }

    pub(super) fn logprobs(&self) -> Option<u8> {
        self.settings.logprobs
    }

    /// Whether this token ends the answer.
    pub(super) fn ends(&self, token: u32) -> bool {
        self.ends.contains(&token)
    }

    /// Whether the likeliest token is what it takes, or at another temperature the one that was drawn:
    /// nothing is barred or changed, and nobody asks for probabilities.
    pub(crate) fn is_plain(&self) -> bool {
        matches!(self.constrained, Constrained::Free)
            && self.settings.logit_bias.is_empty()
            && self.settings.logprobs.is_none()
            && self.penalised.is_none()
            && self.min_tokens == 0
    }

    /// The seed of random choices; `None` where none is random.
    pub(crate) fn seed(&self) -> Option<u64> {
        (self.settings.temperature > 0.0).then_some(self.settings.seed)
    }

    /// The answer's token number `index` (from 0). `changed` is working memory.
    pub(crate) fn choose(&mut self, logits: &[f32], index: u32, changed: &mut Vec<f32>) -> Choice {
        let bars_ends = index < self.min_tokens && !self.ends.is_empty();
        let bias = &self.settings.logit_bias;
        let count = u64::from(index);
        let free = matches!(self.constrained, Constrained::Free);
        if free && !bars_ends && bias.is_empty() && self.penalised.is_none() {
            let chosen = choose(logits, &self.settings, count);
            return chosen.map_or_else(|| not_finite(logits), Choice::Token);
        }
        changed.clear();
        changed.extend_from_slice(logits);
        adjust::add_bias(changed, bias);
        if let Some(penalised) = &self.penalised {
            penalised.take_off(changed);
        }
        if let Constrained::By(following) = &mut self.constrained {
            if let Err(error) = following.bar_others(changed, &self.ends) {
                return Choice::Failed(error.to_string());
            }
            // Who ignores them wants to go on, and a constraint says where there is nothing to add.
            adjust::bar(changed, &self.ignored);
        }
        if bars_ends {
            adjust::bar(changed, &self.ends);
        }
        match choose(changed, &self.settings, count) {
            Some(token) => Choice::Token(token),
            None if self.constrained.may_end() => Choice::Complete,
            None => not_finite(logits),
        }
    }

    /// The answer has one more token. Whether its constraint lets it have no other.
    pub(super) fn took(&mut self, token: u32) -> Result<bool, ConstraintError> {
        if let Some(penalised) = &mut self.penalised {
            penalised.count(token);
        }
        match &mut self.constrained {
            Constrained::By(following) => {
                following.take(token)?;
                Ok(following.is_complete())
            }
            Constrained::Free | Constrained::Waits => Ok(false),
        }
    }

    /// Whether it cannot choose yet: its constraint is being compiled.
    pub(super) fn waits(&self) -> bool {
        matches!(self.constrained, Constrained::Waits)
    }

    pub(crate) fn is_constrained(&self) -> bool {
        matches!(self.constrained, Constrained::By(_))
    }

    /// Its constraint is compiled, and has been led through the answer begun elsewhere.
    pub(super) fn follow(&mut self, matching: Matching) {
        self.constrained.follow(matching);
    }

    /// Whether its constraint lets the answer have no other token.
    pub(super) fn is_complete(&self) -> bool {
        matches!(&self.constrained, Constrained::By(following) if following.is_complete())
    }

    /// Computes what may come next, where a constraint says it.
    pub(crate) fn look_ahead(&mut self) {
        if let Constrained::By(following) = &mut self.constrained {
            following.look_ahead();
        }
    }
}

fn not_finite(logits: &[f32]) -> Choice {
    let why = if logits.iter().any(|l| l.is_finite()) {
        "no token may come next: all are barred"
    } else {
        "the model gave no finite logits"
    };
    Choice::Failed(why.to_owned())
}

#[cfg(test)]
mod tests;

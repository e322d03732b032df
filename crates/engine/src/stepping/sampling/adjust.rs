//! What changes logits before a token is chosen.

use std::collections::HashMap;

use crate::Penalties;

/// Adds to the logits of single tokens.
pub(super) fn add_bias(logits: &mut [f32], bias: &[(u32, f32)]) {
    for (token, bias) in bias {
        logits[*token as usize] += bias;
    }
}

/// Makes tokens impossible.
pub(super) fn bar(logits: &mut [f32], tokens: &[u32]) {
    for token in tokens {
        if let Some(logit) = logits.get_mut(*token as usize) {
            *logit = f32::NEG_INFINITY;
        }
    }
}

/// Tokens that penalties apply to, and how often the answer has each.
#[derive(Debug)]
pub(super) struct Penalised {
    penalties: Penalties,
    counts: HashMap<u32, u32>,
}

impl Penalised {
    /// None where the penalties take nothing.
    pub(super) fn new(penalties: Penalties, prompt: &[u32], answer: &[u32]) -> Option<Self> {
        if penalties == Penalties::NONE {
            return None;
        }
        let mut counts = HashMap::new();
        if penalties.repetition != Penalties::NONE.repetition {
            counts.extend(prompt.iter().map(|token| (*token, 0)));
        }
        let mut penalised = Self { penalties, counts };
        for token in answer {
            penalised.count(*token);
        }
        Some(penalised)
    }

    pub(super) fn count(&mut self, token: u32) {
        *self.counts.entry(token).or_default() += 1;
    }

    /// Each token by itself, so that their order does not matter.
    pub(super) fn take_off(&self, logits: &mut [f32]) {
        let Penalties {
            presence,
            frequency,
            repetition,
        } = self.penalties;
        for (token, count) in &self.counts {
            let logit = &mut logits[*token as usize];
            if *logit > 0.0 {
                *logit /= repetition;
            } else {
                *logit *= repetition;
            }
            if *count > 0 {
                *logit -= frequency * *count as f32;
                *logit -= presence;
            }
        }
    }
}

//! How a sequence chooses its tokens and when it stops, and the ranges that both must keep.

use std::sync::Arc;

use tandem_constraint::Constraint;

/// Logits that one request may bias, at most.
pub const MAX_LOGIT_BIASES: usize = 4096;
/// Tokens that one request may name as ends, at most.
pub const MAX_STOP_TOKENS: usize = 4096;

/// How to choose tokens. Temperature 0 is greedy: the highest logit, the lowest id of equals.
///
/// In this order, as vLLM does: the bias is added, penalties are taken off, tokens that may not follow
/// are barred (`min_tokens`, the constraint), the temperature divides, then `min_p`, `top_k` and
/// `top_p` cut the tail off. Greedy choices heed all that stands before the temperature.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// Divides the logits; 0 is greedy.
    pub temperature: f32,
    /// Keep the likeliest tokens up to this probability mass; 1 keeps all.
    pub top_p: f32,
    /// Keep this many of the likeliest tokens; 0 keeps all.
    pub top_k: u32,
    /// Keep tokens that are at least this many times as likely as the likeliest; 0 keeps all.
    pub min_p: f32,
    /// What tokens lose for having been there before.
    pub penalties: Penalties,
    /// What is added to these tokens' logits.
    pub logit_bias: Vec<(u32, f32)>,
    /// What the answer must be.
    pub constraint: Option<Arc<Constraint>>,
    /// Seed of this sequence's own random numbers: the same seed draws the same tokens, whatever
    /// else the engine runs.
    pub seed: u64,
    /// Report the chosen token's log probability, and those of this many likeliest tokens: under the
    /// model's own distribution, before anything above changes it.
    pub logprobs: Option<u8>,
}

impl Sampling {
    /// The likeliest token, nothing reported.
    pub const GREEDY: Self = Self {
        temperature: 0.0,
        top_p: 1.0,
        top_k: 0,
        min_p: 0.0,
        penalties: Penalties::NONE,
        logit_bias: Vec::new(),
        constraint: None,
        seed: 0,
        logprobs: None,
    };

    /// Refuses what is out of range for a model of so many tokens.
    ///
    /// # Errors
    /// The first setting that is.
    pub fn check(&self, vocabulary: u32) -> Result<(), OutOfRange> {
        let within = |name, found: f32, fine: bool, allowed: &str| match fine {
            true => Ok(()),
            false => Err(OutOfRange::new(name, found, allowed)),
        };
        let Penalties {
            presence,
            frequency,
            repetition,
        } = self.penalties;
        let t = self.temperature;
        within("temperature", t, t >= 0.0 && t.is_finite(), "0 or more")?;
        let p = self.top_p;
        within("top_p", p, p > 0.0 && p <= 1.0, "over 0 and at most 1")?;
        let p = self.min_p;
        within("min_p", p, (0.0..=1.0).contains(&p), "between 0 and 1")?;
        for (name, penalty) in [
            ("presence_penalty", presence),
            ("frequency_penalty", frequency),
        ] {
            let fine = (-2.0..=2.0).contains(&penalty);
            within(name, penalty, fine, "between -2 and 2")?;
        }
        let fine = (0.01..=100.0).contains(&repetition);
        let allowed = "between 0.01 and 100";
        within("repetition_penalty", repetition, fine, allowed)?;
        self.check_bias(vocabulary)
    }

    fn check_bias(&self, vocabulary: u32) -> Result<(), OutOfRange> {
        let count = self.logit_bias.len();
        if count > MAX_LOGIT_BIASES {
            let allowed = format!("of at most {MAX_LOGIT_BIASES} tokens");
            return Err(OutOfRange::new("logit_bias", count, allowed));
        }
        for (token, bias) in &self.logit_bias {
            check_token("logit_bias", *token, vocabulary)?;
            if !(-100.0..=100.0).contains(bias) {
                return Err(OutOfRange::new("logit_bias", bias, "between -100 and 100"));
            }
        }
        Ok(())
    }
}

/// What is taken off the logits of tokens that were there before.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Penalties {
    /// Off the logits of tokens that the answer has; 0 takes nothing.
    pub presence: f32,
    /// The same, for each time that it has them.
    pub frequency: f32,
    /// Divides positive logits of tokens that prompt or answer have, and multiplies negative ones; 1
    /// changes nothing.
    pub repetition: f32,
}

impl Penalties {
    /// Nothing is taken off.
    pub const NONE: Self = Self {
        presence: 0.0,
        frequency: 0.0,
        repetition: 1.0,
    };
}

/// When to stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopConditions {
    /// Tokens to generate at most (with those generated elsewhere), at least 1.
    pub max_tokens: u32,
    /// Among so many first tokens is none that ends the answer; a constraint that leaves nothing else
    /// to say ends it all the same.
    pub min_tokens: u32,
    /// Texts that end the answer; they are not part of it.
    pub stop: Vec<String>,
    /// Tokens that end the answer as end-of-text tokens do; their text is not part of it.
    pub token_ids: Vec<u32>,
    /// Go on past the end-of-text tokens.
    pub ignore_eos: bool,
}

impl StopConditions {
    /// At an end-of-text token, or after so many tokens.
    #[must_use]
    pub const fn after(max_tokens: u32) -> Self {
        Self {
            max_tokens,
            min_tokens: 0,
            stop: Vec::new(),
            token_ids: Vec::new(),
            ignore_eos: false,
        }
    }

    /// Refuses what is out of range for a model of so many tokens.
    ///
    /// # Errors
    /// The first setting that is.
    pub fn check(&self, vocabulary: u32) -> Result<(), OutOfRange> {
        if self.max_tokens == 0 {
            return Err(OutOfRange::new("max_tokens", 0, "at least 1"));
        }
        if self.min_tokens > self.max_tokens {
            let allowed = format!("at most max_tokens, {}", self.max_tokens);
            return Err(OutOfRange::new("min_tokens", self.min_tokens, allowed));
        }
        let count = self.token_ids.len();
        if count > MAX_STOP_TOKENS {
            let allowed = format!("of at most {MAX_STOP_TOKENS} tokens");
            return Err(OutOfRange::new("stop_token_ids", count, allowed));
        }
        let mut ids = self.token_ids.iter();
        ids.try_for_each(|id| check_token("stop_token_ids", *id, vocabulary))
    }
}

fn check_token(name: &'static str, token: u32, vocabulary: u32) -> Result<(), OutOfRange> {
    if token < vocabulary {
        return Ok(());
    }
    let allowed = format!("of tokens below {vocabulary}, the vocabulary's size");
    Err(OutOfRange::new(name, format!("of token {token}"), allowed))
}

/// A setting that is out of range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} is {found}; it must be {allowed}")]
pub struct OutOfRange {
    /// Which setting.
    pub name: &'static str,
    /// What it is.
    pub found: String,
    /// What it may be.
    pub allowed: String,
}

impl OutOfRange {
    fn new(name: &'static str, found: impl ToString, allowed: impl Into<String>) -> Self {
        Self {
            name,
            found: found.to_string(),
            allowed: allowed.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Spoil = fn(&mut Sampling, &mut StopConditions);

    #[test]
    fn what_is_out_of_range_is_named_with_what_it_may_be() {
        let cases: &[(&str, Spoil)] = &[
            ("temperature is NaN", |s, _| s.temperature = f32::NAN),
            ("top_p is 0", |s, _| s.top_p = 0.0),
            ("min_p is 1.5; it must be between 0 and 1", |s, _| {
                s.min_p = 1.5;
            }),
            ("presence_penalty is 3", |s, _| s.penalties.presence = 3.0),
            ("frequency_penalty is NaN", |s, _| {
                s.penalties.frequency = f32::NAN;
            }),
            ("repetition_penalty is 0", |s, _| {
                s.penalties.repetition = 0.0;
            }),
            (
                "logit_bias is of token 10; it must be of tokens below 10",
                |s, _| {
                    s.logit_bias = vec![(10, 1.0)];
                },
            ),
            ("logit_bias is inf", |s, _| {
                s.logit_bias = vec![(1, f32::INFINITY)];
            }),
            (
                "logit_bias is 5000; it must be of at most 4096 tokens",
                |s, _| {
                    s.logit_bias = vec![(1, 1.0); 5000];
                },
            ),
            ("max_tokens is 0", |_, s| s.max_tokens = 0),
            (
                "min_tokens is 6; it must be at most max_tokens, 5",
                |_, s| {
                    s.min_tokens = 6;
                },
            ),
            ("stop_token_ids is of token 99", |_, s| {
                s.token_ids = vec![99]
            }),
        ];
        for (message, spoil) in cases {
            let (mut sampling, mut stop) = (Sampling::GREEDY, StopConditions::after(5));
            assert_eq!((sampling.check(10), stop.check(10)), (Ok(()), Ok(())));
            spoil(&mut sampling, &mut stop);
            let error = sampling.check(10).and(stop.check(10)).unwrap_err();
            assert!(error.to_string().starts_with(message), "{error}");
        }
    }
}

//! How a sequence chooses tokens and when it stops, between the schema's messages and the engine
//! boundary's types. Gateways send the same messages to agents, which read them by this, too.
//!
//! Reading refuses what has no meaning; ranges are for [`Sampling::check`] and
//! [`StopConditions::check`], which know the model.

use std::sync::Arc;

use tandem_engine::{Constraint, Penalties, Sampling, StopConditions};
use tandem_wire::convert::{Nonsense, nonsense};
use tandem_wire::proto;
use tandem_wire::proto::constraint::Kind;

pub(crate) fn sampling(s: &Sampling) -> proto::Sampling {
    let bias = |(token, bias): &(u32, f32)| proto::LogitBias {
        token: *token,
        bias: *bias,
    };
    proto::Sampling {
        temperature: s.temperature,
        top_p: s.top_p,
        top_k: s.top_k,
        seed: s.seed,
        logprobs: s.logprobs.map(u32::from),
        min_p: s.min_p,
        presence_penalty: s.penalties.presence,
        frequency_penalty: s.penalties.frequency,
        repetition_penalty: Some(s.penalties.repetition),
        logit_bias: s.logit_bias.iter().map(bias).collect(),
        constraint: s.constraint.as_deref().map(constraint),
    }
}

fn constraint(constraint: &Constraint) -> proto::Constraint {
    let kind = match constraint.clone() {
        Constraint::JsonSchema(schema) => Kind::JsonSchema(schema),
        Constraint::Regex(regex) => Kind::Regex(regex),
        Constraint::Lark(grammar) => Kind::Lark(grammar),
    };
    proto::Constraint { kind: Some(kind) }
}

/// Reads how to choose tokens.
///
/// # Errors
/// Where a number does not fit its place, or a constraint is of no kind.
pub fn read_sampling(s: proto::Sampling) -> Result<Sampling, Nonsense> {
    let logprobs = s.logprobs.map(u8::try_from).transpose();
    let constraint = s.constraint.map(read_constraint).transpose()?;
    Ok(Sampling {
        temperature: s.temperature,
        top_p: s.top_p,
        top_k: s.top_k,
        min_p: s.min_p,
        penalties: Penalties {
            presence: s.presence_penalty,
            frequency: s.frequency_penalty,
            repetition: s.repetition_penalty.unwrap_or(Penalties::NONE.repetition),
        },
        logit_bias: s.logit_bias.iter().map(|b| (b.token, b.bias)).collect(),
        constraint: constraint.map(Arc::new),
        seed: s.seed,
        logprobs: logprobs.map_err(|_| nonsense("more than 255 logprobs"))?,
    })
}

fn read_constraint(constraint: proto::Constraint) -> Result<Constraint, Nonsense> {
    let kind = constraint.kind;
    Ok(match kind.ok_or_else(|| nonsense("an empty constraint"))? {
        Kind::JsonSchema(schema) => Constraint::JsonSchema(schema),
        Kind::Regex(regex) => Constraint::Regex(regex),
        Kind::Lark(grammar) => Constraint::Lark(grammar),
    })
}

pub(crate) fn stop(stop: StopConditions) -> proto::Stop {
    proto::Stop {
        max_tokens: stop.max_tokens,
        texts: stop.stop,
        ignore_eos: stop.ignore_eos,
        min_tokens: stop.min_tokens,
        token_ids: stop.token_ids,
    }
}

/// Reads when to stop.
#[must_use]
pub fn read_stop(stop: proto::Stop) -> StopConditions {
    StopConditions {
        max_tokens: stop.max_tokens,
        min_tokens: stop.min_tokens,
        stop: stop.texts,
        token_ids: stop.token_ids,
        ignore_eos: stop.ignore_eos,
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;

    use super::*;

    fn constraints() -> impl Strategy<Value = Constraint> {
        prop_oneof![
            ".{0,9}".prop_map(Constraint::JsonSchema),
            ".{0,9}".prop_map(Constraint::Regex),
            ".{0,9}".prop_map(Constraint::Lark),
        ]
    }

    prop_compose! {
        fn samplings()(
            (temperature, top_p, min_p) in (0f32..3.0, 0f32..1.0, 0f32..1.0),
            (presence, frequency, repetition) in (-2f32..2.0, -2f32..2.0, 0.1f32..3.0),
            logit_bias in vec((any::<u32>(), -100f32..100.0), 0..5),
            constraint in option::of(constraints().prop_map(Arc::new)),
            (top_k, seed, logprobs) in any::<(u32, u64, Option<u8>)>(),
        ) -> Sampling {
            let penalties = Penalties { presence, frequency, repetition };
            Sampling {
                temperature, top_p, top_k, min_p, penalties, logit_bias, constraint, seed, logprobs,
            }
        }
    }

    prop_compose! {
        fn stops()(
            (max_tokens, min_tokens, ignore_eos) in any::<(u32, u32, bool)>(),
            stop in vec(".{0,5}", 0..5), token_ids in vec(any::<u32>(), 0..5),
        ) -> StopConditions {
            StopConditions { max_tokens, min_tokens, stop, token_ids, ignore_eos }
        }
    }

    proptest! {
        #[test]
        fn settings_go_both_ways(settings in samplings(), ends in stops()) {
            prop_assert_eq!(read_sampling(sampling(&settings)), Ok(settings));
            prop_assert_eq!(read_stop(stop(ends.clone())), ends);
        }
    }

    #[test]
    fn an_absent_repetition_penalty_changes_nothing() {
        let read = read_sampling(proto::Sampling::default()).unwrap();
        assert_eq!(read.penalties, Penalties::NONE);
        let empty = proto::Sampling {
            constraint: Some(proto::Constraint::default()),
            ..proto::Sampling::default()
        };
        assert!(read_sampling(empty).is_err());
    }
}

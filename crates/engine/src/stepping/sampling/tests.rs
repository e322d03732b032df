use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::Penalties;

const VOCABULARY: u32 = 24;
const ENDS: [u32; 2] = [22, 23];

fn sampler(sampling: Sampling, stop: &StopConditions, prompt: &[u32], answer: &[u32]) -> Sampler {
    Sampler::new(sampling, stop, &ENDS, (prompt, answer))
}

fn settings() -> impl Strategy<Value = Sampling> {
    let penalties = (-2f32..=2.0, -2f32..=2.0, 0.5f32..=2.0);
    let bias = vec((0..VOCABULARY, -100f32..=100.0), 0..4);
    let tail = (0f32..2.0, 0.1f32..=1.0, 0u32..8, 0f32..0.5);
    (penalties, bias, tail, any::<u64>()).prop_map(|(penalties, logit_bias, tail, seed)| Sampling {
        temperature: if tail.0 < 0.5 { 0.0 } else { tail.0 },
        top_p: tail.1,
        top_k: tail.2,
        min_p: tail.3,
        penalties: Penalties {
            presence: penalties.0,
            frequency: penalties.1,
            repetition: penalties.2,
        },
        logit_bias,
        seed,
        ..Sampling::GREEDY
    })
}

fn logits() -> impl Strategy<Value = Vec<f32>> {
    vec(-20f32..20.0, VOCABULARY as usize)
}

fn tokens() -> impl Strategy<Value = Vec<u32>> {
    vec(0..VOCABULARY, 0..12)
}

/// The logits as a naive model changes them: counting anew, token by token.
fn naive(
    logits: &[f32],
    sampling: &Sampling,
    prompt: &[u32],
    answer: &[u32],
    barred: &[u32],
) -> Vec<f32> {
    let p = sampling.penalties;
    let change = |(token, logit): (u32, &f32)| {
        if barred.contains(&token) {
            return f32::NEG_INFINITY;
        }
        let bias = sampling.logit_bias.iter().filter(|(t, _)| *t == token);
        let mut logit = bias.fold(*logit, |logit, (_, bias)| logit + bias);
        let times = answer.iter().filter(|t| **t == token).count();
        if times > 0 || prompt.contains(&token) {
            logit = if logit > 0.0 {
                logit / p.repetition
            } else {
                logit * p.repetition
            };
        }
        if times > 0 {
            logit = logit - p.frequency * times as f32 - p.presence;
        }
        logit
    };
    (0..).zip(logits).map(change).collect()
}

proptest! {
    #[test]
    fn penalties_and_bias_are_those_of_a_naive_model(
        sampling in settings(), prompt in tokens(), answer in tokens(), elsewhere in 0usize..12,
        min_tokens in 0u32..12, logits in logits(),
    ) {
        let stop = StopConditions { min_tokens, ..StopConditions::after(20) };
        // Some of the answer was generated elsewhere.
        let (before, here) = answer.split_at(elsewhere.min(answer.len()));
        let mut sampler = sampler(sampling.clone(), &stop, &prompt, before);
        for token in here {
            sampler.took(*token).unwrap();
        }
        let index = answer.len() as u32;
        let barred = if index < min_tokens { &ENDS[..] } else { &[] };
        let want = choose(&naive(&logits, &sampling, &prompt, &answer, barred), &sampling, index.into());
        let got = sampler.choose(&logits, index, &mut Vec::new());
        prop_assert_eq!(got, Choice::Token(want.unwrap()));
    }

    #[test]
    fn a_bias_of_100_decides_and_one_of_minus_100_bars(
        sampling in settings(), answer in tokens(), token in 0..VOCABULARY, logits in logits(),
    ) {
        for (bias, chosen) in [(100.0, true), (-100.0, false)] {
            let sampling = Sampling {
                logit_bias: vec![(token, bias)],
                penalties: Penalties::NONE,
                ..sampling.clone()
            };
            let mut sampler = sampler(sampling, &StopConditions::after(100), &[], &answer);
            for index in 0..20 {
                let got = sampler.choose(&logits, index, &mut Vec::new());
                prop_assert_eq!(got == Choice::Token(token), chosen, "{:?}", got);
            }
        }
    }
}

#[test]
fn the_answer_ends_no_earlier_than_after_min_tokens() {
    let mut logits = vec![0.0; VOCABULARY as usize];
    (logits[3], logits[5], logits[23]) = (1.0, 2.0, 3.0);
    let stop = StopConditions {
        min_tokens: 2,
        token_ids: vec![5],
        ..StopConditions::after(9)
    };
    let mut sampler = sampler(Sampling::GREEDY, &stop, &[], &[]);
    let chosen = [0, 1, 2].map(|index| sampler.choose(&logits, index, &mut Vec::new()));
    assert_eq!(chosen, [3, 3, 23].map(Choice::Token));
    assert!(sampler.ends(5) && sampler.ends(22) && !sampler.ends(3));
}

#[test]
fn where_every_token_ends_the_answer_min_tokens_leave_none() {
    let stop = StopConditions {
        min_tokens: 1,
        token_ids: (0..VOCABULARY).collect(),
        ..StopConditions::after(9)
    };
    let mut sampler = sampler(Sampling::GREEDY, &stop, &[], &[]);
    let got = sampler.choose(&[0.0; VOCABULARY as usize], 0, &mut Vec::new());
    assert!(matches!(got, Choice::Failed(why) if why.contains("barred")));
    let got = sampler.choose(&[f32::NAN; VOCABULARY as usize], 9, &mut Vec::new());
    assert!(matches!(got, Choice::Failed(why) if why.contains("finite")));
}

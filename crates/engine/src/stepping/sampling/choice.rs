//! From logits to one token.

use std::cmp::Ordering;

use crate::Sampling;

/// A token and its logit.
pub(super) type Candidate = (u32, f32);

/// Likeliest first; of equals, the lowest id.
pub(super) fn likeliest(a: &Candidate, b: &Candidate) -> Ordering {
    b.1.total_cmp(&a.1).then(a.0.cmp(&b.0))
}

/// The sequence's token number `index` (from 0). `None`: no logit is a finite number.
pub(crate) fn choose(logits: &[f32], sampling: &Sampling, index: u64) -> Option<u32> {
    let (best, max) = greedy(logits)?;
    if sampling.temperature == 0.0 || sampling.top_k == 1 {
        return Some(best);
    }
    let temperature = f64::from(sampling.temperature);
    let weight = |logit: f32| (f64::from(logit - max) / temperature).exp();
    let mut kept: Vec<Candidate> = (0u32..).zip(logits.iter().copied()).collect();
    kept.retain(|(_, logit)| logit.is_finite());
    if sampling.min_p > 0.0 {
        let least = f64::from(sampling.min_p);
        kept.retain(|(_, logit)| weight(*logit) >= least);
    }
    let top_k = sampling.top_k as usize;
    if top_k > 0 && top_k < kept.len() {
        kept.select_nth_unstable_by(top_k - 1, likeliest);
        kept.truncate(top_k);
        kept.sort_unstable_by_key(|(token, _)| *token);
    }
    if sampling.top_p < 1.0 {
        keep_mass(&mut kept, f64::from(sampling.top_p), weight);
    }
    let total: f64 = kept.iter().map(|(_, logit)| weight(*logit)).sum();
    let mut left = uniform(sampling.seed, index) * total;
    for (token, logit) in &kept {
        left -= weight(*logit);
        if left < 0.0 {
            return Some(*token);
        }
    }
    kept.last().map(|(token, _)| *token)
}

/// Keeps the likeliest candidates that together reach `mass`, at least one.
fn keep_mass(kept: &mut Vec<Candidate>, mass: f64, weight: impl Fn(f32) -> f64) {
    let total: f64 = kept.iter().map(|(_, logit)| weight(*logit)).sum();
    let mut sorted = 0;
    let mut sum = 0.0;
    while sorted < kept.len() {
        // Most often a few candidates hold the mass: order no more than are looked at.
        let next = (sorted.max(32) * 8).min(kept.len());
        let rest = &mut kept[sorted..];
        if next - sorted < rest.len() {
            rest.select_nth_unstable_by(next - sorted - 1, likeliest);
        }
        rest[..next - sorted].sort_unstable_by(likeliest);
        for index in sorted..next {
            sum += weight(kept[index].1);
            if sum >= mass * total {
                kept.truncate(index + 1);
                return;
            }
        }
        sorted = next;
    }
}

fn greedy(logits: &[f32]) -> Option<(u32, f32)> {
    let mut best = None;
    let mut max = f32::NEG_INFINITY;
    for (token, logit) in (0u32..).zip(logits) {
        if *logit > max {
            (best, max) = (Some(token), *logit);
        }
    }
    best.filter(|_| max.is_finite()).map(|token| (token, max))
}

/// A number in `[0, 1)` from a seed and a count (SplitMix64, Steele et al., OOPSLA 2014).
fn uniform(seed: u64, index: u64) -> f64 {
    let mix = |mut z: u64| {
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;
    let word = mix(mix(seed.wrapping_add(GAMMA)).wrapping_add((index + 1).wrapping_mul(GAMMA)));
    (word >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const GREEDY: Sampling = Sampling::GREEDY;

    fn draws(logits: &[f32], sampling: Sampling) -> Vec<u32> {
        (0..4000)
            .map(|i| choose(logits, &sampling, i).unwrap())
            .collect()
    }

    fn share(draws: &[u32], token: u32) -> f64 {
        draws.iter().filter(|t| **t == token).count() as f64 / draws.len() as f64
    }

    #[test]
    fn greedy_takes_the_lowest_id_of_equals() {
        assert_eq!(choose(&[1.0, 3.0, 3.0, f32::NAN], &GREEDY, 0), Some(1));
        assert_eq!(choose(&[f32::NAN; 3], &GREEDY, 0), None);
        assert_eq!(choose(&[f32::INFINITY, 0.0], &GREEDY, 0), None);
    }

    #[test]
    fn tokens_are_drawn_by_their_probability() {
        let logits = [0.0, 1.0f32.ln(), 2.0f32.ln(), f32::NEG_INFINITY];
        let draws = draws(
            &logits,
            Sampling {
                temperature: 1.0,
                seed: 7,
                ..GREEDY
            },
        );
        assert!((share(&draws, 2) - 0.5).abs() < 0.03);
        assert!((share(&draws, 0) - 0.25).abs() < 0.03);
        assert_eq!(share(&draws, 3), 0.0);
    }

    #[test]
    fn a_seed_and_a_count_decide_a_draw() {
        let logits: Vec<f32> = (0..500).map(|i| (i % 17) as f32 / 9.0).collect();
        let sampling = Sampling {
            temperature: 0.8,
            top_p: 0.9,
            seed: 42,
            ..GREEDY
        };
        let all = draws(&logits, sampling.clone());
        assert_eq!(choose(&logits, &sampling, 1234), Some(all[1234]));
        assert_ne!(
            all,
            draws(
                &logits,
                Sampling {
                    seed: 43,
                    ..sampling.clone()
                }
            )
        );
    }

    #[test]
    fn top_k_and_top_p_cut_the_tail() {
        let logits = [0.0, 3.0, 2.0, 1.0, 2.5];
        let sampling = Sampling {
            temperature: 5.0,
            seed: 1,
            ..GREEDY
        };
        let top_k = draws(
            &logits,
            Sampling {
                top_k: 2,
                ..sampling.clone()
            },
        );
        assert!(top_k.iter().all(|t| [1, 4].contains(t)) && share(&top_k, 4) > 0.3);
        let top_p = draws(
            &logits,
            Sampling {
                top_p: 0.01,
                ..sampling.clone()
            },
        );
        assert_eq!(share(&top_p, 1), 1.0);
        let flat = vec![0.0; 2000];
        let half = draws(
            &flat,
            Sampling {
                top_p: 0.5,
                ..sampling.clone()
            },
        );
        assert!(
            half.iter().all(|t| *t < 1000),
            "of equals the lowest ids are kept"
        );
    }

    proptest! {
        /// Against tokens sorted and cut off one by one.
        #[test]
        fn min_p_keeps_what_a_naive_model_keeps(
            logits in vec(-8f32..8.0, 1..40), min_p in 0f32..=1.0, top_p in 0.05f32..=1.0,
            temperature in 0.1f32..3.0, seed: u64,
        ) {
            let sampling = Sampling { temperature, min_p, top_p, seed, ..GREEDY };
            let scaled = |l: &f32| f64::from(*l) / f64::from(temperature);
            let all: f64 = logits.iter().map(|l| scaled(l).exp()).sum();
            let mut probable: Vec<(u32, f64)> = (0..)
                .zip(logits.iter().map(|l| scaled(l).exp() / all))
                .collect();
            probable.sort_by(|a, b| b.1.total_cmp(&a.1));
            let most = probable[0].1;
            // Not what a rounding error decides.
            let (surely, maybe) = (f64::from(min_p) + 1e-5, f64::from(min_p) - 1e-5);
            probable.retain(|(_, p)| *p >= maybe * most);
            let mass: f64 = probable.iter().map(|(_, p)| p).sum();
            let mut before = 0.0;
            let may: Vec<u32> = probable
                .iter()
                .filter(|(_, p)| {
                    let kept = before <= f64::from(top_p) * mass + 1e-5;
                    before += p;
                    kept
                })
                .map(|(token, _)| *token)
                .collect();
            let drawn: Vec<u32> = (0..300).map(|i| choose(&logits, &sampling, i).unwrap()).collect();
            prop_assert!(drawn.iter().all(|t| may.contains(t)), "{drawn:?} of {may:?}");
            if surely > 1.0 {
                prop_assert!(drawn.iter().all(|t| *t == probable[0].0));
            }
        }
    }
}

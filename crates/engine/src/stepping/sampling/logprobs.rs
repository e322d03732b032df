//! Log probabilities, as clients ask for them.

use super::choice::{Candidate, likeliest};

/// Log probabilities under the model's own distribution: the chosen token's, then the `top`
/// likeliest tokens'.
pub(in crate::stepping) fn log_probabilities(
    logits: &[f32],
    chosen: u32,
    top: u8,
) -> Vec<(u32, f32)> {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits
        .iter()
        .map(|logit| f64::from(logit - max).exp())
        .sum();
    let log_sum = sum.ln();
    let log = |logit: f32| (f64::from(logit - max) - log_sum) as f32;
    let mut out = vec![(chosen, log(logits[chosen as usize]))];
    let top = usize::from(top).min(logits.len());
    if top > 0 {
        let mut all: Vec<Candidate> = (0u32..).zip(logits.iter().copied()).collect();
        all.select_nth_unstable_by(top - 1, likeliest);
        all[..top].sort_unstable_by(likeliest);
        out.extend(
            all[..top]
                .iter()
                .map(|(token, logit)| (*token, log(*logit))),
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_probabilities_are_of_the_whole_distribution() {
        let logits = [1.0f32.ln(), 2.0f32.ln(), 5.0f32.ln()];
        let got = log_probabilities(&logits, 0, 2);
        let near = |(token, log): (u32, f32), t: u32, p: f32| {
            assert_eq!(token, t);
            assert!((log.exp() - p).abs() < 1e-5);
        };
        near(got[0], 0, 0.125);
        near(got[1], 2, 0.625);
        near(got[2], 1, 0.25);
    }
}

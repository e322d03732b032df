//! Pickers: which of the scored candidates.

use crate::random::Random;
use crate::settings::Picker;

/// The index of a candidate by its score. Higher is better; candidates and scores are the same in
/// number, and at least one.
pub(crate) fn pick(picker: Picker, scores: &[f32], random: &mut Random) -> usize {
    match picker {
        Picker::Softmax { temperature } if temperature > 0.0 => {
            softmax(scores, temperature, random)
        }
        Picker::Highest | Picker::Softmax { .. } => highest(scores, random),
        Picker::WeightedRandom => weighted(|i| scores[i].max(0.0), scores.len(), random),
        Picker::PowerOfTwo => {
            let (a, b) = two(scores.len(), random);
            if scores[b] > scores[a] { b } else { a }
        }
    }
}

/// The highest score; equals by chance, so that gateways that see the same do not do the same.
fn highest(scores: &[f32], random: &mut Random) -> usize {
    let best = most(scores);
    let equals = scores.iter().filter(|score| **score == best).count();
    let which = if equals > 1 { random.below(equals) } else { 0 };
    let mut those = scores
        .iter()
        .enumerate()
        .filter(|(_, score)| **score == best);
    those.nth(which).map_or(0, |(at, _)| at)
}

/// The highest of some numbers; of none, minus infinity. Eight at a time.
pub(crate) fn most(numbers: &[f32]) -> f32 {
    let higher = |a: f32, b: f32| if b > a { b } else { a };
    let mut best = [f32::NEG_INFINITY; 8];
    let mut eights = numbers.chunks_exact(8);
    for eight in &mut eights {
        for (best, number) in best.iter_mut().zip(eight) {
            *best = higher(*best, *number);
        }
    }
    let rest = eights.remainder().iter().copied();
    best.into_iter().chain(rest).fold(f32::NEG_INFINITY, higher)
}

fn softmax(scores: &[f32], temperature: f32, random: &mut Random) -> usize {
    let (low, high) = range(scores);
    let scale = (high - low) * temperature;
    if scale <= 0.0 {
        return random.below(scores.len());
    }
    let weights = scores.iter().map(|score| ((score - high) / scale).exp());
    let weights: Vec<f32> = weights.collect();
    weighted(|i| weights[i], weights.len(), random)
}

/// In proportion to `weight`; all alike where all weigh nothing.
pub(crate) fn weighted(weight: impl Fn(usize) -> f32, count: usize, random: &mut Random) -> usize {
    let total: f32 = (0..count).map(&weight).sum();
    if total <= 0.0 {
        return random.below(count);
    }
    let mut left = random.unit() * total;
    for at in 0..count {
        left -= weight(at);
        if left < 0.0 {
            return at;
        }
    }
    // The sums' rounding.
    count - 1
}

/// Two different ones, where there are two.
fn two(count: usize, random: &mut Random) -> (usize, usize) {
    let a = random.below(count);
    if count == 1 {
        return (a, a);
    }
    let b = random.below(count - 1);
    (a, if b >= a { b + 1 } else { b })
}

/// The lowest and the highest of some numbers.
pub(crate) fn range(scores: &[f32]) -> (f32, f32) {
    let start = (f32::INFINITY, f32::NEG_INFINITY);
    scores
        .iter()
        .fold(start, |(low, high), s| (low.min(*s), high.max(*s)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(picker: Picker, scores: &[f32]) -> Vec<usize> {
        let mut random = Random::new(7);
        let mut counts = vec![0; scores.len()];
        for _ in 0..3000 {
            counts[pick(picker, scores, &mut random)] += 1;
        }
        counts
    }

    #[test]
    fn the_highest_wins_and_equals_share() {
        let counts = counts(Picker::Highest, &[1.0, 3.0, 3.0, -2.0]);
        assert_eq!((counts[0], counts[3]), (0, 0));
        assert!(counts[1] > 1300 && counts[2] > 1300, "{counts:?}");
    }

    #[test]
    fn softmax_prefers_the_better_the_more_the_colder() {
        let share = |temperature| counts(Picker::Softmax { temperature }, &[0.0, 1.0])[0];
        assert_eq!(share(0.0), 0);
        let (cold, warm, hot) = (share(0.3), share(1.0), share(100.0));
        // e^(-1/T) of the other's weight.
        assert!((60..170).contains(&cold), "{cold}");
        assert!((700..920).contains(&warm), "{warm}");
        assert!((1400..1600).contains(&hot), "{hot}");
    }

    #[test]
    fn weighted_random_follows_the_scores() {
        let counts = counts(Picker::WeightedRandom, &[1.0, 0.0, 3.0]);
        assert_eq!(counts[1], 0);
        assert!((600..900).contains(&counts[0]), "{counts:?}");
        let equal = super::tests::counts(Picker::WeightedRandom, &[0.0, 0.0]);
        assert!(equal[0] > 1300 && equal[1] > 1300);
    }

    #[test]
    fn the_worst_never_wins_against_another_one_drawn() {
        let counts = counts(Picker::PowerOfTwo, &[0.0, 1.0, 2.0]);
        assert_eq!(counts[0], 0);
        assert!((800..1200).contains(&counts[1]), "{counts:?}");
        assert_eq!(super::tests::counts(Picker::PowerOfTwo, &[1.0]), [3000]);
    }
}

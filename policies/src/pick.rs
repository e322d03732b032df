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
        Picker::WeightedRandom => weighted(scores, random),
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
    let weights = scores.iter().map(|score| exp((score - high) / scale));
    weighted(&weights.collect::<Vec<f32>>(), random)
}

/// e to the power of `x`, which is not above 0, to within a millionth of it; 2^-125 below -87. Without a
/// branch or a call, so that several are computed at a time. The polynomial is that of Cephes' `expf`.
fn exp(x: f32) -> f32 {
    /// Adding it rounds to a whole number, which is then in the lowest bits.
    const ROUND: f32 = 12_582_912.0;
    let x = x.max(-87.0);
    let rounded = x * std::f32::consts::LOG2_E + ROUND;
    let whole = rounded - ROUND;
    let rest = x - whole * 0.693_359_4 + whole * 2.121_944_4e-4;
    let polynomial = 1.987_569_1e-4;
    let polynomial = polynomial * rest + 1.398_199_9e-3;
    let polynomial = polynomial * rest + 8.333_452e-3;
    let polynomial = polynomial * rest + 4.166_579_6e-2;
    let polynomial = polynomial * rest + 1.666_666_6e-1;
    let polynomial = polynomial * rest + 0.5;
    let power = rounded
        .to_bits()
        .wrapping_sub(ROUND.to_bits())
        .wrapping_add(127)
        << 23;
    (polynomial * rest * rest + rest + 1.0) * f32::from_bits(power)
}

/// In proportion to the weights, of which those below 0 count as 0; all alike where all weigh nothing.
pub(crate) fn weighted(weights: &[f32], random: &mut Random) -> usize {
    /// What is summed up together.
    const PART: usize = 64;
    let sum = |part: &[f32]| {
        let mut sums = [0.0; 8];
        let mut eights = part.chunks_exact(8);
        for eight in &mut eights {
            for (sum, weight) in sums.iter_mut().zip(eight) {
                *sum += weight.max(0.0);
            }
        }
        let rest: f32 = eights
            .remainder()
            .iter()
            .map(|weight| weight.max(0.0))
            .sum();
        sums.iter().sum::<f32>() + rest
    };
    let sums: Vec<f32> = weights.chunks(PART).map(sum).collect();
    let total: f32 = sums.iter().sum();
    if total <= 0.0 {
        return random.below(weights.len());
    }
    let mut left = random.unit() * total;
    // Where rounding leaves something at the end, it is the last one that weighs anything.
    let mut last = 0;
    for (part, sum) in weights.chunks(PART).enumerate().zip(&sums) {
        let (at, part) = part;
        if left >= *sum && at + 1 < sums.len() {
            left -= sum;
            continue;
        }
        for (weight, at) in part.iter().zip(at * PART..) {
            if *weight > 0.0 {
                last = at;
                left -= weight;
            }
            if left < 0.0 {
                return last;
            }
        }
    }
    last
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
    fn powers_of_e_are_right_to_a_millionth() {
        for thousandth in 0..87_000 {
            let x = -thousandth as f32 / 1e3;
            let (ours, exact) = (f64::from(exp(x)), f64::from(x).exp());
            assert!((ours / exact - 1.0).abs() < 1e-6, "{x}: {ours} {exact}");
        }
        assert_eq!(exp(0.0), 1.0);
        assert!(exp(f32::MIN) < 1e-37);
    }

    #[test]
    fn among_many_each_is_taken_as_often_as_it_weighs() {
        let weights: Vec<f32> = (0..203).map(|at| [0.0, -3.0, 1.0, 4.0][at % 4]).collect();
        let mut random = Random::new(3);
        let mut counts = vec![0; weights.len()];
        for _ in 0..250_000 {
            counts[weighted(&weights, &mut random)] += 1;
        }
        for (count, weight) in counts.into_iter().zip(weights) {
            // 51 ones and 50 fours: 996 draws for each 1.
            let expected = weight.max(0.0) * 996.0;
            assert!(
                (count as f32 - expected).abs() <= expected * 0.16,
                "{count} {weight}"
            );
        }
    }

    #[test]
    fn the_worst_never_wins_against_another_one_drawn() {
        let counts = counts(Picker::PowerOfTwo, &[0.0, 1.0, 2.0]);
        assert_eq!(counts[0], 0);
        assert!((800..1200).contains(&counts[1]), "{counts:?}");
        assert_eq!(super::tests::counts(Picker::PowerOfTwo, &[1.0]), [3000]);
    }
}

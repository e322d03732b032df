//! How far from a figure the true one may be, and two figures from each other.

use statrs::distribution::{Binomial, ContinuousCDF, DiscreteCDF, Normal, StudentsT};

use crate::distribution::Distribution;
use crate::search::wilson_at;

/// A figure with its limits; `None`: as far as can be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Estimate {
    pub(super) value: f64,
    pub(super) low: Option<f64>,
    pub(super) high: Option<f64>,
}

/// Limits of a difference.
pub(super) type Limits = (Option<f64>, Option<f64>);

/// How many standard deviations leave `alpha` outside, both sides together.
pub(super) fn z(alpha: f64) -> f64 {
    Normal::standard().inverse_cdf(1.0 - alpha / 2.0)
}

/// The quantile at `q`, of which so many values are independent. Whatever the distribution is, the number of values
/// below its true quantile is binomial: the ranks that leave `alpha` outside name the limits.
pub(super) fn quantile(
    found: &Distribution,
    q: f64,
    independent: u64,
    alpha: f64,
) -> Option<Estimate> {
    let value = found.quantile(q)? as f64;
    let n = independent.min(found.count());
    let (low, high) = ranks(n, q, alpha);
    // In the middle of the rank's step, so that rounding finds no neighbour.
    let at = |rank: u64| {
        found
            .quantile((rank as f64 - 0.5) / n as f64)
            .map(|value| value as f64)
    };
    Some(Estimate {
        value,
        // A time is not below 0.
        low: low.map_or(Some(0.0), at),
        high: high.and_then(at),
    })
}

/// The ranks, from 1, around the quantile `q` of `n` values; `None`: beyond the first or the last one.
fn ranks(n: u64, q: f64, alpha: f64) -> (Option<u64>, Option<u64>) {
    let Ok(below) = Binomial::new(q, n) else {
        return (None, None);
    };
    // First count of which the chance to be no higher is more than its share.
    let first = |chance: &dyn Fn(u64) -> bool| {
        let (mut low, mut high) = (0, n);
        while low < high {
            let middle = low + (high - low) / 2;
            if chance(middle) {
                high = middle
            } else {
                low = middle + 1
            }
        }
        low
    };
    // P(B <= l - 1) <= alpha/2, as large as can be; P(B >= u) <= alpha/2, as small as can be.
    let low = first(&|count| below.cdf(count) > alpha / 2.0);
    let high = 1 + first(&|count| below.sf(count) <= alpha / 2.0);
    ((low > 0).then_some(low), (high <= n).then_some(high))
}

/// A share of which so many of so many are a sample (Wilson).
pub(super) fn share(hits: u64, all: u64, alpha: f64) -> Option<Estimate> {
    let (low, high) = wilson_at(hits, all, z(alpha));
    (all > 0).then(|| Estimate {
        value: hits as f64 / all as f64,
        low: Some(low),
        high: Some(high),
    })
}

/// A value that is a sum of so many independent parts with this spread (standard deviation by mean) between them.
pub(super) fn sum(value: f64, parts: u64, spread: f64, alpha: f64) -> Option<Estimate> {
    let half =
        (parts > 0).then(|| z(alpha) * value * ((1.0 + spread * spread) / parts as f64).sqrt());
    Some(Estimate {
        value,
        low: half.map(|half| (value - half).max(0.0)),
        high: half.map(|half| value + half),
    })
}

/// Limits of `b - a` from those of both (MOVER).
pub(super) fn difference(a: &Estimate, b: &Estimate) -> Limits {
    let between = b.value - a.value;
    let away = |x: Option<f64>, y: Option<f64>, a: f64, b: f64| Some((x? - a).hypot(y? - b));
    (
        away(b.low, a.high, b.value, a.value).map(|far| between - far),
        away(b.high, a.low, b.value, a.value).map(|far| between + far),
    )
}

/// Limits of the difference of the means of what runs came to (Welch); `None` without two on each side.
pub(super) fn welch(a: &[f64], b: &[f64], alpha: f64) -> Option<(f64, f64)> {
    let (mean_a, part_a) = moments(a)?;
    let (mean_b, part_b) = moments(b)?;
    let between = mean_b - mean_a;
    let variance = part_a + part_b;
    if variance <= 0.0 {
        return Some((between, between));
    }
    let freedom = |part: f64, n: usize| part * part / (n - 1) as f64;
    let freedom = variance * variance / (freedom(part_a, a.len()) + freedom(part_b, b.len()));
    let t = StudentsT::new(0.0, 1.0, freedom.max(1.0))
        .ok()?
        .inverse_cdf(1.0 - alpha / 2.0);
    let half = t * variance.sqrt();
    Some((between - half, between + half))
}

/// The mean, and the variance of it.
fn moments(sample: &[f64]) -> Option<(f64, f64)> {
    let n = sample.len();
    if n < 2 {
        return None;
    }
    let mean = sample.iter().sum::<f64>() / n as f64;
    let squares: f64 = sample.iter().map(|value| (value - mean).powi(2)).sum();
    Some((mean, squares / (n - 1) as f64 / n as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_those_of_the_tables() {
        // Conover, Practical Nonparametric Statistics: the median of 20 lies between the 6th and the 15th value.
        assert_eq!(ranks(20, 0.5, 0.05), (Some(6), Some(15)));
        assert_eq!(ranks(5, 0.5, 0.05), (None, None));
        // Of the p99 of 100 values there is no upper limit: 0.99^100 > 2.5 %.
        let (low, high) = ranks(100, 0.99, 0.05);
        assert_eq!((low, high), (Some(97), None));
        // By the normal approximation for many.
        let (low, high) = ranks(1_000_000, 0.9, 0.05);
        let half = 1.96 * (1_000_000.0_f64 * 0.09).sqrt();
        assert!(
            (low.unwrap() as f64 - (900_000.0 - half)).abs() < 3.0,
            "{low:?}"
        );
        assert!(
            (high.unwrap() as f64 - (900_000.0 + half)).abs() < 3.0,
            "{high:?}"
        );
    }

    #[test]
    fn a_difference_of_shares_is_newcombes() {
        // Newcombe 1998, table II: 56/70 - 48/80 is 0.2 (0.0524 to 0.3339) by his method 10.
        let (a, b) = (share(48, 80, 0.05).unwrap(), share(56, 70, 0.05).unwrap());
        let (low, high) = difference(&a, &b);
        assert!(
            (low.unwrap() - 0.0524).abs() < 1e-4 && (high.unwrap() - 0.3339).abs() < 1e-4,
            "{low:?} {high:?}"
        );
    }

    #[test]
    fn welchs_limits_are_students_for_equal_sides() {
        let (low, high) = welch(&[10.0, 12.0, 14.0], &[20.0, 22.0, 24.0], 0.05).unwrap();
        // t of 4 degrees of freedom, times the root of 4/3 + 4/3.
        let half = 2.776_445 * (8.0_f64 / 3.0).sqrt();
        assert!(
            (low - (10.0 - half)).abs() < 1e-4 && (high - (10.0 + half)).abs() < 1e-4,
            "{low} {high}"
        );
        assert_eq!(welch(&[1.0], &[1.0, 2.0], 0.05), None);
        assert_eq!(welch(&[1.0, 1.0], &[3.0, 3.0], 0.05), Some((2.0, 2.0)));
    }

    #[test]
    fn what_is_unbounded_on_one_side_leaves_the_difference_open_there() {
        let known = Estimate {
            value: 5.0,
            low: Some(4.0),
            high: Some(6.0),
        };
        let open = Estimate {
            value: 9.0,
            low: Some(8.0),
            high: None,
        };
        let (low, high) = difference(&known, &open);
        assert_eq!(high, None);
        assert!((low.unwrap() - (4.0 - 2.0_f64.sqrt())).abs() < 1e-9);
        assert_eq!(difference(&open, &known).0, None);
    }
}

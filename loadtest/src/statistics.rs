//! Order statistics of small samples.

/// The value below which a share of `q` (0 to 1) of the sample lies: the nearest rank. `None` for
/// an empty sample.
#[must_use]
pub fn quantile(sample: &[f64], q: f64) -> Option<f64> {
    let mut sorted = sample.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (q.clamp(0.0, 1.0) * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

/// The middle of the sample, the mean of the two middle ones where there are two.
#[must_use]
pub fn median(sample: &[f64]) -> Option<f64> {
    let mut sorted = sample.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    Some(f64::midpoint(sorted[sorted.len() / 2 - 1], upper))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_of_the_sample() {
        let sample = [4.0, 1.0, 3.0, 2.0];
        assert_eq!(quantile(&sample, 0.0), Some(1.0));
        assert_eq!(quantile(&sample, 0.5), Some(2.0));
        assert_eq!(quantile(&sample, 0.99), Some(4.0));
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn the_median_of_an_even_sample_is_between() {
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[]), None);
    }
}

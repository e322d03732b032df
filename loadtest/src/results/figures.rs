//! Rates and shares of a run, and how certain a mean over repeats is.

use serde::{Deserialize, Serialize};

use crate::summary::Summary;

/// What follows from the measured phase. Shares are from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Requests, whatever came of them.
    pub requests: u64,
    /// Seconds from the first scheduled send to the last end.
    pub span_s: f64,
    /// Requests per second of the schedule; for a fixed concurrency of the span.
    pub offered_per_s: f64,
    /// Whole answers per second of the span.
    pub answered_per_s: f64,
    /// Answers within the SLO per second, of what `offered_per_s` counts by.
    pub goodput_per_s: f64,
    /// Share of all requests that were answered within the SLO.
    pub attainment: f64,
    /// Share that failed or could not be sent.
    pub error_rate: f64,
    /// Share that was turned away.
    pub rejected_rate: f64,
    /// Tokens of answers per second of the span.
    pub output_tokens_per_s: f64,
    /// Tokens of prompts per second of the span.
    pub input_tokens_per_s: f64,
    /// Share of prompts' tokens that the server had in its cache.
    pub cached_share: f64,
}

impl Figures {
    /// Those of a summary whose requests come from so many seconds of a schedule.
    #[must_use]
    pub fn of(measured: &Summary, window_s: Option<f64>) -> Self {
        let counts = &measured.all.counts;
        let span_s = measured.span_s();
        let window_s = window_s.unwrap_or(span_s);
        let ratio = |a: u64, b: f64| if b > 0.0 { a as f64 / b } else { 0.0 };
        let share = |n: u64| ratio(n, counts.all() as f64);
        Self {
            requests: counts.all(),
            span_s,
            offered_per_s: ratio(counts.all(), window_s),
            answered_per_s: ratio(counts.answered(), span_s),
            goodput_per_s: ratio(counts.attained, window_s),
            attainment: share(counts.attained),
            error_rate: share(counts.failed + counts.unsent),
            rejected_rate: share(counts.rejected),
            output_tokens_per_s: ratio(measured.output_tokens, span_s),
            input_tokens_per_s: ratio(measured.input_tokens, span_s),
            cached_share: ratio(measured.cached_tokens, measured.input_tokens as f64),
        }
    }
}

/// A mean, and how far from it the true one may be (95 %, Student's t).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The mean over the repeats.
    pub mean: f64,
    /// Half of the interval's width; `None` for a single value.
    pub half_width: Option<f64>,
}

/// Student's t, two-sided 95 %, for 1, 2, 3... degrees of freedom.
const T: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];
/// The normal distribution's, for more.
const T_MANY: f64 = 1.960;

/// The mean of one figure over repeats; `None` where there is no value.
#[must_use]
pub fn over_repeats(values: &[f64]) -> Option<Interval> {
    let n = values.len();
    if n == 0 {
        return None;
    }
    let mean = values.iter().sum::<f64>() / n as f64;
    let spread = |freedom: usize| {
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let t = T.get(freedom - 1).copied().unwrap_or(T_MANY);
        t * (squares / freedom as f64 / n as f64).sqrt()
    };
    Some(Interval {
        mean,
        half_width: (n > 1).then(|| spread(n - 1)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::Counts;

    #[test]
    fn what_is_offered_counts_by_the_schedule_and_what_is_answered_by_the_span() {
        let mut measured = Summary {
            input_tokens: 1_000,
            cached_tokens: 250,
            output_tokens: 400,
            events: 200,
            first_us: Some(1_000_000),
            last_us: Some(9_000_000),
            ..Summary::default()
        };
        measured.all.counts = Counts {
            attained: 40,
            late: 24,
            rejected: 16,
            failed: 8,
            unsent: 12,
        };
        let found = Figures::of(&measured, Some(5.0));
        let want = Figures {
            requests: 100,
            span_s: 8.0,
            offered_per_s: 20.0,
            answered_per_s: 8.0,
            goodput_per_s: 8.0,
            attainment: 0.4,
            error_rate: 0.2,
            rejected_rate: 0.16,
            output_tokens_per_s: 50.0,
            input_tokens_per_s: 125.0,
            cached_share: 0.25,
        };
        assert_eq!(found, want);
        // A fixed concurrency has no schedule.
        let found = Figures::of(&measured, None);
        assert_eq!((found.offered_per_s, found.goodput_per_s), (12.5, 5.0));
        assert_eq!(Figures::of(&Summary::default(), None), Figures::default());
    }

    #[test]
    fn an_interval_over_repeats_is_students() {
        let interval = over_repeats(&[10.0, 12.0, 14.0]).unwrap();
        assert_eq!(interval.mean, 12.0);
        // 4.303 * 2 / sqrt(3)
        assert!((interval.half_width.unwrap() - 4.9687).abs() < 1e-3);
        assert_eq!(over_repeats(&[5.0]).unwrap().half_width, None);
        assert_eq!(over_repeats(&[]), None);
    }
}

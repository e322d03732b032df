//! How long a worker's steps take, from what it measured: for predicting TTFT and TPOT.
//!
//! Prefill is taken to cost a time for each prompt token, decoding a step time that grows in a
//! straight line with the batch. Both are what the worker itself measured; where it measured nothing
//! yet there is no prediction, and nobody is turned away on one.

use std::time::Duration;

/// Of the weight of what was measured before, this much is left after another measurement: about
/// the last 16 count.
const MEMORY: f64 = 1.0 - 1.0 / 16.0;
/// Batches must differ by this much (as a variance) before a slope is believed.
const LEAST_SPREAD: f64 = 0.25;

/// One worker's measured times.
#[derive(Clone, Copy, Debug, Default)]
pub struct StepTimes {
    /// 0: not measured.
    prefill_ns_per_token: f64,
    /// Sums of step times (y, in microseconds) over batch sizes (x), older ones fading.
    weight: f64,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
}

impl StepTimes {
    /// The worker's prefill takes so long for a prompt token.
    pub fn prefill(&mut self, ns_per_token: u32) {
        if ns_per_token > 0 {
            self.prefill_ns_per_token = f64::from(ns_per_token);
        }
    }

    /// A decode step of `batch` sequences took so long.
    pub fn step(&mut self, batch: u32, took_us: u32) {
        if took_us == 0 {
            return;
        }
        let (x, y) = (f64::from(batch.max(1)), f64::from(took_us));
        for (sum, more) in [
            (&mut self.weight, 1.0),
            (&mut self.x, x),
            (&mut self.y, y),
            (&mut self.xx, x * x),
            (&mut self.xy, x * y),
        ] {
            *sum = *sum * MEMORY + more;
        }
    }

    /// Nanoseconds for a prompt token; `None` where nothing was measured.
    #[must_use]
    pub fn prefill_ns_per_token(&self) -> Option<f64> {
        (self.prefill_ns_per_token > 0.0).then_some(self.prefill_ns_per_token)
    }

    /// A step's time as `base + slope * batch`, in microseconds. Without batches that differ the mean
    /// stands for all.
    #[must_use]
    pub fn decode_line(&self) -> Option<(f64, f64)> {
        if self.weight == 0.0 {
            return None;
        }
        let (x, y) = (self.x / self.weight, self.y / self.weight);
        let spread = self.xx / self.weight - x * x;
        if spread < LEAST_SPREAD {
            return Some((y, 0.0));
        }
        let slope = ((self.xy / self.weight - x * y) / spread).clamp(0.0, y / x);
        Some((y - slope * x, slope))
    }

    /// A decode step of `batch` sequences.
    #[must_use]
    pub fn predict_step(&self, batch: u32) -> Option<Duration> {
        let (base, slope) = self.decode_line()?;
        Some(Duration::from_secs_f64(
            (base + slope * f64::from(batch)).max(0.0) / 1e6,
        ))
    }

    /// Prefilling so many tokens.
    #[must_use]
    pub fn predict_prefill(&self, tokens: u64) -> Option<Duration> {
        let each = self.prefill_ns_per_token()?;
        Some(Duration::from_secs_f64(each * tokens as f64 / 1e9))
    }

    fn bits(&self) -> [u64; 6] {
        [
            self.prefill_ns_per_token,
            self.weight,
            self.x,
            self.y,
            self.xx,
            self.xy,
        ]
        .map(f64::to_bits)
    }
}

/// A measured time, of which the latest measurements count most: what a worker reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fading(u32);

impl Fading {
    /// Of a later measurement this part is taken: one in so many.
    const SHARE: i64 = 8;

    /// Its value; 0: not measured yet.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// It was measured again; 0 tells nothing.
    pub fn measure(&mut self, value: u64) {
        let value = u32::try_from(value).unwrap_or(u32::MAX);
        let step = (i64::from(value) - i64::from(self.0)) / Self::SHARE;
        self.0 = match (self.0, value) {
            (own, 0) => own,
            (0, value) => value,
            (own, _) => u32::try_from(i64::from(own) + step).unwrap_or(own),
        };
    }
}

impl PartialEq for StepTimes {
    fn eq(&self, other: &Self) -> bool {
        self.bits() == other.bits()
    }
}

impl Eq for StepTimes {}

impl std::hash::Hash for StepTimes {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.bits().hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_grows_with_the_batch_as_measured() {
        let mut times = StepTimes::default();
        assert_eq!(times.predict_step(4), None);
        for batch in [1, 8, 2, 16, 4] {
            times.step(batch, 10_000 + 500 * batch);
        }
        let step = times.predict_step(32).unwrap().as_secs_f64();
        assert!((step - 0.026).abs() < 1e-6, "{step}");
    }

    #[test]
    fn one_batch_size_tells_a_mean_and_no_slope() {
        let mut times = StepTimes::default();
        times.step(4, 9_000);
        times.step(4, 11_000);
        let step = |batch| times.predict_step(batch).unwrap().as_secs_f64();
        assert_eq!(step(4), step(64));
        assert!((0.009..0.011).contains(&step(4)));
    }

    #[test]
    fn a_step_that_seems_to_shrink_with_the_batch_is_taken_as_constant() {
        let mut times = StepTimes::default();
        times.step(1, 9_000);
        times.step(9, 1_000);
        assert_eq!(times.decode_line().unwrap().1, 0.0);
    }

    #[test]
    fn prefill_is_a_time_for_each_token() {
        let mut times = StepTimes::default();
        assert_eq!(times.predict_prefill(10), None);
        times.prefill(2_000);
        times.prefill(0);
        assert_eq!(times.predict_prefill(10), Some(Duration::from_micros(20)));
    }

    #[test]
    fn a_measured_time_follows_the_latest_measurements() {
        let mut time = Fading::default();
        time.measure(0);
        assert_eq!(time.0, 0);
        time.measure(800);
        assert_eq!(time.0, 800, "the first one stands alone");
        time.measure(1600);
        assert_eq!(time.0, 900);
        for _ in 0..100 {
            time.measure(100);
        }
        assert!((100..120).contains(&time.0), "{}", time.0);
        time.measure(u64::MAX);
        assert!(time.0 > 500_000_000);
    }
}

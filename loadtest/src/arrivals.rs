//! When requests arrive in an open loop: a rate that may change with time, and a process around it.
//!
//! A process draws gaps with a mean of one in *expected arrivals*; the inverse of the rate's integral
//! turns their sum into time. So every process follows every curve, ramps and steps included, and has
//! the curve's number of arrivals on average.

mod curve;

pub use curve::RateCurve;

use std::time::Duration;

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Exp1, Gamma};

use crate::seed::{Purpose, stream};
use crate::units::{UnitError, positive};

/// How arrivals scatter around their rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Process {
    /// Evenly: a gap is one over the rate.
    Constant,
    /// Independent of each other: gaps are exponential.
    Poisson,
    /// Gaps are gamma distributed with this shape: 1 is Poisson, below it bursts come, above it gaps even out
    /// (the `burstiness` of vLLM).
    Gamma(Gamma<f64>),
}

const PROCESS: &str = "constant, poisson or gamma:SHAPE with a shape above 0, such as gamma:0.5";

impl Process {
    /// Gamma distributed gaps.
    ///
    /// # Errors
    ///
    /// [`UnitError`]: the shape is not above 0.
    pub fn gamma(shape: f64) -> Result<Self, UnitError> {
        Gamma::new(shape, 1.0 / shape)
            .map(Self::Gamma)
            .map_err(|_| UnitError::new(&shape.to_string(), PROCESS))
    }

    fn gap(&self, rng: &mut impl Rng) -> f64 {
        match self {
            Self::Constant => 1.0,
            Self::Poisson => Exp1.sample(rng),
            Self::Gamma(gamma) => gamma.sample(rng),
        }
    }
}

impl std::str::FromStr for Process {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        match (text, text.strip_prefix("gamma:")) {
            ("constant", _) => Ok(Self::Constant),
            ("poisson", _) => Ok(Self::Poisson),
            (_, Some(shape)) => Self::gamma(positive(shape, PROCESS)?),
            _ => Err(UnitError::new(text, PROCESS)),
        }
    }
}

/// The times of a test's arrivals, from its start; ends where the curve does.
#[derive(Clone, Debug)]
pub struct Arrivals {
    curve: RateCurve,
    process: Process,
    rng: ChaCha8Rng,
    expected: f64,
}

impl Arrivals {
    /// The same for the same seed. A constant process begins at 0.
    #[must_use]
    pub fn new(curve: RateCurve, process: Process, seed: u64) -> Self {
        Self {
            expected: match process {
                Process::Constant => -1.0,
                _ => 0.0,
            },
            rng: stream(seed, Purpose::Arrivals, 0),
            curve,
            process,
        }
    }
}

impl Iterator for Arrivals {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.expected += self.process.gap(&mut self.rng);
        self.curve.time_of(self.expected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(curve: &str, process: &str, seed: u64) -> Vec<f64> {
        let arrivals = Arrivals::new(curve.parse().unwrap(), process.parse().unwrap(), seed);
        arrivals.take(20_000).map(|at| at.as_secs_f64()).collect()
    }

    /// The mean and the coefficient of variation of the gaps.
    fn gaps(times: &[f64]) -> (f64, f64) {
        let gaps: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let square = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>();
        (mean, (square / gaps.len() as f64).sqrt() / mean)
    }

    #[test]
    fn constant_arrivals_are_even_and_begin_at_once() {
        assert_eq!(times("4@1s", "constant", 1), [0.0, 0.25, 0.5, 0.75]);
    }

    #[test]
    fn each_process_has_its_rate_and_its_own_scatter() {
        for (process, scatter) in [("poisson", 1.0), ("gamma:0.25", 2.0), ("gamma:4", 0.5)] {
            let (mean, variation) = gaps(&times("50", process, 7));
            assert!((mean * 50.0 - 1.0).abs() < 0.05, "{process}: {mean}");
            assert!((variation - scatter).abs() < 0.1, "{process}: {variation}");
        }
    }

    #[test]
    fn the_first_arrival_of_a_process_comes_a_gap_after_the_start() {
        for process in ["poisson", "gamma:4"] {
            let first = |seed| {
                let mut arrivals =
                    Arrivals::new("1".parse().unwrap(), process.parse().unwrap(), seed);
                arrivals.next().unwrap().as_secs_f64()
            };
            let mean = (0..4000).map(first).sum::<f64>() / 4000.0;
            assert!((mean - 1.0).abs() < 0.08, "{process}: {mean}");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_times_and_another_one_others() {
        assert_eq!(times("9", "poisson", 3), times("9", "poisson", 3));
        assert_ne!(times("9", "poisson", 3), times("9", "poisson", 4));
    }

    #[test]
    fn arrivals_follow_steps_and_ramps() {
        let times = times("10@10s,0..20@10s,0@5s,100@1s", "poisson", 5);
        let within = |from: f64, to: f64| times.iter().filter(|t| (from..to).contains(t)).count();
        let near = |count: usize, expected: f64| {
            assert!(
                (count as f64 - expected).abs() < 4.0 * expected.sqrt(),
                "{count} {expected}"
            );
        };
        near(within(0.0, 10.0), 100.0);
        near(within(10.0, 15.0), 25.0);
        near(within(15.0, 20.0), 75.0);
        assert_eq!(within(20.0, 25.0), 0);
        near(within(25.0, 26.0), 100.0);
        assert_eq!(within(26.0, 99.0), 0);
    }

    #[test]
    fn a_process_that_is_none_is_refused() {
        for wrong in ["", "gamma", "gamma:0", "gamma:-1", "gamma:x", "Poisson"] {
            assert!(wrong.parse::<Process>().is_err(), "{wrong}");
        }
    }
}

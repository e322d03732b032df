//! How long the one who reads an answer thinks before the next turn.

use std::str::FromStr;
use std::time::Duration;

use rand::Rng;
use rand_distr::{Distribution, Exp1};

use crate::units::{UnitError, duration};

/// Time between an answer's end and the session's next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Think {
    /// Always the same.
    Fixed(Duration),
    /// Exponential with this mean.
    Exponential(Duration),
}

/// Longest of what an exponential draws, in means.
const LONGEST: f64 = 20.0;

impl Think {
    pub(crate) fn draw(self, rng: &mut impl Rng) -> Duration {
        match self {
            Self::Fixed(time) => time,
            Self::Exponential(mean) => {
                let means: f64 = Exp1.sample(rng);
                mean.mul_f64(means.min(LONGEST))
            }
        }
    }
}

impl FromStr for Think {
    type Err = UnitError;

    /// `2s`, or `exp:2s` for an exponential with that mean.
    fn from_str(text: &str) -> Result<Self, UnitError> {
        match text.strip_prefix("exp:") {
            Some(mean) => Ok(Self::Exponential(duration(mean)?)),
            None => Ok(Self::Fixed(duration(text)?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::{Purpose, stream};

    fn drawn(text: &str) -> Vec<f64> {
        let think: Think = text.parse().unwrap();
        let mut rng = stream(1, Purpose::Request, 0);
        (0..20_000)
            .map(|_| think.draw(&mut rng).as_secs_f64())
            .collect()
    }

    #[test]
    fn a_pause_is_always_the_same_or_exponential_with_its_mean() {
        assert!(drawn("2s").iter().all(|time| *time == 2.0));
        let times = drawn("exp:2s");
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        assert!((mean - 2.0).abs() < 0.1, "{mean}");
        // Half of them are below ln 2 of the mean.
        let short = times.iter().filter(|time| **time < 2.0 * f64::ln(2.0));
        let share = short.count() as f64 / times.len() as f64;
        assert!((share - 0.5).abs() < 0.02, "{share}");
        assert!(times.iter().all(|time| *time <= 2.0 * LONGEST));
        for wrong in ["", "2", "exp:", "exp:2", "exponential:2s"] {
            assert!(wrong.parse::<Think>().is_err(), "{wrong}");
        }
    }
}

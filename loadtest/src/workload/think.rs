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

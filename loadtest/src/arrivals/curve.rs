//! A rate over time: steps and ramps.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::units::{UnitError, duration};

const CURVE: &str = "requests per second such as 8, steps such as 4@30s,8@30s, or ramps such as 1..10@60s; \
                     only the last may go without a length";
/// Far more than one process can send.
const FASTEST: f64 = 1e6;

/// One stretch of a curve; the rate goes evenly from `from` to `to`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Piece {
    from: f64,
    to: f64,
    /// Infinite for one without an end, whose rate does not change.
    seconds: f64,
}

impl Piece {
    /// Expected arrivals of the whole piece.
    fn arrivals(&self) -> f64 {
        f64::midpoint(self.from, self.to) * self.seconds
    }

    /// When so many arrivals are to be expected, which are no more than all of them.
    fn time_of(&self, arrivals: f64) -> f64 {
        if arrivals <= 0.0 {
            return 0.0;
        }
        let bend = if self.seconds.is_finite() {
            (self.to - self.from) / (2.0 * self.seconds)
        } else {
            0.0
        };
        let root = (self.from * self.from + 4.0 * bend * arrivals)
            .max(0.0)
            .sqrt();
        2.0 * arrivals / (self.from + root)
    }

    fn parse(text: &str) -> Option<Self> {
        let (rates, seconds) = match text.split_once('@') {
            Some((rates, length)) => (rates, duration(length).ok()?.as_secs_f64()),
            None => (text, f64::INFINITY),
        };
        let (from, to) = rates.split_once("..").unwrap_or((rates, rates));
        let piece = Self {
            from: from.parse().ok()?,
            to: to.parse().ok()?,
            seconds,
        };
        piece.is_sound().then_some(piece)
    }

    fn is_sound(&self) -> bool {
        let rates = 0.0..=FASTEST;
        let endless = self.seconds.is_infinite();
        rates.contains(&self.from)
            && rates.contains(&self.to)
            && self.seconds > 0.0
            && !(endless && (self.from != self.to || self.from == 0.0))
    }
}

/// Requests per second over time.
#[derive(Clone, Debug, PartialEq)]
pub struct RateCurve {
    pieces: Vec<Piece>,
}

impl RateCurve {
    /// One rate without an end.
    ///
    /// # Errors
    ///
    /// [`UnitError`]: no rate above 0 and up to a million.
    pub fn constant(rate: f64) -> Result<Self, UnitError> {
        let piece = Piece {
            from: rate,
            to: rate,
            seconds: f64::INFINITY,
        };
        if piece.is_sound() {
            Ok(Self {
                pieces: vec![piece],
            })
        } else {
            Err(UnitError::new(&rate.to_string(), CURVE))
        }
    }

    /// Its end, where it has one.
    #[must_use]
    pub fn length(&self) -> Option<Duration> {
        let seconds: f64 = self.pieces.iter().map(|piece| piece.seconds).sum();
        seconds
            .is_finite()
            .then(|| Duration::from_secs_f64(seconds))
    }

    /// The rate, where it is one without an end.
    #[must_use]
    pub fn steady(&self) -> Option<f64> {
        match self.pieces[..] {
            [only] if only.seconds.is_infinite() => Some(only.from),
            _ => None,
        }
    }

    /// The mean rate; that of the last piece where that has no end.
    #[must_use]
    pub fn mean(&self) -> f64 {
        match (self.length(), self.pieces.last()) {
            (Some(length), _) => {
                let arrivals: f64 = self.pieces.iter().map(Piece::arrivals).sum();
                arrivals / length.as_secs_f64()
            }
            (None, last) => last.map_or(0.0, |last| last.from),
        }
    }

    /// When so many arrivals are to be expected; `None` where the curve ends before.
    #[must_use]
    pub fn time_of(&self, mut arrivals: f64) -> Option<Duration> {
        let mut before = 0.0;
        for piece in &self.pieces {
            let here = piece.arrivals();
            if arrivals < here {
                return Duration::try_from_secs_f64(before + piece.time_of(arrivals)).ok();
            }
            arrivals -= here;
            before += piece.seconds;
        }
        None
    }
}

impl FromStr for RateCurve {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let wrong = || UnitError::new(text, CURVE);
        let pieces: Vec<Piece> = text
            .split(',')
            .map(|piece| Piece::parse(piece.trim()).ok_or_else(wrong))
            .collect::<Result<_, _>>()?;
        let endless = pieces.iter().rev().skip(1).any(|p| p.seconds.is_infinite());
        let nothing = pieces.iter().all(|piece| piece.arrivals() == 0.0);
        if endless || nothing {
            return Err(wrong());
        }
        Ok(Self { pieces })
    }
}

impl fmt::Display for RateCurve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, piece) in self.pieces.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            write!(f, "{}", piece.from)?;
            if piece.from != piece.to {
                write!(f, "..{}", piece.to)?;
            }
            if piece.seconds.is_finite() {
                write!(f, "@{}s", piece.seconds)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_curve_is_written_as_it_is_read() {
        for text in ["8", "4@30s,8", "1..10@60s,0@5s,10..2.5@7.5s"] {
            assert_eq!(text.parse::<RateCurve>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_curve_is_refused() {
        for wrong in [
            "", "0", "-1", "x", "1,2", "1..2", "0@5s", "nan", "inf", "1e7", "1@0s", "1@5", "1@0s,5",
        ] {
            assert!(wrong.parse::<RateCurve>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_curves_mean_is_that_over_its_time_and_its_last_rate_without_an_end() {
        for (text, mean, steady) in [
            ("4@30s,8@10s", 5.0, None),
            ("10@10s,0..20@20s,0@10s", 7.5, None),
            ("4@30s,8", 8.0, None),
            ("8", 8.0, Some(8.0)),
            ("8@2s", 8.0, None),
        ] {
            let curve: RateCurve = text.parse().unwrap();
            assert_eq!((curve.mean(), curve.steady()), (mean, steady), "{text}");
        }
    }

    proptest! {
        #[test]
        fn time_never_runs_back_and_ends_with_the_curve(
            pieces in prop::collection::vec((0.0..50.0_f64, 0.0..50.0_f64, 0.1..20.0_f64), 1..6),
            step in 0.01..3.0_f64,
        ) {
            let pieces: Vec<Piece> = pieces
                .into_iter()
                .map(|(from, to, seconds)| Piece { from, to, seconds })
                .collect();
            let curve = RateCurve { pieces };
            let mut last = Duration::ZERO;
            let mut count = 0.0;
            while let Some(at) = curve.time_of(count) {
                prop_assert!(at >= last);
                last = at;
                count += step;
            }
            prop_assert!(last <= curve.length().unwrap() + Duration::from_micros(1));
        }
    }
}

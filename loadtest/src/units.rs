//! Amounts as people write them: `500ms`, `1.5s`, `2m`, `10%`.

use std::time::Duration;

/// An amount that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{found}: want {wanted}")]
pub struct UnitError {
    found: String,
    wanted: &'static str,
}

impl UnitError {
    pub(crate) fn new(found: &str, wanted: &'static str) -> Self {
        Self {
            found: format!("{found:?}"),
            wanted,
        }
    }

    /// A name that nothing of its kind has; the others are wanted.
    pub(crate) fn unknown(kind: &str, found: &str, wanted: &'static str) -> Self {
        Self {
            found: format!("{found:?} is no {kind}"),
            wanted,
        }
    }
}

const DURATION: &str = "a duration such as 250us, 500ms, 10s, 5m or 1h";
const UNITS: [(&str, f64); 5] = [
    ("us", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("m", 60.0),
    ("h", 3600.0),
];
/// Nothing here lasts longer than this: a bound on every wait.
const LONGEST_S: f64 = 30.0 * 86_400.0;

/// `500ms`, `1.5s`, `2m`, `1h`; up to 30 days.
///
/// # Errors
///
/// [`UnitError`]: no such amount.
pub fn duration(text: &str) -> Result<Duration, UnitError> {
    let wrong = || UnitError::new(text, DURATION);
    let split = text
        .find(|c: char| c.is_ascii_alphabetic())
        .ok_or_else(wrong)?;
    let (number, unit) = text.split_at(split);
    let (_, seconds) = UNITS
        .iter()
        .find(|(name, _)| *name == unit)
        .ok_or_else(wrong)?;
    let seconds = number.parse::<f64>().map_err(|_| wrong())? * seconds;
    if (0.0..=LONGEST_S).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err(wrong())
    }
}

/// `10%` or `0.1`, as a share of one.
///
/// # Errors
///
/// [`UnitError`]: no share from 0 to 1.
pub fn share(text: &str) -> Result<f64, UnitError> {
    let wrong = || UnitError::new(text, "a share such as 10% or 0.1");
    let value = match text.strip_suffix('%') {
        Some(percent) => percent.parse::<f64>().map_err(|_| wrong())? / 100.0,
        None => text.parse::<f64>().map_err(|_| wrong())?,
    };
    if (0.0..=1.0).contains(&value) {
        Ok(value)
    } else {
        Err(wrong())
    }
}

/// A positive, finite number.
pub(crate) fn positive(text: &str, wanted: &'static str) -> Result<f64, UnitError> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value > 0.0 => Ok(value),
        _ => Err(UnitError::new(text, wanted)),
    }
}

/// Microseconds; what is longer than half a million years is that long.
pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_in_every_unit() {
        assert_eq!(duration("250us"), Ok(Duration::from_micros(250)));
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(duration("1.5h"), Ok(Duration::from_secs(5400)));
        assert_eq!(duration("720h"), Ok(Duration::from_secs(30 * 86_400)));
        assert!(duration("721h").is_err(), "a bound on every wait");
        for wrong in ["", "5", "s", "-1s", "1d", "nans", "infs", "1e9h", "5 s"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn shares_are_read_in_both_forms() {
        assert_eq!(share("10%"), Ok(0.1));
        assert_eq!(share("0.25"), Ok(0.25));
        for wrong in ["", "%", "101%", "-1%", "1.1", "nan"] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
    }
}

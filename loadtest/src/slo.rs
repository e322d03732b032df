//! What answers have to be like to count: limits on their times, by class.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::units::{UnitError, duration, micros};

/// Limits; what is not set is not asked. Microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slo {
    /// To the first token.
    pub ttft_us: Option<u64>,
    /// For an output token, on average over the request.
    pub tpot_us: Option<u64>,
    /// The 99th percentile of the request's own ITLs.
    pub itl_us: Option<u64>,
    /// To the answer's end.
    pub e2e_us: Option<u64>,
}

/// A request's times, as far as limits ask for them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Times {
    pub(crate) ttft_us: u64,
    pub(crate) tpot_us: Option<f64>,
    pub(crate) itl_p99_us: Option<u64>,
    pub(crate) e2e_us: u64,
}

const LIMITS: &str = "ttft, tpot, itl or e2e";
const SLO: &str = "limits such as ttft=500ms,tpot=50ms (of ttft, tpot, itl, e2e), for one class as chat:ttft=500ms";

impl Slo {
    /// Whether an answer with these times met all limits.
    pub(crate) fn is_met(&self, times: &Times) -> bool {
        let within = |limit: Option<u64>, time: Option<f64>| match (limit, time) {
            (Some(limit), Some(time)) => time <= limit as f64,
            _ => true,
        };
        within(self.ttft_us, Some(times.ttft_us as f64))
            && within(self.tpot_us, times.tpot_us)
            && within(self.itl_us, times.itl_p99_us.map(|us| us as f64))
            && within(self.e2e_us, Some(times.e2e_us as f64))
    }

    fn limits(&self) -> [(&'static str, Option<u64>); 4] {
        [
            ("ttft", self.ttft_us),
            ("tpot", self.tpot_us),
            ("itl", self.itl_us),
            ("e2e", self.e2e_us),
        ]
    }

    fn limit(&mut self, name: &str) -> Option<&mut Option<u64>> {
        match name {
            "ttft" => Some(&mut self.ttft_us),
            "tpot" => Some(&mut self.tpot_us),
            "itl" => Some(&mut self.itl_us),
            "e2e" => Some(&mut self.e2e_us),
            _ => None,
        }
    }
}

impl FromStr for Slo {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let wrong = || UnitError::new(text, SLO);
        let mut slo = Self::default();
        for limit in text.split(',') {
            let (name, value) = limit.split_once('=').ok_or_else(wrong)?;
            let unknown = || UnitError::unknown("limit", name.trim(), LIMITS);
            let limit = slo.limit(name.trim()).ok_or_else(unknown)?;
            let value: Duration = duration(value.trim())?;
            if limit.replace(micros(value)).is_some() {
                return Err(wrong());
            }
        }
        Ok(slo)
    }
}

impl fmt::Display for Slo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limits = self.limits();
        let set = limits
            .iter()
            .filter_map(|(name, limit)| limit.map(|us| (name, us)));
        for (i, (name, us)) in set.enumerate() {
            let comma = if i == 0 { "" } else { "," };
            write!(f, "{comma}{name}={}ms", us as f64 / 1000.0)?;
        }
        Ok(())
    }
}

/// The limits of each class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slos {
    /// For classes without limits of their own.
    pub every: Option<Slo>,
    /// Of one class.
    pub classes: std::collections::BTreeMap<String, Slo>,
}

impl Slos {
    /// Adds what one `--slo` says: `ttft=500ms`, or `chat:ttft=500ms` for one class.
    ///
    /// # Errors
    ///
    /// [`UnitError`]: not of that form, or said before.
    pub fn add(&mut self, text: &str) -> Result<(), UnitError> {
        let before = match text.split_once(':') {
            Some((class, limits)) => self.classes.insert(class.to_owned(), limits.parse()?),
            None => self.every.replace(text.parse()?),
        };
        match before {
            None => Ok(()),
            Some(_) => Err(UnitError::new(
                text,
                "one --slo for a class, and one for all others",
            )),
        }
    }

    /// The limits of a class.
    #[must_use]
    pub fn of(&self, class: &str) -> Option<&Slo> {
        self.classes.get(class).or(self.every.as_ref())
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.every.is_none() && self.classes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_is_asked_and_a_request_without_a_tpot_is_not_asked_for_it() {
        let slo: Slo = "ttft=100ms, tpot=20ms,itl=30ms,e2e=1s".parse().unwrap();
        let good = Times {
            ttft_us: 100_000,
            tpot_us: Some(20_000.0),
            itl_p99_us: Some(30_000),
            e2e_us: 1_000_000,
        };
        assert!(slo.is_met(&good));
        assert!(!slo.is_met(&Times {
            ttft_us: 100_001,
            ..good
        }));
        assert!(!slo.is_met(&Times {
            tpot_us: Some(20_000.5),
            ..good
        }));
        assert!(!slo.is_met(&Times {
            itl_p99_us: Some(30_001),
            ..good
        }));
        assert!(!slo.is_met(&Times {
            e2e_us: 1_000_001,
            ..good
        }));
        assert!(slo.is_met(&Times {
            tpot_us: None,
            itl_p99_us: None,
            ..good
        }));
        assert_eq!(slo.to_string(), "ttft=100ms,tpot=20ms,itl=30ms,e2e=1000ms");
    }

    #[test]
    fn a_class_has_its_own_limits_or_those_of_all() {
        let mut slos = Slos::default();
        slos.add("ttft=1s").unwrap();
        slos.add("chat:ttft=100ms").unwrap();
        assert_eq!(slos.of("chat").unwrap().ttft_us, Some(100_000));
        assert_eq!(slos.of("batch").unwrap().ttft_us, Some(1_000_000));
        assert!(slos.add("ttft=2s").is_err());
        let unknown = slos.add("chat:foo=1us").unwrap_err().to_string();
        assert_eq!(unknown, "\"foo\" is no limit: want ttft, tpot, itl or e2e");
        for wrong in ["", "ttft", "ttft=5", "p99=5ms", "ttft=1s,ttft=2s", "chat:"] {
            assert!(Slos::default().add(wrong).is_err(), "{wrong}");
        }
    }
}

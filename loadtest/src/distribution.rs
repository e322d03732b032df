//! A distribution of times or sizes: a high dynamic range histogram with three digits, so that every
//! percentile is right to 0.1 %.
//!
//! In JSON it stands with its usual figures and, for those who merge or draw it, whole: HdrHistogram's own
//! compressed form (V2 with deflate) in base64, which that library reads in any language.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer as Reader, Serializer as _, V2DeflateSerializer};
use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

const DIGITS: u8 = 3;

/// The percentiles that are shown.
pub const SHOWN: [(&str, f64); 5] = [
    ("p50", 0.50),
    ("p90", 0.90),
    ("p95", 0.95),
    ("p99", 0.99),
    ("p99.9", 0.999),
];

/// How often each value came.
#[derive(Clone, Debug)]
pub struct Distribution {
    values: Histogram<u64>,
}

impl Default for Distribution {
    fn default() -> Self {
        Self {
            values: Histogram::new(DIGITS).expect("three digits are allowed"),
        }
    }
}

impl Distribution {
    /// Counts a value.
    pub fn record(&mut self, value: u64) {
        self.record_n(value, 1);
    }

    /// Counts a value several times.
    pub fn record_n(&mut self, value: u64, times: u64) {
        // It grows as needed. Where it cannot, past 2^62, its highest value stands for this one.
        if self.values.record_n(value, times).is_err() {
            self.values.saturating_record_n(value, times);
        }
    }

    /// Adds another one's counts.
    pub fn add(&mut self, other: &Self) {
        // Fails only for one that may not grow, and these may.
        let _ = self.values.add(&other.values);
    }

    /// How many values were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.values.len()
    }

    /// The value that a share of `q` of all does not pass; `None` where there is none.
    #[must_use]
    pub fn quantile(&self, q: f64) -> Option<u64> {
        self.some(|values| values.value_at_quantile(q))
    }

    /// Values with the share of all that does not pass them: every hundredth, the tail finer, the greatest last.
    #[must_use]
    pub fn cumulative(&self) -> Vec<(u64, f64)> {
        let body = (0..100_u32).map(|n| f64::from(n) / 100.0);
        let shares = body.chain([0.995, 0.999, 0.9995, 0.9999, 1.0]);
        shares
            .filter_map(|q| Some((self.quantile(q)?, q)))
            .collect()
    }

    /// The mean.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        self.some(Histogram::mean)
    }

    /// The standard deviation.
    #[must_use]
    pub fn deviation(&self) -> Option<f64> {
        self.some(Histogram::stdev)
    }

    /// The least.
    #[must_use]
    pub fn min(&self) -> Option<u64> {
        self.some(Histogram::min)
    }

    /// The greatest.
    #[must_use]
    pub fn max(&self) -> Option<u64> {
        self.some(Histogram::max)
    }

    fn some<T>(&self, of: impl Fn(&Histogram<u64>) -> T) -> Option<T> {
        (!self.values.is_empty()).then(|| of(&self.values))
    }
}

/// As it stands in JSON.
#[derive(Serialize, Deserialize)]
struct Written {
    count: u64,
    min: Option<u64>,
    mean: Option<f64>,
    deviation: Option<f64>,
    p50: Option<u64>,
    p90: Option<u64>,
    p95: Option<u64>,
    p99: Option<u64>,
    #[serde(rename = "p99.9")]
    p99_9: Option<u64>,
    max: Option<u64>,
    histogram: String,
}

impl Serialize for Distribution {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut bytes = Vec::new();
        V2DeflateSerializer::new()
            .serialize(&self.values, &mut bytes)
            .map_err(S::Error::custom)?;
        let written = Written {
            count: self.count(),
            min: self.min(),
            mean: self.mean(),
            deviation: self.deviation(),
            p50: self.quantile(0.5),
            p90: self.quantile(0.9),
            p95: self.quantile(0.95),
            p99: self.quantile(0.99),
            p99_9: self.quantile(0.999),
            max: self.max(),
            histogram: STANDARD.encode(bytes),
        };
        written.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Distribution {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = Written::deserialize(deserializer)?;
        let bytes = STANDARD
            .decode(&written.histogram)
            .map_err(D::Error::custom)?;
        let mut values: Histogram<u64> = Reader::new()
            .deserialize(&mut bytes.as_slice())
            .map_err(|error| D::Error::custom(format!("histogram: {error:?}")))?;
        values.auto(true);
        Ok(Self { values })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn percentiles_are_right_to_a_part_in_a_thousand(
            sample in prop::collection::vec(0_u64..10_000_000_000, 1..300), q in 0.0..1.0_f64,
        ) {
            let mut distribution = Distribution::default();
            sample.iter().for_each(|value| distribution.record(*value));
            let mut sorted = sample;
            sorted.sort_unstable();
            let rank = ((q * sorted.len() as f64).ceil() as usize).max(1) - 1;
            let (exact, found) = (sorted[rank] as f64, distribution.quantile(q).unwrap() as f64);
            prop_assert!((found - exact).abs() <= exact / 1000.0 + 1.0, "{found} {exact}");
        }

        #[test]
        fn what_is_written_is_read_and_parts_add_up(
            a in prop::collection::vec(0_u64..10_000_000, 0..50),
            b in prop::collection::vec(0_u64..10_000_000_000, 0..50),
        ) {
            let of = |values: &[u64]| {
                let mut distribution = Distribution::default();
                values.iter().for_each(|value| distribution.record(*value));
                let text = serde_json::to_string(&distribution).unwrap();
                serde_json::from_str::<Distribution>(&text).unwrap()
            };
            let mut sum = of(&a);
            sum.add(&of(&b));
            let both = of(&[a, b].concat());
            prop_assert_eq!(sum.count(), both.count());
            for (_, q) in SHOWN {
                prop_assert_eq!(sum.quantile(q), both.quantile(q));
            }
        }
    }

    fn of(values: std::ops::RangeInclusive<u64>) -> Distribution {
        let mut distribution = Distribution::default();
        values.for_each(|value| distribution.record(value));
        distribution
    }

    #[test]
    fn each_figure_stands_in_json_under_its_name() {
        let json = serde_json::to_value(of(1..=1000)).unwrap();
        for (name, want) in [
            ("count", 1000.0),
            ("min", 1.0),
            ("mean", 500.5),
            ("deviation", 288.67),
            ("p50", 500.0),
            ("p90", 900.0),
            ("p95", 950.0),
            ("p99", 990.0),
            ("p99.9", 999.0),
            ("max", 1000.0),
        ] {
            let found = json[name].as_f64().unwrap();
            assert!((found - want).abs() < 0.01, "{name}: {found}");
        }
    }

    #[test]
    fn cumulative_shares_ascend_from_the_least_to_all() {
        let found = of(1..=1000).cumulative();
        assert_eq!(found.first(), Some(&(1, 0.0)));
        assert_eq!(found.last(), Some(&(1000, 1.0)));
        assert!(found.windows(2).all(|pair| pair[0].1 < pair[1].1));
        for (value, share) in found {
            assert!(
                (value as f64 - 1000.0 * share).abs() <= 1.0,
                "{value} {share}"
            );
        }
    }

    #[test]
    fn what_is_beyond_the_greatest_value_is_counted_as_that() {
        let mut distribution = of(1..=3);
        distribution.record(u64::MAX);
        assert_eq!(distribution.count(), 4);
        assert!(
            distribution.max() > Some(1 << 61),
            "{:?}",
            distribution.max()
        );
    }

    #[test]
    fn nothing_has_no_percentiles() {
        let nothing = Distribution::default();
        assert_eq!(nothing.quantile(0.5), None);
        let json = serde_json::to_value(&nothing).unwrap();
        assert!(json["p99.9"].is_null() && json["mean"].is_null());
    }
}

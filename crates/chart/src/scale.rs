//! Axes: from values to units, and where the ticks stand.

use crate::number::short;

/// The least that a logarithmic axis shows, and one by the most that any does.
const LEAST: f64 = 1e-15;

/// An axis as it is asked for.
#[derive(Clone, Debug)]
pub struct Axis {
    pub(crate) label: String,
    log: bool,
    from: Option<f64>,
    to: Option<f64>,
}

impl Axis {
    /// In equal steps; begins at 0 unless there are values below or [`Axis::from`] says otherwise. The label names
    /// what is shown, with its unit.
    #[must_use]
    pub fn linear(label: impl Into<String>) -> Self {
        Self {
            label: label.into(),
            log: false,
            from: None,
            to: None,
        }
    }

    /// In equal factors: values above 0 only.
    #[must_use]
    pub fn log(label: impl Into<String>) -> Self {
        Self {
            log: true,
            ..Self::linear(label)
        }
    }

    /// Begins here.
    #[must_use]
    pub const fn from(mut self, from: f64) -> Self {
        self.from = Some(from);
        self
    }

    /// Ends here.
    #[must_use]
    pub const fn to(mut self, to: f64) -> Self {
        self.to = Some(to);
        self
    }

    /// Whether it can show the value.
    pub(crate) fn shows(&self, value: f64) -> bool {
        value.abs() <= 1.0 / LEAST && (!self.log || value >= LEAST)
    }

    /// For these values, on a side that has room for about so many ticks.
    pub(crate) fn fit(&self, values: impl Iterator<Item = f64>, ticks: f64) -> Scale {
        let shown = values.filter(|value| self.shows(*value));
        let (low, high) = shown.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        let none = low > high;
        match self.log {
            true if none => self.log_scale(1.0, 10.0),
            true => self.log_scale(low, high),
            false if none => self.linear_scale(0.0, 1.0, ticks),
            false => self.linear_scale(low, high, ticks),
        }
    }

    fn linear_scale(&self, low: f64, high: f64, ticks: f64) -> Scale {
        let low = self.from.unwrap_or_else(|| low.min(0.0));
        let mut high = self.to.unwrap_or(high);
        if high <= low {
            high = low + low.abs().max(1.0);
        }
        let step = nice(high - low, ticks);
        let from = self.from.unwrap_or_else(|| (low / step).floor() * step);
        let to = self
            .to
            .unwrap_or_else(|| (high / step - 1e-9).ceil() * step);
        let digits = (from.abs().max(to.abs()) / step)
            .log10()
            .ceil()
            .clamp(2.0, 8.0) as u32
            + 1;
        let first = (from / step - 1e-9).ceil();
        let last = (to / step + 1e-9).floor();
        let count = (last - first).clamp(0.0, 50.0) as u32;
        let ticks = (0..=count).map(|i| (first + f64::from(i)) * step);
        Scale {
            log: false,
            from,
            to,
            ticks: ticks.map(|value| (value, short(value, digits))).collect(),
        }
    }

    fn log_scale(&self, low: f64, high: f64) -> Scale {
        let shows = |value: &f64| self.shows(*value);
        let low = self.from.filter(shows).unwrap_or(low);
        let high = self.to.filter(shows).unwrap_or(high).max(low);
        // A value alone gets room on both sides.
        let (low, high) = if high / low < 1.01 {
            (low / 2.0, high * 2.0)
        } else {
            (low, high)
        };
        let ladder = ladder(low, high);
        let from = self
            .from
            .filter(shows)
            .unwrap_or_else(|| below(&ladder, low));
        let to = self
            .to
            .filter(shows)
            .unwrap_or_else(|| above(&ladder, high));
        let inside = ladder
            .into_iter()
            .filter(|v| *v >= from * 0.999 && *v <= to * 1.001);
        Scale {
            log: true,
            from,
            to,
            ticks: inside.map(|value| (value, short(value, 3))).collect(),
        }
    }
}

/// A step of 1, 2 or 5 times a power of ten.
fn nice(span: f64, ticks: f64) -> f64 {
    let raw = span / ticks.max(1.0);
    let power = 10_f64.powf(raw.log10().floor());
    let factor = match raw / power {
        f if f <= 1.0 => 1.0,
        f if f <= 2.0 => 2.0,
        f if f <= 5.0 => 5.0,
        _ => 10.0,
    };
    factor * power
}

/// 1, 2, 5, 10, 20... around a stretch; over many powers of ten only those, or every second of them.
fn ladder(low: f64, high: f64) -> Vec<f64> {
    let first = low.log10().floor() as i32;
    let last = high.log10().ceil() as i32;
    let powers = last - first;
    let stride = (powers / 8).max(1) as usize;
    let steps: &[f64] = if powers <= 3 {
        &[1.0, 2.0, 5.0]
    } else {
        &[1.0]
    };
    let powers = (first..=last + stride as i32).step_by(stride);
    powers
        .flat_map(|power| steps.iter().map(move |step| step * 10_f64.powi(power)))
        .collect()
}

fn below(ladder: &[f64], value: f64) -> f64 {
    let fits = ladder.iter().filter(|step| **step <= value * 1.001);
    fits.copied()
        .fold(f64::NEG_INFINITY, f64::max)
        .max(ladder[0].min(value))
}

fn above(ladder: &[f64], value: f64) -> f64 {
    let fits = ladder.iter().find(|step| **step >= value * 0.999);
    fits.copied().unwrap_or(value)
}

/// An axis with its ends and ticks.
#[derive(Clone, Debug)]
pub(crate) struct Scale {
    log: bool,
    from: f64,
    to: f64,
    /// Values and their words.
    pub(crate) ticks: Vec<(f64, String)>,
}

impl Scale {
    /// Where a value is, from 0 to 1; beyond that for one that is outside.
    pub(crate) fn share(&self, value: f64) -> f64 {
        match self.log {
            true => (value / self.from).ln() / (self.to / self.from).ln(),
            false => (value - self.from) / (self.to - self.from),
        }
    }

    /// Whether a value is on it.
    pub(crate) fn holds(&self, value: f64) -> bool {
        let share = self.share(value);
        (-1e-9..=1.0 + 1e-9).contains(&share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(scale: &Scale) -> Vec<&str> {
        scale.ticks.iter().map(|(_, text)| text.as_str()).collect()
    }

    #[test]
    fn a_linear_axis_has_round_ticks_around_its_values() {
        let scale = Axis::linear("ms").fit([3.0, 47.0].into_iter(), 5.0);
        assert_eq!(words(&scale), ["0", "10", "20", "30", "40", "50"]);
        assert_eq!(
            (scale.share(0.0), scale.share(25.0), scale.share(50.0)),
            (0.0, 0.5, 1.0)
        );
        let scale = Axis::linear("").fit([-0.3, 0.3].into_iter(), 5.0);
        assert_eq!(words(&scale), ["-0.4", "-0.2", "0", "0.2", "0.4"]);
        let scale = Axis::linear("")
            .from(100_000.0)
            .to(100_004.0)
            .fit([].into_iter(), 4.0);
        assert_eq!(
            words(&scale),
            ["100k", "100.001k", "100.002k", "100.003k", "100.004k"]
        );
    }

    #[test]
    fn a_linear_axis_begins_at_nothing_and_takes_the_least_round_step_that_is_enough() {
        let fit = |values: [f64; 2]| Axis::linear("").fit(values.into_iter(), 5.0);
        assert_eq!(
            words(&fit([40.0, 48.0])),
            ["0", "10", "20", "30", "40", "50"]
        );
        assert_eq!(words(&fit([0.0, 10.0])), ["0", "2", "4", "6", "8", "10"]);
        assert_eq!(words(&fit([0.0, 5.0])), ["0", "1", "2", "3", "4", "5"]);
        assert_eq!(words(&fit([0.0, 11.0])), ["0", "5", "10", "15"]);
    }

    #[test]
    fn a_logarithmic_axis_over_very_many_powers_of_ten_shows_some_of_them() {
        let scale = Axis::log("").fit([1e-9, 1e9].into_iter(), 5.0);
        let values: Vec<f64> = scale.ticks.iter().map(|(value, _)| *value).collect();
        assert_eq!(values.len(), 10, "{values:?}");
        let factors = values.windows(2).map(|pair| pair[1] / pair[0]);
        assert!(factors.into_iter().all(|f| (f - 100.0).abs() < 1e-6));
    }

    #[test]
    fn a_logarithmic_axis_has_equal_room_for_equal_factors() {
        let scale = Axis::log("").fit([3.0, 160.0, 0.0, -5.0, f64::NAN].into_iter(), 5.0);
        assert_eq!(words(&scale), ["2", "5", "10", "20", "50", "100", "200"]);
        let factor = |a: f64, b: f64| scale.share(b) - scale.share(a);
        assert!((factor(2.0, 20.0) - factor(20.0, 200.0)).abs() < 1e-9);
        let wide = Axis::log("").fit([1.0, 1e6].into_iter(), 5.0);
        assert_eq!(
            words(&wide),
            ["1", "10", "100", "1000", "10k", "100k", "1M"]
        );
    }

    #[test]
    fn values_that_are_one_none_or_no_numbers_make_an_axis_too() {
        let cases: [&[f64]; 6] = [
            &[],
            &[5.0],
            &[0.0],
            &[f64::NAN, f64::INFINITY],
            &[1e-15, 1e15, 1e200],
            &[1e-9, 2e-9],
        ];
        for values in cases {
            for axis in [Axis::linear(""), Axis::log("")] {
                let scale = axis.fit(values.iter().copied(), 5.0);
                assert!(scale.from < scale.to, "{values:?} {scale:?}");
                assert!((1..60).contains(&scale.ticks.len()), "{values:?} {scale:?}");
                for value in values.iter().filter(|value| axis.shows(**value)) {
                    assert!(scale.holds(*value), "{value} {scale:?}");
                }
            }
        }
    }
}

//! How long prompts and answers are.

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use rand::Rng;
use rand_distr::{Distribution, LogNormal, Normal};

use crate::input::{InputError, lines};
use crate::units::UnitError;

/// No prompt or answer has more tokens.
pub const LONGEST: u32 = 4 << 20;

const LENGTHS: &str = "a length from 1 to 4194304 tokens such as 512, uniform:100..500, normal:512,64 (mean, deviation), lognormal:512,0.8 \
                       (median, sigma of the logarithm) or file:PATH (a number a line)";

/// A distribution of lengths in tokens, each from 1 to [`LONGEST`].
#[derive(Clone, Debug)]
pub enum Lengths {
    /// Always the same.
    Fixed(u32),
    /// Each from the first to the last equally often.
    Uniform(u32, u32),
    /// Mean and deviation; what falls below 1 is 1.
    Normal(Normal<f64>),
    /// Median and the logarithm's deviation.
    LogNormal(LogNormal<f64>),
    /// One of these.
    Empirical(Arc<[u32]>),
}

/// Why lengths could not be read.
#[derive(Debug, thiserror::Error)]
pub enum LengthsError {
    /// Not of a known form.
    #[error(transparent)]
    Form(#[from] UnitError),
    /// Their file is wrong.
    #[error(transparent)]
    File(#[from] InputError),
}

impl Lengths {
    /// Draws one.
    pub(crate) fn draw(&self, rng: &mut impl Rng) -> u32 {
        match self {
            Self::Fixed(length) => *length,
            Self::Uniform(first, last) => rng.random_range(*first..=*last),
            Self::Normal(normal) => whole(normal.sample(rng)),
            Self::LogNormal(lognormal) => whole(lognormal.sample(rng)),
            Self::Empirical(known) => known[rng.random_range(0..known.len())],
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once(':').unwrap_or(("fixed", text));
        let pair = |separator: &str| -> Option<(f64, f64)> {
            let (a, b) = rest.split_once(separator)?;
            Some((a.parse().ok()?, b.parse().ok()?))
        };
        let length = |value: f64| (1.0..=f64::from(LONGEST)).contains(&value);
        match kind {
            "fixed" => {
                let fixed = rest.parse().ok()?;
                (1..=LONGEST).contains(&fixed).then_some(Self::Fixed(fixed))
            }
            "uniform" => {
                let (first, last) = rest.split_once("..")?;
                let (first, last) = (first.parse().ok()?, last.parse().ok()?);
                (1 <= first && first <= last && last <= LONGEST)
                    .then_some(Self::Uniform(first, last))
            }
            "normal" => {
                let (mean, deviation) = pair(",").filter(|(mean, _)| length(*mean))?;
                let normal = Normal::new(mean, deviation).ok()?;
                (deviation >= 0.0).then_some(Self::Normal(normal))
            }
            "lognormal" => {
                let (median, sigma) = pair(",").filter(|(median, _)| length(*median))?;
                let lognormal = LogNormal::new(median.ln(), sigma).ok()?;
                (sigma >= 0.0).then_some(Self::LogNormal(lognormal))
            }
            _ => None,
        }
    }

    fn read(path: &Path) -> Result<Self, InputError> {
        let mut known = Vec::new();
        for line in lines(path)? {
            let (number, line) = line?;
            let length: u32 = line.trim().parse().unwrap_or(0);
            if !(1..=LONGEST).contains(&length) {
                let want = format!("want a length from 1 to {LONGEST}, found {line:?}");
                return Err(InputError::line(path, number, want));
            }
            known.push(length);
        }
        if known.is_empty() {
            return Err(InputError::file(path, "it holds no lengths"));
        }
        Ok(Self::Empirical(known.into()))
    }
}

fn whole(value: f64) -> u32 {
    value.round().clamp(1.0, f64::from(LONGEST)) as u32
}

impl FromStr for Lengths {
    type Err = LengthsError;

    fn from_str(text: &str) -> Result<Self, LengthsError> {
        if let Some(path) = text.strip_prefix("file:") {
            return Ok(Self::read(Path::new(path))?);
        }
        let wrong = || UnitError::new(text, LENGTHS);
        Ok(Self::parse(text).ok_or_else(wrong)?)
    }
}

impl fmt::Display for Lengths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(length) => write!(f, "{length}"),
            Self::Uniform(first, last) => write!(f, "uniform:{first}..{last}"),
            Self::Normal(normal) => write!(f, "normal:{},{}", normal.mean(), normal.std_dev()),
            Self::LogNormal(_) => f.write_str("lognormal"),
            Self::Empirical(known) => write!(f, "one of {}", known.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::{Purpose, stream};

    fn drawn(text: &str) -> Vec<u32> {
        let lengths: Lengths = text.parse().unwrap();
        let mut rng = stream(1, Purpose::Request, 0);
        (0..10_000).map(|_| lengths.draw(&mut rng)).collect()
    }

    fn mean(sample: &[u32]) -> f64 {
        sample.iter().copied().map(f64::from).sum::<f64>() / sample.len() as f64
    }

    fn deviation(sample: impl Iterator<Item = f64>) -> f64 {
        let sample: Vec<f64> = sample.collect();
        let n = sample.len() as f64;
        let mean = sample.iter().sum::<f64>() / n;
        let squares = sample.iter().map(|value| (value - mean).powi(2));
        (squares.sum::<f64>() / n).sqrt()
    }

    #[test]
    fn lengths_are_written_as_they_are_read() {
        for text in ["512", "uniform:100..500", "normal:512,64"] {
            assert_eq!(text.parse::<Lengths>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn each_distribution_has_its_middle_and_its_bounds() {
        assert!(drawn("7").iter().all(|length| *length == 7));
        let uniform = drawn("uniform:10..20");
        assert_eq!(uniform.iter().min(), Some(&10));
        assert_eq!(uniform.iter().max(), Some(&20));
        let normal = drawn("normal:1000,50");
        assert!((mean(&normal) - 1000.0).abs() < 2.0);
        let deviation = self::deviation(normal.iter().copied().map(f64::from));
        assert!((deviation - 50.0).abs() < 2.0, "{deviation}");
        let small = mean(&drawn("normal:10,2"));
        assert!((small - 10.0).abs() < 0.1, "rounded, not cut: {small}");
        let mut lognormal = drawn("lognormal:100,1");
        lognormal.sort_unstable();
        assert!((95..105).contains(&lognormal[5000]), "{}", lognormal[5000]);
        let narrow = drawn("lognormal:10000,0.5");
        let sigma = self::deviation(narrow.iter().map(|length| f64::from(*length).ln()));
        assert!((sigma - 0.5).abs() < 0.02, "{sigma}");
        assert_eq!(drawn("normal:1,50").iter().min(), Some(&1));
    }

    #[test]
    fn lengths_of_a_file_are_drawn_and_a_wrong_line_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lengths");
        std::fs::write(&path, "5\n9\n").unwrap();
        let text = format!("file:{}", path.display());
        let found = drawn(&text);
        assert!(found.iter().all(|length| [5, 9].contains(length)));
        let first = found.iter().filter(|length| **length == 5).count();
        assert!((4500..5500).contains(&first), "each as often: {first}");
        std::fs::write(&path, "5\nnine\n").unwrap();
        let error = text.parse::<Lengths>().unwrap_err().to_string();
        assert!(error.contains("lengths:2: "), "{error}");
    }

    #[test]
    fn what_is_no_length_is_refused() {
        for wrong in [
            "",
            "0",
            "-1",
            "uniform:5..4",
            "uniform:0..4",
            "normal:5",
            "normal:0,1",
            "lognormal:5,-1",
            "zipf:1",
            "5000000",
        ] {
            let error = wrong.parse::<Lengths>().unwrap_err().to_string();
            let range = format!("want a length from 1 to {LONGEST} tokens such as");
            assert!(error.contains(&range), "{error}");
        }
    }
}

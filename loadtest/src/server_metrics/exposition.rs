//! The text form in which servers show metrics: Prometheus' 0.0.4, with what OpenMetrics adds where a server sends
//! that. Pure: text in, samples out, or the line that is wrong.
//!
//! Why not a published parser: `prometheus-parse` 0.2.5 takes no colon in a name (vLLM's all have one) and no brace in
//! a label, `openmetrics-parser` 0.4.4 is under the LGPL, which `deny.toml` does not allow.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

/// What kind of figure a family is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// It only grows.
    Counter,
    /// It goes up and down; so is taken what has no type.
    Gauge,
    /// How many values there were up to each bound.
    Histogram,
    /// How many values there were, and their sum.
    Summary,
}

/// A series' labels.
pub type Labels = BTreeMap<String, String>;

/// Which figure of its series a sample is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Part {
    /// The only one.
    Value,
    /// Values up to this bound.
    Bucket(f64),
    /// The sum of all values.
    Sum,
    /// How many values there were.
    Count,
}

/// One line.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sample {
    /// The family's name; of a counter the one with `_total`, where it has that.
    pub(super) family: String,
    /// Of the family.
    pub(super) kind: Kind,
    /// Which of the series' figures.
    pub(super) part: Part,
    /// Those of the series: without `le`.
    pub(super) labels: Labels,
    /// As it was told.
    pub(super) value: f64,
}

/// A line that is no metric.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub(super) struct ExpositionError {
    /// From 1.
    pub(super) line: usize,
    /// In words.
    pub(super) problem: String,
}

/// A longer line is no metric.
const LONGEST_LINE: usize = 16 << 10;
/// More samples than a server has a use for.
const MOST_SAMPLES: usize = 100_000;
/// How much of a wrong line is shown.
const SHOWN: usize = 60;

/// Reads all of it.
///
/// # Errors
///
/// [`ExpositionError`] names the first line that is wrong.
pub(super) fn parse(text: &str) -> Result<Vec<Sample>, ExpositionError> {
    let mut kinds: HashMap<&str, Kind> = HashMap::new();
    let mut samples = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let wrong = |problem: String| ExpositionError {
            line: at + 1,
            problem,
        };
        if line.len() > LONGEST_LINE {
            return Err(wrong(format!("more than {LONGEST_LINE} bytes")));
        }
        let line = line.trim();
        if let Some(comment) = line.strip_prefix('#') {
            let mut words = comment.split_whitespace();
            if let (Some("TYPE"), Some(name), Some(kind)) =
                (words.next(), words.next(), words.next())
            {
                kinds.insert(name, kind_of(kind));
            }
            continue;
        }
        if line.is_empty() {
            continue;
        }
        let raw = raw(line).ok_or_else(|| {
            let shown: String = line.chars().take(SHOWN).collect();
            wrong(format!("{shown:?} is no metric"))
        })?;
        if samples.len() == MOST_SAMPLES {
            return Err(wrong(format!("more than {MOST_SAMPLES} samples")));
        }
        samples.extend(placed(raw, &kinds).map_err(wrong)?);
    }
    Ok(samples)
}

fn kind_of(name: &str) -> Kind {
    match name {
        "counter" => Kind::Counter,
        "histogram" => Kind::Histogram,
        "summary" => Kind::Summary,
        _ => Kind::Gauge,
    }
}

/// A line's parts, without what its family says of them.
struct Raw<'a> {
    name: &'a str,
    labels: Labels,
    value: f64,
}

fn raw(line: &str) -> Option<Raw<'_>> {
    let end = line.find(|c: char| !is_name(c)).unwrap_or(line.len());
    let (name, rest) = line.split_at(end);
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let rest = rest.trim_start();
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (Labels::new(), rest),
    };
    // Behind the value may stand a time, and an exemplar that begins with '#'.
    let mut words = rest.split_whitespace();
    let value = words.next()?.parse().ok()?;
    match words.next() {
        None | Some("#") => {}
        Some(time) => {
            time.parse::<f64>().ok()?;
            if words.next().is_some_and(|word| word != "#") {
                return None;
            }
        }
    }
    Some(Raw {
        name,
        labels,
        value,
    })
}

const fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == ':'
}

/// What stands up to the closing brace, and what follows it.
fn labels(mut rest: &str) -> Option<(Labels, &str)> {
    let mut labels = Labels::new();
    loop {
        rest = rest.trim_start();
        if let Some(behind) = rest.strip_prefix('}') {
            return Some((labels, behind));
        }
        let end = rest.find(|c: char| !is_name(c)).filter(|end| *end > 0)?;
        let (name, behind) = rest.split_at(end);
        let quoted = behind.trim_start().strip_prefix('=')?.trim_start();
        let (value, behind) = unquoted(quoted.strip_prefix('"')?)?;
        labels.insert(name.to_owned(), value);
        rest = behind.trim_start();
        match rest.strip_prefix(',') {
            Some(behind) => rest = behind,
            None if rest.starts_with('}') => {}
            None => return None,
        }
    }
}

/// A label's value up to its closing quote, and what follows that.
fn unquoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => match chars.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}

/// The sample that it is of its family; `None` for what is no figure of a run.
fn placed(raw: Raw<'_>, kinds: &HashMap<&str, Kind>) -> Result<Option<Sample>, String> {
    let Raw {
        name,
        mut labels,
        value,
    } = raw;
    let of = |family: &str, kind, part, labels| {
        let family = family.to_owned();
        Ok(Some(Sample {
            family,
            kind,
            part,
            labels,
            value,
        }))
    };
    match kinds.get(name) {
        Some(kind @ (Kind::Counter | Kind::Gauge)) => return of(name, *kind, Part::Value, labels),
        // A summary's quantiles are of the server's own stretch of time, not of the run.
        Some(Kind::Histogram | Kind::Summary) => return Ok(None),
        None => {}
    }
    for suffix in ["_bucket", "_sum", "_count", "_total", "_created"] {
        let Some(family) = name.strip_suffix(suffix) else {
            continue;
        };
        let part = match (suffix, kinds.get(family)) {
            ("_bucket", Some(Kind::Histogram)) => {
                let bound = labels.remove("le");
                let bound = bound.and_then(|bound| bound.parse().ok());
                let bound = bound.filter(|bound: &f64| !bound.is_nan());
                Part::Bucket(bound.ok_or_else(|| format!("{name} has no bound (le)"))?)
            }
            ("_sum", Some(Kind::Histogram | Kind::Summary)) => Part::Sum,
            ("_count", Some(Kind::Histogram | Kind::Summary)) => Part::Count,
            ("_total", Some(Kind::Counter)) => {
                return of(name, Kind::Counter, Part::Value, labels);
            }
            ("_created", Some(Kind::Counter | Kind::Histogram | Kind::Summary)) => return Ok(None),
            _ => continue,
        };
        let kind = kinds.get(family).copied().unwrap_or(Kind::Gauge);
        return of(family, kind, part, labels);
    }
    of(name, Kind::Gauge, Part::Value, labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Sample {
        let samples = parse(text).unwrap();
        assert_eq!(samples.len(), 1, "{samples:?}");
        samples.into_iter().next().unwrap()
    }

    #[test]
    fn names_labels_and_values_are_read_with_escapes_times_and_exemplars() {
        let sample = one(
            "# TYPE a:b counter\na:b{x=\"1, \\\"2\\\"}\\n\\\\\", y = \"\",} 1.5e3 1700000000\n",
        );
        assert_eq!(
            (sample.family.as_str(), sample.kind),
            ("a:b", Kind::Counter)
        );
        assert_eq!(sample.labels["x"], "1, \"2\"}\n\\");
        assert_eq!(sample.labels["y"], "");
        assert_eq!(sample.value, 1500.0);
        let sample = one("# TYPE a counter\na_total 5 # {trace_id=\"x\"} 1\n# EOF");
        assert_eq!(
            (sample.family.as_str(), sample.kind),
            ("a_total", Kind::Counter)
        );
        assert!(one("untyped NaN").value.is_nan());
        assert_eq!(one("x +Inf").value, f64::INFINITY);
    }

    #[test]
    fn a_histogram_is_one_family_of_buckets_sum_and_count() {
        let text = "# TYPE h histogram\nh_bucket{le=\"0.5\",m=\"x\"} 1\nh_bucket{le=\"+Inf\",m=\"x\"} 2\n\
                    h_sum{m=\"x\"} 3\nh_count{m=\"x\"} 2\nh_created{m=\"x\"} 1e9\n";
        let samples = parse(text).unwrap();
        let parts: Vec<Part> = samples.iter().map(|sample| sample.part).collect();
        let infinite = Part::Bucket(f64::INFINITY);
        assert_eq!(parts, [Part::Bucket(0.5), infinite, Part::Sum, Part::Count]);
        assert!(samples.iter().all(|sample| sample.family == "h"));
        assert!(samples.iter().all(|sample| sample.labels.len() == 1));
    }

    #[test]
    fn names_that_only_look_like_parts_stay_whole() {
        let text = "# TYPE up_count gauge\nup_count 1\nqueue_sum 2\nfoo_bucket 3\nbar_created 4\n";
        let names: Vec<String> = parse(text)
            .unwrap()
            .into_iter()
            .map(|sample| sample.family)
            .collect();
        assert_eq!(
            names,
            ["up_count", "queue_sum", "foo_bucket", "bar_created"]
        );
    }

    #[test]
    fn a_wrong_line_is_named() {
        for (text, line, says) in [
            ("a 1\n<html>", 2, "\"<html>\" is no metric"),
            ("a", 1, "\"a\" is no metric"),
            ("a b", 1, "is no metric"),
            ("1a 1", 1, "is no metric"),
            ("a{b} 1", 1, "is no metric"),
            ("a{b=\"c} 1", 1, "is no metric"),
            ("a{b=\"c\" d=\"e\"} 1", 1, "is no metric"),
            ("a 1 2 3", 1, "is no metric"),
            ("# TYPE h histogram\nh_bucket 1", 2, "h_bucket has no bound"),
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!(error.line, line, "{text}");
            assert!(error.problem.contains(says), "{error}");
        }
        let long = format!("a{{b=\"{}\"}} 1", "x".repeat(LONGEST_LINE));
        assert!(parse(&long).unwrap_err().problem.contains("more than"));
    }
}

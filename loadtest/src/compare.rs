//! Two tests side by side: what changed, and whether it is more than noise. Pure.
//!
//! Each figure of each load that both tests have gets an interval of its difference:
//!
//! - *within runs*: what a sample of so many answers leaves open. Quantiles by order statistics (exact binomial ranks),
//!   shares by Wilson's interval, rates by the number of answers; the difference from both sides' limits (Newcombe's way,
//!   in general Zou and Donner's MOVER, <https://doi.org/10.1002/sim.3095>). Tokens of one answer are not independent,
//!   so ITL counts with the number of answers.
//! - *between runs*, where both sides have repeats: Welch's t of the runs' own figures. Then the interval is the wider of
//!   both; without repeats it knows nothing of what differs from run to run, and says so.
//!
//! What must hold: all intervals of a comparison hold *together* with the wanted confidence (Bonferroni), so two tests of
//! the same server are called different, in any figure, at most as often as that leaves open.

mod figure;
mod interval;
mod search;
#[cfg(test)]
mod tests;

use serde::Serialize;

use crate::results::{OWN_SETTINGS, Place, Results, Run, RunEnd, places};
use figure::{Figure, Side};

/// Name and version of a comparison's form.
pub const FORMAT: &str = "tandem-loadtest-comparison/1";

/// What counts as a change.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rules {
    /// With which all intervals hold together, from 0 to 1.
    pub confidence: f64,
    /// Smaller changes of a time or a rate, as a share of its first value, are within noise however certain they are.
    pub least: f64,
}

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Microseconds.
    Us,
    /// From 0 to 1.
    Share,
    /// In each second.
    PerSecond,
    /// Requests at a time.
    AtATime,
}

/// What a change is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The second is better.
    Better,
    /// The second is worse.
    Worse,
    /// The same test, done again, could show as much.
    WithinNoise,
}

/// Where a load's intervals come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// Runs and answers: both sides have repeats.
    BetweenRuns,
    /// Answers alone.
    WithinRuns,
}

/// One figure in both tests, in the unit of results.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Its name, such as `ttft p99`.
    pub figure: String,
    /// Its unit.
    pub unit: Unit,
    /// In the first test.
    pub a: f64,
    /// In the second.
    pub b: f64,
    /// The lowest that `b - a` may be; `None`: too few answers to say.
    pub low: Option<f64>,
    /// The highest.
    pub high: Option<f64>,
    /// What that makes of it.
    pub verdict: Verdict,
}

/// A load that both tests have.
#[derive(Clone, Debug, Serialize)]
pub struct LoadComparison {
    /// Which one.
    #[serde(flatten)]
    pub place: Place,
    /// Runs in the first test and in the second.
    pub runs: (usize, usize),
    /// Where its intervals come from.
    pub method: Method,
    /// Its figures.
    pub rows: Vec<Row>,
}

/// A setting that is not the same; `None`: not set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// By the name of its flag, or `version`, `url`, `model`.
    pub setting: String,
    /// In the first test.
    pub a: Option<String>,
    /// In the second.
    pub b: Option<String>,
}

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// [`FORMAT`].
    pub format: &'static str,
    /// What counted as a change.
    pub rules: Rules,
    /// What was not the same in the tests themselves.
    pub differences: Vec<Difference>,
    /// Why not to trust it, and what was left out.
    pub notes: Vec<String>,
    /// The loads that both have, in the first one's order.
    pub loads: Vec<LoadComparison>,
    /// What two searches found.
    pub search: Option<Row>,
}

/// Why two tests cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompareError {
    /// A test without a run.
    #[error("the {0} results hold no run")]
    Empty(&'static str),
    /// Nothing to hold against each other.
    #[error("no load is in both: the first results have {a}, the second ones {b}")]
    NoCommonLoad {
        /// Loads of the first.
        a: String,
        /// Loads of the second.
        b: String,
    },
    /// Loads without an answer or a failure.
    #[error("no figure is in both: at the loads that both have, one of them measured no request")]
    NothingMeasured,
}

impl Comparison {
    /// Whether anything became worse.
    #[must_use]
    pub fn is_worse(&self) -> bool {
        self.rows().any(|row| row.verdict == Verdict::Worse)
    }

    /// All rows.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        let rows = self.loads.iter().flat_map(|load| &load.rows);
        rows.chain(&self.search)
    }
}

/// What changed from `a` to `b`.
///
/// # Errors
///
/// [`CompareError`].
pub fn compare(a: &Results, b: &Results, rules: Rules) -> Result<Comparison, CompareError> {
    for (results, which) in [(a, "first"), (b, "second")] {
        if results.runs.is_empty() {
            return Err(CompareError::Empty(which));
        }
    }
    let limited = a.slos == b.slos && !a.slos.is_empty();
    let pairs: Vec<(Place, Side<'_>, Side<'_>)> = places(&a.runs)
        .into_iter()
        .map(|place| {
            let sides = (Side::of(a, &place), Side::of(b, &place));
            (place, sides.0, sides.1)
        })
        .filter(|(_, _, other)| other.runs() > 0)
        .collect();
    let search = search::row(a, b);
    if pairs.is_empty() && search.is_none() {
        let shown = |results: &Results| words(&places(&results.runs));
        return Err(CompareError::NoCommonLoad {
            a: shown(a),
            b: shown(b),
        });
    }
    let figures = Figure::all(limited);
    let wanted = |a: &Side<'_>, b: &Side<'_>| -> Vec<Figure> {
        let both = |figure: &&Figure| figure.is_in(a, b);
        figures.iter().filter(both).copied().collect()
    };
    let all: usize = pairs.iter().map(|(_, a, b)| wanted(a, b).len()).sum();
    if all == 0 && search.is_none() {
        return Err(CompareError::NothingMeasured);
    }
    // The chance that is left to each interval.
    let alpha = (1.0 - rules.confidence) / all.max(1) as f64;
    let compared = pairs.iter().map(|(place, a, b)| LoadComparison {
        place: place.clone(),
        runs: (a.runs(), b.runs()),
        method: if a.runs().min(b.runs()) >= 2 {
            Method::BetweenRuns
        } else {
            Method::WithinRuns
        },
        rows: wanted(a, b)
            .iter()
            .filter_map(|figure| figure.row(a, b, alpha, rules.least))
            .collect(),
    });
    Ok(Comparison {
        format: FORMAT,
        rules,
        differences: differences(a, b),
        loads: compared.collect(),
        notes: notes(a, b),
        search,
    })
}

fn words(loads: &[Place]) -> String {
    let words: Vec<String> = loads.iter().map(ToString::to_string).collect();
    words.join(", ")
}

fn differences(a: &Results, b: &Results) -> Vec<Difference> {
    let mut found = Vec::new();
    let mut differ = |setting: &str, a: Option<&String>, b: Option<&String>| {
        if a != b {
            found.push(Difference {
                setting: setting.to_owned(),
                a: a.cloned(),
                b: b.cloned(),
            });
        }
    };
    differ("url", Some(&a.url), Some(&b.url));
    differ("model", Some(&a.model), Some(&b.model));
    differ("version", Some(&a.version), Some(&b.version));
    let keys: std::collections::BTreeSet<_> = a.settings.keys().chain(b.settings.keys()).collect();
    for key in keys {
        if !OWN_SETTINGS.contains(&key.as_str()) && !["model", "asserts"].contains(&key.as_str()) {
            differ(
                &format!("--{key}"),
                a.settings.get(key),
                b.settings.get(key),
            );
        }
    }
    found
}

fn notes(a: &Results, b: &Results) -> Vec<String> {
    let mut notes = Vec::new();
    for (results, which) in [(a, "first"), (b, "second")] {
        let count = |of: fn(&&Run) -> bool| results.runs.iter().filter(of).count();
        let all = results.runs.len();
        let invalid = count(|run| !run.invalid.is_empty());
        if invalid > 0 {
            notes.push(format!("INVALID: {invalid} of {all} runs of the {which} results: the client did not measure well"));
        }
        let cut = count(|run| run.ended != RunEnd::Complete);
        if cut > 0 {
            notes.push(format!(
                "{cut} of {all} runs of the {which} results did not come to their end"
            ));
        }
    }
    for (results, which) in [(a, "first"), (b, "second")] {
        let told = results.runs.iter().find_map(|run| run.notes.first());
        notes.extend(told.map(|note| format!("the {which} results: {note}")));
    }
    if a.slos != b.slos {
        notes.push("their SLOs differ: attainment and goodput are not compared".to_owned());
    }
    let (mine, others) = (places(&a.runs), places(&b.runs));
    let missing = |from: &[Place], of: &[Place]| -> Vec<Place> {
        let alone = of
            .iter()
            .filter(|place| !from.iter().any(|known| known.is(place)));
        alone.cloned().collect()
    };
    for (which, alone) in [
        ("first", missing(&others, &mine)),
        ("second", missing(&mine, &others)),
    ] {
        if !alone.is_empty() {
            notes.push(format!("only in the {which} results: {}", words(&alone)));
        }
    }
    notes
}

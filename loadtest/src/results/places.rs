//! Which runs are of one kind.

use std::fmt;

use serde::Serialize;

use super::{LoadPoint, Run};

/// What runs have in common whose figures may be put together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Place {
    /// What the server was made for them, in a sweep over that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub setting: Option<String>,
    /// How hard they pressed.
    pub load: LoadPoint,
}

impl Place {
    /// Whether a run is one of them.
    #[must_use]
    pub fn holds(&self, run: &Run) -> bool {
        self.setting == run.setting && same_load(self.load, run.load)
    }

    /// Whether they are the same: of two tests, for example.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        self.setting == other.setting && same_load(self.load, other.load)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.setting {
            Some(setting) => write!(f, "{setting}, {}", self.load),
            None => self.load.fmt(f),
        }
    }
}

impl Run {
    /// Where it stands in its test.
    #[must_use]
    pub fn place(&self) -> Place {
        Place {
            setting: self.setting.clone(),
            load: self.load,
        }
    }
}

/// The places of some runs, each once, in the order in which they first came.
#[must_use]
pub fn places<'a>(runs: impl IntoIterator<Item = &'a Run>) -> Vec<Place> {
    let mut places: Vec<Place> = Vec::new();
    for run in runs {
        if !places.iter().any(|known| known.holds(run)) {
            places.push(run.place());
        }
    }
    places
}

/// Whether two loads are one: a rate that was computed may differ in its last digits.
fn same_load(a: LoadPoint, b: LoadPoint) -> bool {
    let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * a.abs().max(b.abs());
    match (a, b) {
        (LoadPoint::Rate(a), LoadPoint::Rate(b))
        | (LoadPoint::TraceSpeed(a), LoadPoint::TraceSpeed(b)) => near(a, b),
        (a, b) => a == b,
    }
}

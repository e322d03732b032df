//! Which runs pressed equally hard.

use super::{LoadPoint, Run};

/// The loads of some runs, each once, in the order in which they first came.
#[must_use]
pub fn loads<'a>(runs: impl IntoIterator<Item = &'a Run>) -> Vec<LoadPoint> {
    let mut loads: Vec<LoadPoint> = Vec::new();
    for run in runs {
        if !loads.iter().any(|known| same_load(*known, run.load)) {
            loads.push(run.load);
        }
    }
    loads
}

/// Whether two loads are one: a rate that was computed may differ in its last digits.
#[must_use]
pub fn same_load(a: LoadPoint, b: LoadPoint) -> bool {
    let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * a.abs().max(b.abs());
    match (a, b) {
        (LoadPoint::Rate(a), LoadPoint::Rate(b))
        | (LoadPoint::TraceSpeed(a), LoadPoint::TraceSpeed(b)) => near(a, b),
        (a, b) => a == b,
    }
}

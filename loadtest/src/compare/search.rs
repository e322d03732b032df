//! The highest loads that two searches found.

use super::{Row, Unit, Verdict};
use crate::results::Results;
use crate::search::Found;

/// A search knows its load to lie between the best one and the lowest that was too much: two differ where these bounds
/// are apart by more than both searches' tolerance.
pub(super) fn row(a: &Results, b: &Results) -> Option<Row> {
    let (found_a, found_b) = (a.search.as_ref()?, b.search.as_ref()?);
    let same = found_a.plan.attainment.to_bits() == found_b.plan.attainment.to_bits()
        && found_a.plan.whole == found_b.plan.whole
        && a.slos == b.slos;
    if !same {
        return None;
    }
    let (best_a, best_b) = (found_a.best?, found_b.best?);
    let tolerance = 1.0 + found_a.plan.tolerance.max(found_b.plan.tolerance);
    let high = |found: &Found| found.too_much.map(|load| load * tolerance);
    let low = high(found_a).map(|high| best_b - high);
    let high = high(found_b).map(|high| high - best_a);
    Some(Row {
        figure: "highest load that meets the SLO".to_owned(),
        unit: if found_a.plan.whole {
            Unit::AtATime
        } else {
            Unit::PerSecond
        },
        a: best_a,
        b: best_b,
        low,
        high,
        verdict: match (low, high) {
            (Some(low), _) if low > 0.0 => Verdict::Better,
            (_, Some(high)) if high < 0.0 => Verdict::Worse,
            _ => Verdict::WithinNoise,
        },
    })
}

//! Whether a test went well.

use std::collections::BTreeSet;

use tandem_loadtest::assertion::{Assertion, Verdict};
use tandem_loadtest::results::{Results, RunEnd};
use tandem_loadtest::search::{Ended, Found};
use tandem_loadtest::slo::Slos;

use super::args::LoadtestArgs;
use super::requests::{flag, wrong};
use crate::failure::Failure;

/// What the command line asserts.
pub(super) fn assertions(args: &LoadtestArgs) -> Result<Vec<Assertion>, Failure> {
    parse(&args.asserts)
}

pub(super) fn parse(texts: &[String]) -> Result<Vec<Assertion>, Failure> {
    texts.iter().map(|text| flag("--assert", text)).collect()
}

/// Refuses limits and assertions of classes that there are not.
pub(super) fn check_classes(
    assertions: &[Assertion],
    slos: &Slos,
    classes: &[String],
) -> Result<(), Failure> {
    let asserted = assertions
        .iter()
        .filter_map(|assertion| Some(("--assert", assertion.class()?)));
    let limited = slos.classes.keys().map(|class| ("--slo", class.as_str()));
    for (name, class) in asserted.chain(limited) {
        if !classes.iter().any(|known| known == class) {
            let known = classes.join(", ");
            return Err(wrong(
                name,
                format!("{class}: no such class, want one of {known}"),
            ));
        }
    }
    Ok(())
}

/// Every assertion in every run.
pub(super) fn check(assertions: &[Assertion], results: &Results) -> Vec<Verdict> {
    let runs = results.runs.iter();
    runs.flat_map(|run| assertions.iter().map(|assertion| assertion.check(run)))
        .collect()
}

/// What a test was to be, as far as its results do not tell.
#[derive(Clone, Copy, Default)]
pub(super) struct Meant {
    /// It was to find where requests fail.
    pub(super) beyond_capacity: bool,
    /// Runs that it did not come to.
    pub(super) not_begun: usize,
}

/// An error that says in one line what went wrong.
pub(super) fn verdict(
    results: &Results,
    assertions: &[Assertion],
    meant: Meant,
) -> Result<(), Failure> {
    let mut wrong = Vec::new();
    let runs = || results.runs.iter();
    let not_begun = match meant.not_begun {
        0 => String::new(),
        runs => format!(", {runs} of {} runs not begun", runs + results.runs.len()),
    };
    if runs().any(|run| run.ended == RunEnd::ServerGone) {
        wrong.push(format!("the server was gone before the end{not_begun}"));
    }
    if runs().any(|run| run.ended == RunEnd::Interrupted) || results.runs.is_empty() {
        wrong.push(format!("interrupted{not_begun}"));
    }
    wrong.extend(results.missed());
    let about_errors = assertions.iter().any(Assertion::is_about_errors);
    if !about_errors && !meant.beyond_capacity {
        let counts = |of: fn(&tandem_loadtest::summary::Counts) -> u64| -> u64 {
            runs().map(|run| of(&run.phases.measured.all.counts)).sum()
        };
        // With an SLO, being turned away is an outcome like being late.
        let rejected = match results.slos.is_empty() {
            true => counts(|counts| counts.rejected),
            false => 0,
        };
        let failed = counts(|counts| counts.failed + counts.unsent) + rejected;
        if failed > 0 {
            wrong.push(format!(
                "{failed} requests failed (--assert 'error_rate<1%' would allow some)"
            ));
        }
    }
    if results
        .search
        .as_ref()
        .is_some_and(|found| found.best.is_none() && !was_cut(found))
    {
        wrong.push("no load meets the SLO".to_owned());
    }
    if results.search.is_none() {
        wrong.extend(nothing_attained(results));
    }
    let invalid = runs().filter(|run| !run.invalid.is_empty()).count();
    if invalid > 0 && !meant.beyond_capacity {
        wrong.push(format!(
            "{invalid} of {} runs are invalid",
            results.runs.len()
        ));
    }
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(Failure::fault(wrong.join("; "))),
    }
}

/// Whether something else than its loads ended a search.
const fn was_cut(found: &Found) -> bool {
    matches!(found.ended, Ended::Interrupted | Ended::ServerGone)
}

/// Whose answers there are, with limits, and none of any run is within them: a class by itself, where there are several.
fn nothing_attained(results: &Results) -> Option<String> {
    if results.slos.is_empty() {
        return None;
    }
    let groups = |class: Option<&str>| {
        let measured = results.runs.iter().map(|run| &run.phases.measured);
        let of =
            measured.filter_map(|all| class.map_or(Some(&all.all), |name| all.classes.get(name)));
        let counts = of.map(|group| (group.counts.attained, group.counts.answered()));
        counts.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    };
    let none = |class: Option<&str>| matches!(groups(class), (0, 1..));
    if none(None) {
        return Some("no answer met the SLO".to_owned());
    }
    let classes = results
        .runs
        .iter()
        .flat_map(|run| run.phases.measured.classes.keys());
    let limited = |class: &&String| results.slos.of(class).is_some() && none(Some(class.as_str()));
    let missed: BTreeSet<&String> = classes.filter(limited).collect();
    let missed: Vec<&str> = missed.into_iter().map(String::as_str).collect();
    (!missed.is_empty()).then(|| format!("no answer of {} met the SLO", missed.join(", ")))
}

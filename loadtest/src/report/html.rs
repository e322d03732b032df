//! A report that a browser shows: one file, no script, nothing from elsewhere.
//!
//! The page's words are in `html/report.html`; that template escapes every value that it is given (minijinja's way, by
//! its name), and takes as markup only the charts, which escape what they are given themselves ([`tandem_chart`]). Error
//! texts and model names come from servers: none of them is ever markup.

mod charts;
mod tables;
#[cfg(test)]
mod tests;
mod times;

use minijinja::{AutoEscape, Environment, UndefinedBehavior};
use serde::Serialize;
use tandem_chart::Chart as _;

use super::text;
use crate::record::Record;
use crate::results::{Results, Run, RunEnd};
use tables::Table;

/// One test's results in a report.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a> {
    /// Under which the report speaks of it, such as the name of its file.
    pub name: &'a str,
    /// What it came to.
    pub results: &'a Results,
}

/// Runs that are shown one by one: a page has to be opened by a telephone too.
const MOST_RUNS: usize = 60;
const TEMPLATE: &str = include_str!("html/report.html");
const STYLE: &str = include_str!("html/report.css");

#[derive(Serialize)]
struct Page {
    title: String,
    style: String,
    together: Vec<String>,
    tests: Vec<Test>,
}

#[derive(Serialize)]
struct Test {
    name: String,
    url: String,
    model: String,
    version: String,
    started: String,
    slo: String,
    alarms: Vec<String>,
    search: String,
    charts: Vec<String>,
    tables: Vec<Table>,
    settings: Table,
    runs: Vec<OneRun>,
    left_out: usize,
}

#[derive(Serialize)]
struct OneRun {
    title: String,
    open: bool,
    alarms: Vec<String>,
    notes: Vec<String>,
    charts: Vec<String>,
    tables: Vec<Table>,
}

/// The page. `requests`: the slowest requests of a file, and its name; without it each run shows those that it kept.
#[must_use]
pub fn html(tests: &[Shown<'_>], requests: Option<(&str, &[Record])>) -> String {
    let title = match tests {
        [one] => format!("Load test of {}", one.results.model),
        several => format!("{} load tests", several.len()),
    };
    let together = if tests.len() > 1 {
        charts::of_tests(tests)
    } else {
        Vec::new()
    };
    let mut views: Vec<Test> = tests.iter().map(test).collect();
    if let (Some((name, records)), Some(first)) = (requests, views.first_mut()) {
        let title = format!("The slowest requests of {name}");
        let slos = &tests[0].results.slos;
        first
            .charts
            .extend(charts::waterfall(&title, records, slos).map(|chart| chart.svg()));
    }
    let page = Page {
        title,
        style: format!("{STYLE}{}", tandem_chart::STYLE),
        together,
        tests: views,
    };
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    let rendered = environment.render_str(TEMPLATE, page);
    // Both are part of this program, and each test of it renders all of the page.
    rendered.expect("the template asks for what the page has")
}

fn test(shown: &Shown<'_>) -> Test {
    let results = shown.results;
    let runs = &results.runs;
    let mut tables = Vec::new();
    if runs.len() > 1 {
        tables.push(tables::overview(results));
    }
    tables.extend(results.search.as_ref().map(tables::probes));
    if !results.assertions.is_empty() {
        tables.push(tables::assertions(results));
    }
    let started = runs.iter().map(|run| run.started_unix_ms).min();
    Test {
        name: shown.name.to_owned(),
        url: results.url.clone(),
        model: results.model.clone(),
        version: results.version.clone(),
        started: started.map(times::utc).unwrap_or_default(),
        slo: text::slos(results),
        alarms: alarms(results),
        search: results
            .search
            .as_ref()
            .map(text::search)
            .unwrap_or_default(),
        charts: charts::of_test(results),
        tables,
        settings: tables::settings(results),
        runs: runs
            .iter()
            .take(MOST_RUNS)
            .map(|run| one_run(run, results))
            .collect(),
        left_out: runs.len().saturating_sub(MOST_RUNS),
    }
}

/// What nobody may overlook.
fn alarms(results: &Results) -> Vec<String> {
    let mut alarms = Vec::new();
    if results.runs.is_empty() {
        alarms.push("No run was carried out.".to_owned());
    }
    let all = results.runs.len();
    let invalid = results
        .runs
        .iter()
        .filter(|run| !run.invalid.is_empty())
        .count();
    if invalid > 0 {
        alarms.push(format!(
            "INVALID: {invalid} of {all} runs. Their figures are not to be trusted."
        ));
    }
    let cut = results
        .runs
        .iter()
        .filter(|run| run.ended != RunEnd::Complete)
        .count();
    if cut > 0 {
        alarms.push(format!("{cut} of {all} runs did not come to their end."));
    }
    alarms.extend(results.missed().map(|missed| missed + "."));
    alarms
}

fn one_run(run: &Run, results: &Results) -> OneRun {
    let only = results.runs.len() == 1;
    let mut alarms: Vec<String> = run
        .invalid
        .iter()
        .map(|why| format!("INVALID: {why}"))
        .collect();
    match run.ended {
        RunEnd::Complete => {}
        RunEnd::Interrupted => {
            alarms.push(format!(
                "INTERRUPTED: {} requests under way are in no figure",
                run.cut
            ));
        }
        RunEnd::ServerGone => {
            alarms.push("THE SERVER IS GONE: the figures are of what came before".to_owned());
        }
    }
    let repeat = if run.repeat > 1 {
        format!(", repeat {}", run.repeat)
    } else {
        String::new()
    };
    OneRun {
        title: format!("{}{repeat}", run.place()),
        open: only,
        alarms,
        notes: notes(run, results),
        charts: charts::of_run(run, results),
        tables: tables::of_run(run, results),
    }
}

fn notes(run: &Run, results: &Results) -> Vec<String> {
    let measured = &run.phases.measured;
    let figures = &run.figures;
    let limited = !results.slos.is_empty();
    let mut notes = vec![match figures.requests {
        0 => text::NOTHING.to_owned(),
        _ => text::counts(&measured.all, limited),
    }];
    notes.extend(run.notes.iter().map(|note| format!("NOTE: {note}")));
    if figures.requests > 0 {
        notes.extend(of_measured(run, results));
    }

    for (name, phase) in [
        ("warm-up", &run.phases.warm_up),
        ("cool-down", &run.phases.cool_down),
    ] {
        let requests = phase.all.counts.all();
        if requests > 0 {
            notes.push(format!(
                "{name}: {requests} requests, in none of the figures"
            ));
        }
    }
    if measured.clipped > 0 {
        notes.push(format!(
            "{} requests were shortened to fit the model's context",
            measured.clipped
        ));
    }
    notes
}

/// Goodput, of all and of each class, and rates.
fn of_measured(run: &Run, results: &Results) -> Vec<String> {
    let (measured, figures) = (&run.phases.measured, &run.figures);
    let mut notes = Vec::new();
    if !results.slos.is_empty() {
        notes.push(format!("goodput {}", text::goodput(run, &measured.all)));
    }
    for (class, group) in &measured.classes {
        let found = text::of_class(run, class, group, results);
        notes.push(format!("class {class}: {found}"));
    }
    notes.push(format!(
        "{} answers/s, {} output tokens/s, {} prompt tokens/s, {} of those cached",
        super::table::number(figures.answered_per_s),
        super::table::number(figures.output_tokens_per_s),
        super::table::number(figures.input_tokens_per_s),
        super::table::percent(figures.cached_share)
    ));
    notes.push(format!("tokens {}", text::sources(measured)));
    notes
}

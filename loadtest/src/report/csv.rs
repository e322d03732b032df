//! A row for each run.

use std::fmt::Write;

use crate::distribution::SHOWN;
use crate::results::{LoadPoint, Results, Run};
use crate::summary::Metric;

const FIGURES: [&str; 23] = [
    "setting",
    "load_kind",
    "load",
    "repeat",
    "valid",
    "ended",
    "requests",
    "attained",
    "late",
    "rejected",
    "failed",
    "unsent",
    "offered_per_s",
    "answered_per_s",
    "goodput_per_s",
    "attainment",
    "output_tokens_per_s",
    "input_tokens_per_s",
    "cached_share",
    "span_s",
    "client_cpu_share",
    "lateness_p99_us",
    "loop_delay_p99_us",
];

/// A head and a row for each run; times in microseconds.
#[must_use]
pub fn csv(results: &Results) -> String {
    let mut text = FIGURES.join(",");
    for metric in Metric::ALL {
        let unit = if metric.is_time() { "_us" } else { "" };
        for (quantile, _) in SHOWN {
            let _ = write!(text, ",{}_{quantile}{unit}", metric.name());
        }
        let _ = write!(text, ",{0}_mean{unit},{0}_max{unit}", metric.name());
    }
    text.push('\n');
    for run in &results.runs {
        text += &row(run).join(",");
        text.push('\n');
    }
    text
}

/// As RFC 4180 has it, where it has to be.
fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

fn row(run: &Run) -> Vec<String> {
    let (kind, load) = match run.load {
        LoadPoint::Rate(rate) => ("rate", rate),
        LoadPoint::Concurrency(at_a_time) => ("concurrency", f64::from(at_a_time)),
        LoadPoint::TraceSpeed(speed) => ("trace_speed", speed),
    };
    let (figures, counts) = (&run.figures, &run.phases.measured.all.counts);
    let ended = serde_json::to_value(run.ended).unwrap_or_default();
    let mut cells = vec![
        quoted(run.setting.as_deref().unwrap_or("")),
        kind.to_owned(),
        load.to_string(),
        run.repeat.to_string(),
        run.invalid.is_empty().to_string(),
        ended.as_str().unwrap_or("").to_owned(),
        figures.requests.to_string(),
    ];
    let outcomes = [
        counts.attained,
        counts.late,
        counts.rejected,
        counts.failed,
        counts.unsent,
    ];
    cells.extend(outcomes.iter().map(u64::to_string));
    let rates = [
        figures.offered_per_s,
        figures.answered_per_s,
        figures.goodput_per_s,
        figures.attainment,
        figures.output_tokens_per_s,
        figures.input_tokens_per_s,
        figures.cached_share,
        figures.span_s,
        run.client.cpu_share,
    ];
    cells.extend(rates.iter().map(f64::to_string));
    let or_empty = |value: Option<u64>| value.map_or(String::new(), |value| value.to_string());
    cells.push(or_empty(run.client.lateness.quantile(0.99)));
    cells.push(or_empty(run.client.loop_delay.quantile(0.99)));
    for metric in Metric::ALL {
        let found = run.phases.measured.all.metrics.get(&metric);
        for (_, q) in SHOWN {
            cells.push(or_empty(found.and_then(|found| found.quantile(q))));
        }
        let mean = found.and_then(crate::distribution::Distribution::mean);
        cells.push(mean.map_or(String::new(), |mean| mean.to_string()));
        cells.push(or_empty(
            found.and_then(crate::distribution::Distribution::max),
        ));
    }
    cells
}

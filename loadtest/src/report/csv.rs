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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    use super::*;
    use crate::results::{ClientFigures, Figures, RunEnd};
    use crate::summary::Counts;
    use crate::testing::made::{Made, results, run};

    /// A run with other figures everywhere.
    fn one(load: LoadPoint) -> Run {
        let rng = &mut SmallRng::seed_from_u64(1);
        let none = Made {
            requests: 0,
            slower: 1.0,
            failing: 0.0,
        };
        let mut one = run(rng, load, 3, none);
        one.ended = RunEnd::ServerGone;
        one.figures = Figures {
            requests: 1,
            span_s: 2.0,
            offered_per_s: 3.0,
            answered_per_s: 4.0,
            goodput_per_s: 5.0,
            attainment: 0.6,
            error_rate: 0.7,
            rejected_rate: 0.8,
            output_tokens_per_s: 9.0,
            input_tokens_per_s: 10.0,
            cached_share: 0.11,
        };
        let measured = &mut one.phases.measured.all;
        measured.counts = Counts {
            attained: 12,
            late: 13,
            rejected: 14,
            failed: 15,
            unsent: 16,
        };
        for (i, metric) in (0..).zip(Metric::ALL) {
            let found = measured.metrics.entry(metric).or_default();
            (1..=100).for_each(|n| found.record(n + 200 * i));
        }
        let mut client = ClientFigures {
            cpu_share: 0.17,
            ..ClientFigures::default()
        };
        client.lateness.record(18);
        client.loop_delay.record(19);
        one.client = client;
        one
    }

    #[test]
    fn each_cell_stands_under_its_name() {
        let mut doubtful = one(LoadPoint::Concurrency(4));
        doubtful.invalid.push("late".to_owned());
        let text = csv(&results(vec![one(LoadPoint::Rate(2.5)), doubtful]));
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
        let [head, first, second] = &lines[..] else {
            panic!("{text}");
        };
        assert_eq!((head.len(), head.len()), (first.len(), second.len()));
        let cells: BTreeMap<&str, &str> = head.iter().copied().zip(first.iter().copied()).collect();
        assert_eq!(cells.len(), head.len(), "no name twice");
        for (name, want) in [
            ("setting", ""),
            ("load_kind", "rate"),
            ("load", "2.5"),
            ("repeat", "3"),
            ("valid", "true"),
            ("ended", "server_gone"),
            ("requests", "1"),
            ("span_s", "2"),
            ("offered_per_s", "3"),
            ("answered_per_s", "4"),
            ("goodput_per_s", "5"),
            ("attainment", "0.6"),
            ("output_tokens_per_s", "9"),
            ("input_tokens_per_s", "10"),
            ("cached_share", "0.11"),
            ("attained", "12"),
            ("late", "13"),
            ("rejected", "14"),
            ("failed", "15"),
            ("unsent", "16"),
            ("client_cpu_share", "0.17"),
            ("lateness_p99_us", "18"),
            ("loop_delay_p99_us", "19"),
            ("ttft_p50_us", "50"),
            ("ttft_p99_us", "99"),
            ("tpot_p90_us", "290"),
            ("itl_max_us", "500"),
            ("input_tokens_p95", "1095"),
            ("e2e_mean_us", "850.5"),
        ] {
            assert_eq!(cells.get(name), Some(&want), "{name}: {text}");
        }
        assert_eq!(second[..5], ["", "concurrency", "4", "3", "false"]);
    }
}

//! What servers said of themselves, beside the client's own figures.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::table::{number, precise, table};
use crate::server_metrics::{Family, Labels, SeriesFigures, ServerMetrics};

/// What stands above the columns of [`shown`].
pub(super) const HEAD: [&str; 7] = ["", "+", "/s", "p50", "p99", "mean", "max"];
/// Series that a summary shows of one server.
const MOST_ROWS: usize = 24;
/// A longer name is cut.
const LONGEST_NAME: usize = 72;

/// The series that are to be shown and in which something happened.
pub(super) fn server(all: &[ServerMetrics]) -> String {
    all.iter().map(one).collect()
}

/// What went wrong with the readings; `of` stands before each line.
pub(super) fn troubles(all: &[ServerMetrics], of: &str) -> String {
    let mut text = String::new();
    for metrics in all {
        if let Some(problem) = &metrics.problem {
            let (failed, all) = (metrics.failed, metrics.scrapes);
            let _ = writeln!(
                text,
                "{of}METRICS: {failed} of {all} readings failed, and what is shown is of the others: {problem}"
            );
        }
        if metrics.resets > 0 {
            let (url, resets) = (&metrics.url, metrics.resets);
            let _ = writeln!(
                text,
                "{of}METRICS: {url}: {resets} counters began anew: was the server started again?"
            );
        }
    }
    text
}

fn one(metrics: &ServerMetrics) -> String {
    let (url, scrapes) = (&metrics.url, metrics.scrapes);
    let span = number(metrics.span_s);
    let mut text = format!("server      {url}, {scrapes} readings in {span} s\n");
    let (mut rows, more) = shown(metrics);
    if rows.is_empty() {
        text += "            none of the metrics that --metrics-match tells has changed; all are in --json\n";
        return text;
    }
    rows.insert(0, HEAD.map(str::to_owned).to_vec());
    text += &table(&rows);
    if more > 0 {
        let _ = writeln!(
            text,
            "and {more} more: --metrics-match tells which are shown, all are in --json"
        );
    }
    text
}

/// A row for each series that is to be shown and in which something happened, and how many more there are.
pub(super) fn shown(metrics: &ServerMetrics) -> (Vec<Vec<String>>, usize) {
    let shown = metrics.families.iter().filter(|(_, family)| family.shown);
    let mut rows: Vec<Vec<String>> = shown
        .flat_map(|(name, family)| rows(name, family))
        .collect();
    let more = rows.len().saturating_sub(MOST_ROWS);
    rows.truncate(MOST_ROWS);
    (rows, more)
}

/// A family's series in which something happened.
fn rows(name: &str, family: &Family) -> Vec<Vec<String>> {
    let telling = telling(family);
    let moved = family.series.iter().filter(|one| one.figures.moved());
    let row = |labels: &Labels, figures: &SeriesFigures| {
        let cells = match figures {
            SeriesFigures::Counter { difference, per_s } => {
                [Some(*difference), Some(*per_s), None, None, None, None]
            }
            SeriesFigures::Gauge { mean, max, .. } => {
                [None, None, None, None, Some(*mean), Some(*max)]
            }
            SeriesFigures::Histogram {
                count,
                per_s,
                mean,
                p50,
                p99,
                ..
            } => [Some(*count), Some(*per_s), *p50, *p99, *mean, None],
        };
        let mut row = vec![named(name, labels, &telling)];
        row.extend(cells.map(|cell| cell.map_or(String::new(), precise)));
        row
    };
    moved.map(|one| row(&one.labels, &one.figures)).collect()
}

/// The labels in which a family's series differ.
fn telling(family: &Family) -> BTreeSet<&str> {
    let names = family.series.iter().flat_map(|one| one.labels.keys());
    let differs = |name: &&str| {
        let mut values = family.series.iter().map(|one| one.labels.get(*name));
        let first = values.next();
        values.any(|value| Some(value) != first)
    };
    names.map(String::as_str).filter(differs).collect()
}

fn named(name: &str, labels: &Labels, telling: &BTreeSet<&str>) -> String {
    let told = labels
        .iter()
        .filter(|(label, _)| telling.contains(label.as_str()))
        .map(|(label, value)| format!("{label}={}", value.escape_debug()));
    let told = told.collect::<Vec<_>>().join(",");
    let whole = match told.is_empty() {
        true => name.to_owned(),
        false => format!("{name}{{{told}}}"),
    };
    if whole.chars().count() <= LONGEST_NAME {
        return whole;
    }
    let cut: String = whole.chars().take(LONGEST_NAME - 3).collect();
    cut + "..."
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server_metrics::{Kind, Series};

    fn counter(labels: &[(&str, &str)], difference: f64) -> Series {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Series {
            labels: labels.iter().map(own).collect(),
            figures: SeriesFigures::Counter {
                difference,
                per_s: difference / 2.0,
            },
        }
    }

    fn metrics(series: Vec<Series>) -> ServerMetrics {
        let family = Family {
            kind: Kind::Counter,
            shown: true,
            series,
        };
        ServerMetrics {
            url: "http://s/metrics".to_owned(),
            span_s: 2.0,
            scrapes: 3,
            families: [("c".to_owned(), family)].into(),
            ..ServerMetrics::default()
        }
    }

    #[test]
    fn series_are_told_apart_by_the_labels_in_which_they_differ_and_still_ones_are_left_out() {
        let same = ("model", "m");
        let series = vec![
            counter(&[same, ("code", "200")], 8.0),
            counter(&[same, ("code", "500")], 0.0),
        ];
        assert_eq!(
            one(&metrics(series)),
            "server      http://s/metrics, 3 readings in 2.00 s\n\
             \x20               +    /s  p50  p99  mean  max\nc{code=200}  8.00  4.00\n"
        );
    }

    #[test]
    fn a_time_of_milliseconds_in_seconds_keeps_its_digits() {
        let figures = SeriesFigures::Histogram {
            count: 900.0,
            per_s: 450.0,
            mean: Some(0.002_347),
            p50: Some(0.002_25),
            p90: None,
            p95: None,
            p99: Some(0.000_987),
        };
        let series = Series {
            labels: Labels::new(),
            figures,
        };
        let text = one(&metrics(vec![series]));
        let row = text.lines().last().unwrap();
        assert_eq!(row, "c  900  450  0.00225  0.000987  0.00235");
    }

    #[test]
    fn a_gauges_mean_and_greatest_reading_stand_in_their_columns() {
        let figures = SeriesFigures::Gauge {
            min: 1.0,
            mean: 2.0,
            max: 5.0,
            last: 3.0,
        };
        let series = Series {
            labels: Labels::new(),
            figures,
        };
        let (rows, more) = shown(&metrics(vec![series]));
        assert_eq!((rows.len(), more), (1, 0));
        assert_eq!(rows[0], ["c", "", "", "", "", "2.00", "5.00"]);
    }

    #[test]
    fn a_summary_has_a_bound() {
        let names: Vec<String> = (0..40).map(|i| format!("{i:0100}")).collect();
        let series = names.iter().map(|name| counter(&[("n", name)], 1.0));
        let text = one(&metrics(series.collect()));
        assert_eq!(text.lines().count(), 1 + 1 + MOST_ROWS + 1);
        assert!(text.contains("and 16 more"), "{text}");
        assert!(
            text.lines().all(|line| line.chars().count() < 130),
            "{text}"
        );
    }

    #[test]
    fn readings_that_failed_and_counters_that_began_anew_are_told() {
        let troubled = ServerMetrics {
            failed: 1,
            problem: Some("http://s: gone".to_owned()),
            resets: 2,
            ..metrics(Vec::new())
        };
        let text = troubles(&[troubled], "x: ");
        assert!(
            text.contains("x: METRICS: 1 of 3 readings failed"),
            "{text}"
        );
        assert!(
            text.contains("http://s: gone") && text.contains("2 counters"),
            "{text}"
        );
    }
}

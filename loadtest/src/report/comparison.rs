//! A comparison as a terminal shows it.

use std::fmt::Write;

use super::table::{ms, number, percent, table};
use crate::compare::{Comparison, Difference, LoadComparison, Method, Row, Unit, Verdict};

/// What differs in the tests, then each load's figures, then what became worse and what better.
#[must_use]
pub fn comparison(found: &Comparison) -> String {
    let mut text = String::new();
    for difference in &found.differences {
        text += &differs(difference);
    }
    for note in &found.notes {
        let _ = writeln!(text, "note        {note}");
    }
    for load in &found.loads {
        text += &at(load);
    }
    if let Some(row) = &found.search {
        let _ = writeln!(text, "\nsearch");
        text += &table(&[head(), cells(row)]);
    }
    text.push('\n');
    text += &summary(found);
    text
}

fn differs(difference: &Difference) -> String {
    let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "not set".to_owned());
    let (a, b) = (shown(&difference.a), shown(&difference.b));
    format!("differs     {}: {a} -> {b}\n", difference.setting)
}

fn at(load: &LoadComparison) -> String {
    let (a, b) = load.runs;
    let how = match load.method {
        Method::BetweenRuns if a.min(b) > 2 => format!("{a} and {b} runs"),
        Method::BetweenRuns => {
            format!(
                "{a} and {b} runs: two of a kind show large changes only, --repeats 3 would show more"
            )
        }
        Method::WithinRuns => format!(
            "{a} and {b} run(s): what differs from run to run is in no interval, --repeats 3 would show it"
        ),
    };
    let mut rows = vec![head()];
    rows.extend(load.rows.iter().map(cells));
    format!("\n{}  ({how})\n{}", load.place, table(&rows))
}

fn head() -> Vec<String> {
    ["", "A", "B", "CHANGE", "B - A", "VERDICT"]
        .map(str::to_owned)
        .to_vec()
}

fn cells(row: &Row) -> Vec<String> {
    let (name, shown): (String, fn(f64) -> String) = match row.unit {
        Unit::Us => (named(&row.figure), |us| ms(Some(us))),
        Unit::Share => (row.figure.clone(), percent),
        Unit::PerSecond | Unit::AtATime => (row.figure.clone(), number),
    };
    let change = match row.unit {
        Unit::Share => format!("{:+.1} points", (row.b - row.a) * 100.0),
        _ if row.a == 0.0 => "-".to_owned(),
        _ => format!("{:+.1} %", (row.b / row.a - 1.0) * 100.0),
    };
    let limit = |limit: f64| match row.unit {
        Unit::Share => format!("{:+.1}", limit * 100.0),
        _ => shown(limit),
    };
    let between = match (row.low, row.high) {
        (None, None) => "too few answers".to_owned(),
        (low, high) => {
            let shown = |side: Option<f64>| side.map_or("?".to_owned(), limit);
            format!("{} to {}", shown(low), shown(high))
        }
    };
    vec![
        name,
        shown(row.a),
        shown(row.b),
        change,
        between,
        if is_told(row) {
            word(row.verdict).to_owned()
        } else {
            "cannot tell".to_owned()
        },
    ]
}

/// Whether there were enough answers for a verdict.
const fn is_told(row: &Row) -> bool {
    row.low.is_some() || row.high.is_some()
}

/// As the summary of a test names it: `TTFT p99 ms`.
fn named(figure: &str) -> String {
    let (metric, quantile) = figure.split_once(' ').unwrap_or((figure, ""));
    format!("{} {quantile} ms", metric.to_uppercase())
}

const fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Better => "better",
        Verdict::Worse => "WORSE",
        Verdict::WithinNoise => "within noise",
    }
}

fn summary(found: &Comparison) -> String {
    let count = |verdict| found.rows().filter(|row| row.verdict == verdict).count();
    let (worse, better) = (count(Verdict::Worse), count(Verdict::Better));
    let all = found.rows().count();
    let untold = found.rows().filter(|row| !is_told(row)).count();
    let untold_of = match untold {
        0 => String::new(),
        untold => format!(", {untold} of too few answers to tell"),
    };
    format!(
        "{worse} worse, {better} better, {} within noise{untold_of}; all intervals hold together with {}, and changes of times \
         and rates below {} count as none\n",
        all - worse - better - untold,
        percent(found.rules.confidence),
        percent(found.rules.least)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(unit: Unit, (a, b): (f64, f64), limits: (Option<f64>, Option<f64>)) -> Row {
        Row {
            figure: "ttft p99".to_owned(),
            unit,
            a,
            b,
            low: limits.0,
            high: limits.1,
            verdict: Verdict::WithinNoise,
        }
    }

    #[test]
    fn a_change_is_that_of_the_second_against_the_first() {
        let limits = (Some(1_000.0), None);
        let time = cells(&row(Unit::Us, (10_000.0, 12_500.0), limits));
        let want = [
            "TTFT p99 ms",
            "10.0",
            "12.5",
            "+25.0 %",
            "1.00 to ?",
            "within noise",
        ];
        assert_eq!(time, want);
        let limits = (Some(-0.05), Some(-0.01));
        let share = cells(&row(Unit::Share, (0.08, 0.05), limits));
        let want = [
            "ttft p99",
            "8.00 %",
            "5.00 %",
            "-3.0 points",
            "-5.0 to -1.0",
            "within noise",
        ];
        assert_eq!(share, want);
        let rate = cells(&row(Unit::PerSecond, (0.0, 5.0), (None, None)));
        assert_eq!(rate[3..], ["-", "too few answers", "cannot tell"]);
    }

    #[test]
    fn each_row_is_counted_once() {
        let known = (Some(-1.0), Some(1.0));
        let of = |verdict, limits| Row {
            verdict,
            ..row(Unit::Us, (1.0, 1.0), limits)
        };
        let rows = vec![
            of(Verdict::Worse, known),
            of(Verdict::Better, known),
            of(Verdict::Better, known),
            of(Verdict::WithinNoise, known),
            of(Verdict::WithinNoise, known),
            of(Verdict::WithinNoise, known),
            of(Verdict::WithinNoise, (None, None)),
        ];
        let found = Comparison {
            format: crate::compare::FORMAT,
            rules: crate::compare::Rules {
                confidence: 0.95,
                least: 0.01,
            },
            differences: Vec::new(),
            notes: Vec::new(),
            loads: vec![LoadComparison {
                place: crate::results::Place {
                    setting: None,
                    load: crate::results::LoadPoint::Rate(1.0),
                },
                runs: (1, 1),
                method: Method::WithinRuns,
                rows,
            }],
            search: None,
        };
        let told = summary(&found);
        let counts = "1 worse, 2 better, 3 within noise, 1 of too few answers to tell; all";
        assert!(told.starts_with(counts), "{told}");
    }
}

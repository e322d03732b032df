//! The figures of a report in rows.

use serde::Serialize;

use crate::distribution::Distribution;
use crate::report::table::{ms, number, percent};
use crate::report::{server, text};
use crate::results::{Results, Run};
use crate::search::Found;
use crate::server_metrics::ServerMetrics;
use crate::summary::{Group, Metric, Summary};

/// A table with a head; its first column holds names.
#[derive(Debug, Serialize)]
pub(super) struct Table {
    caption: String,
    head: Vec<String>,
    rows: Vec<Vec<String>>,
    /// Whether its cells are words, not numbers.
    words: bool,
}

fn table<const N: usize>(caption: &str, head: [&str; N], rows: Vec<[String; N]>) -> Table {
    Table {
        caption: caption.to_owned(),
        head: head.map(str::to_owned).to_vec(),
        rows: rows.into_iter().map(|row| row.to_vec()).collect(),
        words: false,
    }
}

fn of_words<const N: usize>(caption: &str, head: [&str; N], rows: Vec<[String; N]>) -> Table {
    Table {
        words: true,
        ..table(caption, head, rows)
    }
}

/// A row for each run.
pub(super) fn overview(results: &Results) -> Table {
    let head = [
        "load",
        "repeat",
        "requests",
        "attained",
        "late",
        "rejected",
        "failed",
        "not sent",
        "goodput/s",
        "TTFT p50 ms",
        "p99",
        "TPOT p50 ms",
        "p99",
        "ITL p99 ms",
        "tokens/s",
        "client CPU",
        "figures",
    ];
    let row = |run: &Run| {
        let (figures, counts) = (&run.figures, &run.phases.measured.all.counts);
        let at = |metric, q| {
            let found = run.phases.measured.all.metrics.get(&metric);
            ms(found
                .and_then(|found| found.quantile(q))
                .map(|us| us as f64))
        };
        let trust = if run.invalid.is_empty() {
            "valid"
        } else {
            "INVALID"
        };
        [
            run.place().to_string(),
            run.repeat.to_string(),
            figures.requests.to_string(),
            counts.attained.to_string(),
            counts.late.to_string(),
            counts.rejected.to_string(),
            counts.failed.to_string(),
            counts.unsent.to_string(),
            number(figures.goodput_per_s),
            at(Metric::Ttft, 0.5),
            at(Metric::Ttft, 0.99),
            at(Metric::Tpot, 0.5),
            at(Metric::Tpot, 0.99),
            at(Metric::Itl, 0.99),
            number(figures.output_tokens_per_s),
            percent(run.client.cpu_share),
            trust.to_owned(),
        ]
    };
    table("All runs", head, results.runs.iter().map(row).collect())
}

/// The steps of a search.
pub(super) fn probes(found: &Found) -> Table {
    let head = [
        "load",
        "runs",
        "attained",
        "of",
        "share",
        "at least (95 %)",
        "at most",
        "SLO",
    ];
    let row = |probe: &crate::search::Probe| {
        let share = probe.attained as f64 / probe.total.max(1) as f64;
        let met = match (probe.met, probe.undecided) {
            (true, false) => "met",
            (true, true) => "met, close",
            (false, false) => "missed",
            (false, true) => "missed, close",
        };
        [
            number(probe.load),
            probe.tries.to_string(),
            probe.attained.to_string(),
            probe.total.to_string(),
            percent(share),
            percent(probe.interval.0),
            percent(probe.interval.1),
            met.to_owned(),
        ]
    };
    table(
        "Steps of the search",
        head,
        found.probes.iter().map(row).collect(),
    )
}

pub(super) fn assertions(results: &Results) -> Table {
    let row = |verdict: &crate::assertion::Verdict| {
        let found = verdict.found.map_or("no such figure".to_owned(), |found| {
            text::shown(found, verdict.unit)
        });
        let holds = if verdict.holds { "holds" } else { "MISSED" };
        [
            verdict.assertion.clone(),
            verdict.load.clone(),
            found,
            holds.to_owned(),
        ]
    };
    let rows = results.assertions.iter().map(row).collect();
    of_words("Assertions", ["assertion", "load", "found", ""], rows)
}

/// What was asked for.
pub(super) fn settings(results: &Results) -> Table {
    let rows = results
        .settings
        .iter()
        .map(|(name, value)| [format!("--{name}"), value.clone()]);
    of_words("Settings", ["flag", "value"], rows.collect())
}

/// All of one run.
pub(super) fn of_run(run: &Run, results: &Results) -> Vec<Table> {
    let measured = &run.phases.measured;
    let mut tables = Vec::new();
    if run.figures.requests > 0 {
        tables.push(distributions("Measured", &measured.all));
        for (class, group) in &measured.classes {
            let limited = results.slos.of(class).is_some();
            let counts = text::counts(group, limited);
            tables.push(distributions(&format!("Class {class}: {counts}"), group));
        }
    }
    if !measured.failures.is_empty() {
        tables.push(failures(measured));
    }
    tables.push(client(run));
    tables.extend(run.server.iter().map(of_server));
    tables
}

/// What a server said of itself meanwhile.
fn of_server(metrics: &ServerMetrics) -> Table {
    let (rows, more) = server::shown(metrics);
    let mut caption = format!(
        "{}: {} readings in {} s",
        metrics.url,
        metrics.scrapes,
        number(metrics.span_s)
    );
    if more > 0 {
        caption += &format!("; {more} more are in the results");
    }
    if let Some(problem) = &metrics.problem {
        caption += &format!("; {} failed: {problem}", metrics.failed);
    }
    Table {
        caption,
        head: server::HEAD.map(str::to_owned).to_vec(),
        rows,
        words: false,
    }
}

fn distributions(caption: &str, group: &Group) -> Table {
    let mut rows = text::distributions(group);
    let head = rows.remove(0);
    Table {
        caption: caption.to_owned(),
        head,
        rows,
        words: false,
    }
}

fn failures(measured: &Summary) -> Table {
    let row = |(kind, failures): (&crate::record::FailureKind, &crate::summary::Failures)| {
        let kind = serde_json::to_value(kind).unwrap_or_default();
        let kind = kind.as_str().unwrap_or("").replace('_', " ");
        [kind, failures.count.to_string(), failures.example.clone()]
    };
    of_words(
        "Failures",
        ["kind", "requests", "the first one"],
        measured.failures.iter().map(row).collect(),
    )
}

fn client(run: &Run) -> Table {
    let client = &run.client;
    let p99 = |delays: &Distribution| ms(delays.quantile(0.99).map(|us| us as f64));
    let per_event = client.cpu_us_per_event.map_or("-".to_owned(), number);
    let rows = vec![
        [
            "CPU".to_owned(),
            format!("{} of {} cores", percent(client.cpu_share), client.cores),
        ],
        [
            "CPU for a request".to_owned(),
            format!("{} ms", ms(client.cpu_us_per_request)),
        ],
        [
            "CPU for an event with tokens".to_owned(),
            format!("{per_event} us"),
        ],
        [
            "requests begun late, p99".to_owned(),
            format!("{} ms", p99(&client.lateness)),
        ],
        [
            "events noticed late, p99".to_owned(),
            format!("{} ms", p99(&client.loop_delay)),
        ],
        [
            "most requests under way".to_owned(),
            client.peak_in_flight.to_string(),
        ],
        ["time".to_owned(), format!("{} s", number(client.wall_s))],
    ];
    of_words("The client itself", ["", ""], rows)
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    use super::*;
    use crate::results::{ClientFigures, Figures, LoadPoint};
    use crate::summary::Counts;
    use crate::testing::made::{self, Made};

    /// A run with other figures everywhere.
    fn run() -> Run {
        let rng = &mut SmallRng::seed_from_u64(1);
        let none = Made {
            requests: 0,
            slower: 1.0,
            failing: 0.0,
        };
        let mut run = made::run(rng, LoadPoint::Concurrency(4), 2, none);
        run.figures = Figures {
            requests: 100,
            goodput_per_s: 5.0,
            output_tokens_per_s: 9.0,
            ..Figures::default()
        };
        let measured = &mut run.phases.measured.all;
        measured.counts = Counts {
            attained: 50,
            late: 20,
            rejected: 15,
            failed: 10,
            unsent: 5,
        };
        for (i, metric) in (0..).zip([Metric::Ttft, Metric::Tpot, Metric::Itl]) {
            let found = measured.metrics.entry(metric).or_default();
            (1..=100).for_each(|n| found.record((n + 200 * i) * 1000));
        }
        run.client = ClientFigures {
            cores: 4,
            cpu_share: 0.25,
            wall_s: 7.0,
            cpu_us_per_request: Some(2_000.0),
            cpu_us_per_event: Some(30.0),
            peak_in_flight: 12,
            ..ClientFigures::default()
        };
        run.client.lateness.record(1_000);
        run.client.loop_delay.record(3_000);
        run
    }

    #[test]
    fn each_figure_of_a_run_stands_under_its_name() {
        let table = overview(&made::results(vec![run()]));
        let cells: Vec<(&str, &str)> = table
            .head
            .iter()
            .zip(&table.rows[0])
            .map(|(head, cell)| (head.as_str(), cell.as_str()))
            .collect();
        let want = [
            ("load", "4 at a time"),
            ("repeat", "2"),
            ("requests", "100"),
            ("attained", "50"),
            ("late", "20"),
            ("rejected", "15"),
            ("failed", "10"),
            ("not sent", "5"),
            ("goodput/s", "5.00"),
            ("TTFT p50 ms", "50.0"),
            ("p99", "99.0"),
            ("TPOT p50 ms", "250"),
            ("p99", "299"),
            ("ITL p99 ms", "499"),
            ("tokens/s", "9.00"),
            ("client CPU", "25.0 %"),
            ("figures", "valid"),
        ];
        assert_eq!(cells, want);
    }

    #[test]
    fn the_clients_own_figures_stand_beside_their_names() {
        let want = [
            ["CPU", "25.0 % of 4 cores"],
            ["CPU for a request", "2.00 ms"],
            ["CPU for an event with tokens", "30.0 us"],
            ["requests begun late, p99", "1.00 ms"],
            ["events noticed late, p99", "3.00 ms"],
            ["most requests under way", "12"],
            ["time", "7.00 s"],
        ];
        assert_eq!(client(&run()).rows, want);
    }

    #[test]
    fn a_step_of_a_search_tells_what_was_found_how_surely_and_what_it_makes_of_it() {
        let mut found = made::search(10.0, 20.0);
        let first = found.probes[0].clone();
        for (met, undecided) in [(true, true), (false, false), (false, true)] {
            found.probes.push(crate::search::Probe {
                met,
                undecided,
                tries: 3,
                ..first.clone()
            });
        }
        let rows = probes(&found).rows;
        let want = [
            "10.0", "1", "190", "200", "95.0 %", "91.0 %", "97.0 %", "met",
        ];
        assert_eq!(rows[0], want);
        let verdicts: Vec<&str> = rows.iter().map(|row| row[7].as_str()).collect();
        assert_eq!(verdicts, ["met", "met, close", "missed", "missed, close"]);
        assert_eq!(rows[1][1], "3");
    }
}

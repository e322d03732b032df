//! What parts of one test come to together, figure by figure.

use rand::SeedableRng;
use rand::rngs::SmallRng;

use super::*;
use crate::assertion::{Unit, Verdict};
use crate::distribution::Distribution;
use crate::results::{ClientFigures, LoadPoint, Part, Second};
use crate::server_metrics::ServerMetrics;
use crate::testing::made::{Made, record, results, run, search};

const MADE: Made = Made {
    requests: 40,
    slower: 1.0,
    failing: 0.1,
};

fn of_one(value: u64) -> Distribution {
    let mut one = Distribution::default();
    one.record(value);
    one
}

/// Part `number` of three of a test at one load; what it has of each kind follows from its number.
fn part(number: u32) -> Results {
    let rng = &mut SmallRng::seed_from_u64(number.into());
    let n = u64::from(number);
    let second = Second {
        scheduled: 10 * n,
        answered: 9 * n,
        failed: 8 * n,
        events: 7 * n,
        tokens: 6 * n,
    };
    let made = Run {
        parts: vec![Part { number, of: 3 }],
        started_unix_ms: 1_000 - n,
        window_s: Some(4.0 + f64::from(number)),
        cut: n,
        invalid: vec![format!("late {number}")],
        notes: vec![format!("note {number}")],
        client: ClientFigures {
            cores: 2,
            wall_s: 5.0 + f64::from(number),
            cpu_s: f64::from(number),
            cpu_share: f64::from(number) / 10.0,
            lateness: of_one(n),
            loop_delay: of_one(100 * n),
            peak_in_flight: 10 * n,
            ..ClientFigures::default()
        },
        timeline: vec![second; number as usize],
        slowest: vec![record(n, 1_000 * n)],
        server: [
            "http://both/metrics".to_owned(),
            format!("http://{number}/metrics"),
        ]
        .map(|url| ServerMetrics {
            url,
            ..ServerMetrics::default()
        })
        .to_vec(),
        ..run(rng, LoadPoint::Rate(10.0), 1, MADE)
    };
    let mut part = results(vec![made]);
    for own in ["part", "json", "start-at"] {
        part.settings.insert(own.to_owned(), number.to_string());
    }
    part
}

fn whole() -> Run {
    merge(&[part(1), part(2), part(3)]).unwrap().runs.remove(0)
}

#[test]
fn requests_and_figures_of_the_whole_are_those_of_all_parts() {
    let run = whole();
    let numbers: Vec<u32> = run.parts.iter().map(|part| part.number).collect();
    assert_eq!(numbers, [1, 2, 3]);
    assert_eq!(run.phases.measured.all.counts.all(), 120);
    assert_eq!(run.window_s, Some(7.0), "the longest schedule");
    assert_eq!(run.figures, Figures::of(&run.phases.measured, Some(7.0)));
    assert_eq!(run.figures.requests, 120);
    assert_eq!(run.cut, 6);
    assert_eq!(run.started_unix_ms, 997, "when the first of them began");
    assert_eq!(
        run.invalid,
        ["late 1", "result 2: late 2", "result 3: late 3"]
    );
    assert_eq!(
        run.notes,
        ["note 1", "result 2: note 2", "result 3: note 3"]
    );
}

#[test]
fn the_whole_has_cost_what_all_clients_spent_and_is_as_busy_as_the_busiest() {
    let run = whole();
    let client = &run.client;
    assert_eq!((client.cores, client.wall_s, client.cpu_s), (6, 8.0, 6.0));
    assert_eq!((client.cpu_share, client.peak_in_flight), (0.3, 60));
    assert_eq!(
        (client.lateness.count(), client.lateness.max()),
        (3, Some(3))
    );
    assert_eq!(
        (client.loop_delay.count(), client.loop_delay.max()),
        (3, Some(300))
    );
    let per = |n: u64| Some(6e6 / n as f64);
    assert_eq!(client.cpu_us_per_request, per(run.phases.requests()));
    assert_eq!(client.cpu_us_per_event, per(run.phases.events()));
}

#[test]
fn seconds_add_up_and_the_slowest_of_all_and_each_server_once_are_kept() {
    let run = whole();
    let sums: Vec<_> = run
        .timeline
        .iter()
        .map(|s| [s.scheduled, s.answered, s.failed, s.events, s.tokens])
        .collect();
    let of = |n: u64| [10 * n, 9 * n, 8 * n, 7 * n, 6 * n];
    assert_eq!(sums, [of(1 + 2 + 3), of(2 + 3), of(3)]);
    let slowest: Vec<u64> = run.slowest.iter().map(|record| record.index).collect();
    assert_eq!(slowest, [3, 2, 1]);
    let servers: Vec<&str> = run.server.iter().map(|metrics| &*metrics.url).collect();
    assert_eq!(
        servers,
        [
            "http://both/metrics",
            "http://1/metrics",
            "http://2/metrics",
            "http://3/metrics"
        ]
    );
}

#[test]
fn a_part_that_was_cut_cuts_the_whole() {
    let (mut second, third) = (part(2), part(3));
    second.runs[0].ended = RunEnd::Interrupted;
    let whole = merge(&[part(1), second.clone(), third.clone()]).unwrap();
    assert_eq!(whole.runs[0].ended, RunEnd::Interrupted);
    let whole = merge(&[second, part(1), third]).unwrap();
    assert_eq!(whole.runs[0].ended, RunEnd::Interrupted);
}

#[test]
fn what_parts_have_for_themselves_is_nothing_of_the_whole() {
    let mut first = part(1);
    first.assertions.push(Verdict {
        assertion: "goodput>1".to_owned(),
        load: "10 requests/s".to_owned(),
        found: Some(2.0),
        unit: Unit::PerSecond,
        holds: true,
    });
    let whole = merge(&[first, part(2)]).unwrap();
    let settings: Vec<&str> = whole.settings.keys().map(String::as_str).collect();
    assert_eq!(settings, ["rate"]);
    assert!(whole.assertions.is_empty());
}

#[test]
fn results_that_are_no_parts_of_one_test_are_refused_by_number_and_by_what_differs() {
    let refused = |change: fn(&mut Results)| {
        let mut third = part(3);
        change(&mut third);
        merge(&[part(1), part(2), third]).unwrap_err().to_string()
    };
    let set = |part: &mut Results| drop(part.settings.insert("rate".to_owned(), "20".to_owned()));
    let not_set = |part: &mut Results| drop(part.settings.remove("rate"));
    let more = |part: &mut Results| drop(part.settings.insert("output".to_owned(), "8".to_owned()));
    let other = "result 3 is of another test: its";
    assert_eq!(
        refused(set),
        format!("{other} --rate differ(s): 20, in the first one 10")
    );
    assert_eq!(
        refused(not_set),
        format!("{other} --rate differ(s): not set, in the first one 10")
    );
    assert_eq!(
        refused(more),
        format!("{other} --output differ(s): 8, in the first one not set")
    );
    assert_eq!(
        refused(|part| part.model = "other".to_owned()),
        format!("{other} model differ(s): other, in the first one m")
    );
    assert_eq!(
        refused(|part| part.runs.push(part.runs[0].clone())),
        format!("{other} number of runs differ(s): 2, in the first one 1")
    );
    let error = refused(|third| third.search = Some(search(1.0, 2.0)));
    assert!(error.starts_with("result 3 is a search: "), "{error}");
    let error = refused(|third| third.runs[0].parts = part(1).runs[0].parts.clone());
    assert!(
        error.starts_with("result 3 holds part 1/3, which another one holds too"),
        "{error}"
    );
    let error = merge(&[part(1)]).unwrap_err().to_string();
    assert_eq!(error, "want two results at least, found 1");
}

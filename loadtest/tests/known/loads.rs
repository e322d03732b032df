//! Loads: how many at a time, sessions, parts, limits.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use tandem_loadtest::known_server::Script;
use tandem_loadtest::plan::{Load, Margin, RunPlan};
use tandem_loadtest::record::{Outcome, Phase};
use tandem_loadtest::results::{Figures, Part};

use crate::support::{Done, SCRIPT, Server, closed, ms, open, plan, run, synthetic};

#[test]
fn a_fixed_concurrency_is_reached_and_not_passed() {
    let server = Server::answering(|_| SCRIPT);
    let harness = server.harness().unwrap();
    let plan = RunPlan {
        requests: Some(40),
        ..plan(&harness, closed(5), synthetic("1", "0s"))
    };
    let done = run(&harness, &plan);
    assert_eq!(done.run.client.peak_in_flight, 5);
    assert_eq!(done.run.phases.measured.all.counts.attained, 40);
}

#[test]
fn users_begin_one_after_the_other_where_a_ramp_is_asked_for() {
    let server = Server::answering(|_| SCRIPT);
    let harness = server.harness().unwrap();
    let load = Load::Closed {
        concurrency: 4,
        ramp: ms(400),
    };
    let plan = RunPlan {
        duration: Some(ms(450)),
        ..plan(&harness, load, synthetic("1", "0s"))
    };
    let done = run(&harness, &plan);
    // A user's first request is scheduled at its own moment, the next ones when something ended.
    let scheduled: HashSet<u64> = done.records.iter().map(|r| r.scheduled_us).collect();
    for begin in [0, 100_000, 200_000, 300_000] {
        assert!(scheduled.contains(&begin), "{begin}: {scheduled:?}");
    }
    let client = &done.run.client;
    let share = client.cpu_s / (client.wall_s * f64::from(client.cores));
    assert!((client.cpu_share - share).abs() < 1e-9, "{client:?}");
}

#[test]
fn a_session_goes_on_with_the_answer_and_thinks_first() {
    let server = Server::answering(|asked| Script {
        tokens: asked.max_tokens,
        ..SCRIPT
    });
    let harness = server.harness().unwrap();
    let plan = RunPlan {
        requests: Some(2),
        ..plan(&harness, open("50", "constant"), synthetic("3", "100ms"))
    };
    let done = run(&harness, &plan);
    assert_eq!(done.records.len(), 6);
    for session in done.records.chunks(3) {
        // Eight words more each time, and the four of the answer before.
        let prompts: Vec<u64> = session
            .iter()
            .map(|turn| turn.input_tokens.unwrap())
            .collect();
        assert_eq!(prompts, [8, 20, 32]);
        for pair in session.windows(2) {
            let ended = pair[0].scheduled_us + pair[0].e2e_us;
            assert!(pair[1].scheduled_us >= ended + 100_000, "{pair:?}");
            assert!(pair[1].scheduled_us < ended + 600_000, "{pair:?}");
        }
    }
}

#[test]
fn the_requests_of_a_session_carry_one_name_where_a_header_for_it_is_named() {
    let server = Server::answering(|_| SCRIPT);
    let harness = server.harness().unwrap();
    let mut plan = RunPlan {
        requests: Some(2),
        session_header: Some("x-session-id".parse().unwrap()),
        ..plan(&harness, open("50", "constant"), synthetic("3", "0s"))
    };
    let named = |done: &Done| {
        let mut count = BTreeMap::new();
        for note in server.notes_of(&done.records) {
            *count.entry(note.session).or_insert(0) += 1;
        }
        count
    };
    let name = |name: &str| Some(name.to_owned());
    // By the seed and the session's number.
    let first = [(name("5-0"), 3), (name("5-1"), 3)];
    assert_eq!(named(&run(&harness, &plan)), first.clone().into());
    plan.session_header = None;
    let both = [(None, 6)].into_iter().chain(first);
    assert_eq!(named(&run(&harness, &plan)), both.collect());
}

#[test]
fn warm_up_and_cool_down_are_in_no_figure() {
    let server = Server::answering(|_| SCRIPT);
    let harness = server.harness().unwrap();
    let plan = RunPlan {
        requests: Some(20),
        warm_up: Margin::Requests(5),
        cool_down: Margin::Share(0.2),
        ..plan(&harness, open("100", "constant"), synthetic("1", "0s"))
    };
    let done = run(&harness, &plan);
    let phases = &done.run.phases;
    assert_eq!(phases.warm_up.all.counts.all(), 5);
    assert_eq!(phases.measured.all.counts.all(), 11);
    assert_eq!(phases.cool_down.all.counts.all(), 4);
    assert_eq!(done.run.figures.requests, 11);
    assert_eq!(
        done.records
            .iter()
            .filter(|r| r.phase == Phase::Measured)
            .count(),
        11
    );
    assert!(
        (done.run.figures.offered_per_s - 100.0).abs() < 0.1,
        "{}",
        done.run.figures.offered_per_s
    );
}

#[test]
fn what_is_more_than_may_be_under_way_is_not_sent_and_makes_the_run_invalid() {
    let server = Server::answering(|_| Script {
        first: ms(400),
        ..SCRIPT
    });
    let harness = server.harness().unwrap();
    let plan = RunPlan {
        requests: Some(20),
        max_in_flight: 4,
        ..plan(&harness, open("100", "constant"), synthetic("1", "0s"))
    };
    let done = run(&harness, &plan);
    let counts = done.run.phases.measured.all.counts;
    assert_eq!((counts.attained, counts.unsent), (4, 16));
    assert_eq!(done.records[10].outcome, Outcome::Unsent);
    assert!(
        done.run
            .invalid
            .iter()
            .any(|why| why.contains("--max-in-flight")),
        "{:?}",
        done.run.invalid
    );
}

#[test]
fn parts_of_a_test_make_the_whole_of_it() {
    let server = Server::answering(|_| SCRIPT);
    let harness = server.harness().unwrap();
    let part = |number, of| {
        let plan = RunPlan {
            requests: Some(30),
            part: Part { number, of },
            ..plan(&harness, open("200", "poisson"), synthetic("1", "0s"))
        };
        run(&harness, &plan)
    };
    let whole = part(1, 1);
    let parts = [part(1, 3), part(2, 3), part(3, 3)];
    let times = |records: &[tandem_loadtest::record::Record]| -> HashSet<(u64, u64)> {
        records.iter().map(|r| (r.index, r.scheduled_us)).collect()
    };
    let mut together = HashSet::new();
    for part in &parts {
        assert_eq!(part.records.len(), 10);
        together.extend(times(&part.records));
    }
    assert_eq!(together, times(&whole.records));
    let mut sum = parts[0].run.phases.clone();
    sum.add(&parts[1].run.phases);
    sum.add(&parts[2].run.phases);
    assert_eq!(Figures::of(&sum.measured, None).requests, 30);
}

#[test]
fn a_slo_that_nothing_meets_makes_all_answers_late() {
    let server = Server::answering(|_| SCRIPT);
    let harness = server.harness().unwrap();
    let mut plan = RunPlan {
        requests: Some(10),
        timeout: Duration::from_secs(5),
        ..plan(&harness, open("100", "constant"), synthetic("1", "0s"))
    };
    plan.slos.add("ttft=1us").unwrap();
    let done = run(&harness, &plan);
    assert_eq!(done.run.phases.measured.all.counts.late, 10);
    assert_eq!(
        (done.run.figures.attainment, done.run.figures.goodput_per_s),
        (0.0, 0.0)
    );
}

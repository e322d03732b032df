use super::*;
use crate::results::{ClientFigures, Figures, LoadPoint, Run, RunEnd};
use crate::summary::{Group, Phases};

fn run() -> Run {
    let mut phases = Phases::default();
    let mut group = Group::default();
    let times = group.metrics.entry(Metric::Ttft).or_default();
    (1..=100).for_each(|ms| times.record(ms * 1000));
    phases
        .measured
        .classes
        .insert("chat".to_owned(), group.clone());
    phases.measured.all = group;
    Run {
        load: LoadPoint::Rate(2.0),
        setting: None,
        repeat: 1,
        seed: 1,
        parts: Vec::new(),
        started_unix_ms: 0,
        window_s: None,
        ended: RunEnd::Complete,
        cut: 0,
        invalid: Vec::new(),
        notes: Vec::new(),
        figures: Figures {
            error_rate: 0.02,
            goodput_per_s: 3.0,
            ..Figures::default()
        },
        client: ClientFigures::default(),
        phases,
        timeline: Vec::new(),
        slowest: Vec::new(),
        server: Vec::new(),
    }
}

#[test]
fn assertions_hold_or_not_by_the_runs_figures() {
    for (text, holds) in [
        ("p99_ttft<100ms", true),
        ("p99_ttft < 99ms", false),
        ("p50_ttft>=50ms", true),
        ("mean_ttft>60ms", false),
        ("max_ttft<=101ms", true),
        ("chat:p50_ttft<51ms", true),
        ("error_rate<1%", false),
        ("error_rate<=0.02", true),
        ("goodput>=3", true),
        ("goodput>3", false),
    ] {
        let verdict = text.parse::<Assertion>().unwrap().check(&run());
        assert_eq!(verdict.holds, holds, "{verdict:?}");
    }
}

#[test]
fn a_figure_that_the_run_does_not_have_holds_nothing() {
    for text in ["p99_tpot<1h", "p99_tpot>0ms", "batch:p99_ttft<1h"] {
        let verdict = text.parse::<Assertion>().unwrap().check(&run());
        assert_eq!((verdict.found, verdict.holds), (None, false), "{text}");
    }
}

#[test]
fn what_is_no_assertion_is_refused() {
    for wrong in [
        "",
        "p99_ttft",
        "p98_ttft<5ms",
        "p99_ttft<5",
        "p99_foo<5ms",
        "error_rate<2",
        "goodput<x",
        "ttft<5ms",
        "p99_output_tokens<5ms",
        "<5ms",
    ] {
        assert!(wrong.parse::<Assertion>().is_err(), "{wrong}");
    }
}

#[test]
fn each_name_of_a_rate_is_that_of_its_own_figure() {
    let mut run = run();
    run.figures = Figures {
        requests: 100,
        span_s: 2.0,
        offered_per_s: 3.0,
        answered_per_s: 4.0,
        goodput_per_s: 5.0,
        attainment: 0.6,
        error_rate: 0.1,
        rejected_rate: 0.2,
        output_tokens_per_s: 9.0,
        input_tokens_per_s: 10.0,
        cached_share: 0.3,
    };
    for (name, found) in [
        ("error_rate", 0.1),
        ("rejected_rate", 0.2),
        ("cached_share", 0.3),
        ("attainment", 0.6),
        ("answered_per_s", 4.0),
        ("goodput", 5.0),
        ("output_tokens_per_s", 9.0),
        ("input_tokens_per_s", 10.0),
    ] {
        let assertion: Assertion = format!("{name}>=0").parse().unwrap();
        assert_eq!(assertion.check(&run).found, Some(found), "{name}");
    }
    assert_eq!(RATES.len(), 8);
}

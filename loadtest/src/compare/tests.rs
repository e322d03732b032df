//! A change is found where there is one, and hardly ever where there is none.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::report;
use crate::results::LoadPoint;
use crate::testing::made::{Made, results, run, search};

const RULES: Rules = Rules {
    confidence: 0.95,
    least: 0.01,
};
const SAME: Made = Made {
    requests: 1000,
    slower: 1.0,
    failing: 0.02,
};
const LOAD: LoadPoint = LoadPoint::Rate(10.0);

/// A test of so many repeats; from run to run the server itself differs by about this share.
fn made(rng: &mut SmallRng, repeats: u32, made: Made, between: f64) -> Results {
    let runs = (1..=repeats).map(|repeat| {
        let shift = 1.0
            + between
                * (rng.random::<f64>() + rng.random::<f64>() + rng.random::<f64>() - 1.5)
                * 2.0;
        run(
            rng,
            LOAD,
            repeat,
            Made {
                slower: made.slower * shift,
                ..made
            },
        )
    });
    results(runs.collect())
}

/// In how many of so many comparisons anything is called different.
fn called_different(times: u64, repeats: u32, other: Made, between: f64) -> usize {
    let different = |seed: &u64| {
        let rng = &mut SmallRng::seed_from_u64(*seed);
        let (a, b) = (
            made(rng, repeats, SAME, between),
            made(rng, repeats, other, between),
        );
        let found = compare(&a, &b, RULES).unwrap();
        found.rows().any(|row| row.verdict != Verdict::WithinNoise)
    };
    (0..times).filter(different).count()
}

#[test]
fn the_same_server_twice_is_called_different_in_five_of_a_hundred_cases_at_most() {
    let different = called_different(300, 1, SAME, 0.0);
    assert!(different <= 15, "{different} of 300");
    // With repeats also where the runs themselves differ by some percent.
    let different = called_different(
        300,
        3,
        Made {
            requests: 300,
            ..SAME
        },
        0.03,
    );
    assert!(different <= 15, "{different} of 300");
}

#[test]
fn runs_that_differ_by_themselves_are_a_change_to_those_who_have_one_of_each() {
    // That is what the text warns of.
    let different = called_different(100, 1, SAME, 0.2);
    assert!(different >= 50, "{different} of 100");
    let rng = &mut SmallRng::seed_from_u64(1);
    let one = made(rng, 1, SAME, 0.0);
    let text = report::comparison(&compare(&one, &one, RULES).unwrap());
    assert!(
        text.contains("what differs from run to run is in no interval"),
        "{text}"
    );
    let three = made(rng, 3, SAME, 0.0);
    let text = report::comparison(&compare(&three, &three, RULES).unwrap());
    assert!(
        text.contains("rate") || text.contains("(3 and 3 runs)"),
        "{text}"
    );
}

fn row<'a>(found: &'a Comparison, figure: &str) -> &'a Row {
    found.rows().find(|row| row.figure == figure).unwrap()
}

#[test]
fn a_server_that_is_slower_is_found_and_the_other_way_round_it_is_better() {
    let slower = Made {
        slower: 1.15,
        ..SAME
    };
    for repeats in [1, 3] {
        let mut found_of = [0; 3];
        for seed in 0..50 {
            let rng = &mut SmallRng::seed_from_u64(seed);
            let (a, b) = (
                made(rng, repeats, SAME, 0.0),
                made(rng, repeats, slower, 0.0),
            );
            let (there, back) = (
                compare(&a, &b, RULES).unwrap(),
                compare(&b, &a, RULES).unwrap(),
            );
            for (figure, count) in ["ttft p50", "tpot p50", "tpot p90"]
                .iter()
                .zip(&mut found_of)
            {
                let (there, back) = (row(&there, figure), row(&back, figure));
                if there.verdict == Verdict::Worse {
                    *count += 1;
                    assert_eq!(back.verdict, Verdict::Better, "{figure} {there:?} {back:?}");
                }
                assert_ne!(there.verdict, Verdict::Better, "{figure} {there:?}");
            }
            assert!(there.is_worse() || repeats == 3);
            assert!(!back.is_worse());
        }
        // Three runs each tell less of what differs between runs.
        let least = if repeats == 1 {
            [45, 50, 50]
        } else {
            [15, 45, 35]
        };
        for (found, least) in found_of.iter().zip(least) {
            assert!(*found >= least, "{repeats} repeats: {found_of:?}");
        }
    }
}

#[test]
fn failures_and_goodput_are_compared_as_shares() {
    let rng = &mut SmallRng::seed_from_u64(7);
    let a = made(rng, 1, SAME, 0.0);
    let b = made(
        rng,
        1,
        Made {
            failing: 0.2,
            ..SAME
        },
        0.0,
    );
    let found = compare(&a, &b, RULES).unwrap();
    for figure in ["error_rate", "attainment", "goodput", "answered_per_s"] {
        assert_eq!(row(&found, figure).verdict, Verdict::Worse, "{figure}");
    }
    assert_eq!(row(&found, "ttft p50").verdict, Verdict::WithinNoise);
    let mut other = b;
    other.slos = crate::slo::Slos::default();
    let found = compare(&a, &other, RULES).unwrap();
    assert!(found.rows().all(|row| row.figure != "goodput"));
    assert!(
        found.notes.iter().any(|note| note.contains("SLOs differ")),
        "{:?}",
        found.notes
    );
}

#[test]
fn what_was_cached_is_compared_and_what_a_test_notes_is_told() {
    let rng = &mut SmallRng::seed_from_u64(7);
    let mut a = made(rng, 1, SAME, 0.0);
    let mut b = a.clone();
    for (results, cached_tokens) in [(&mut a, 0), (&mut b, 90_000)] {
        let run = &mut results.runs[0];
        let measured = &mut run.phases.measured;
        (measured.input_tokens, measured.cached_tokens) = (100_000, cached_tokens);
        run.figures = crate::results::Figures::of(measured, run.window_s);
    }
    b.runs[0].notes.push("asked before".to_owned());
    let found = compare(&a, &b, RULES).unwrap();
    let cached = row(&found, "cached_share");
    assert_eq!((cached.a, cached.b, cached.unit), (0.0, 0.9, Unit::Share));
    assert_eq!(cached.verdict, Verdict::Better);
    let note = "the second results: asked before".to_owned();
    assert!(found.notes.contains(&note), "{:?}", found.notes);
    let found = compare(&a, &a, RULES).unwrap();
    assert!(found.rows().all(|row| row.figure != "cached_share"));
}

#[test]
fn too_few_answers_decide_nothing_and_a_small_change_is_none() {
    let rng = &mut SmallRng::seed_from_u64(3);
    let few = Made {
        requests: 20,
        ..SAME
    };
    let (a, b) = (
        made(rng, 1, few, 0.0),
        made(rng, 1, Made { slower: 3.0, ..few }, 0.0),
    );
    let found = compare(&a, &b, RULES).unwrap();
    let p99 = row(&found, "ttft p99");
    assert_eq!((p99.low, p99.verdict), (None, Verdict::WithinNoise));
    // The same numbers, moved by what a histogram's step may be.
    let rules = Rules {
        least: 5.0,
        ..RULES
    };
    let found = compare(&a, &b, rules).unwrap();
    let times = found.rows().filter(|row| row.unit == Unit::Us);
    assert!(
        times
            .into_iter()
            .all(|row| row.verdict == Verdict::WithinNoise)
    );
}

#[test]
fn what_differs_in_the_tests_is_named_and_loads_of_one_side_are_left_out() {
    let rng = &mut SmallRng::seed_from_u64(5);
    let mut a = made(rng, 1, SAME, 0.0);
    let mut b = a.clone();
    a.runs.push(run(rng, LoadPoint::Concurrency(4), 1, SAME));
    b.runs[0].load = LoadPoint::Rate(10.0 + 1e-12);
    b.runs[0].invalid.push("late".to_owned());
    b.settings.insert("output".to_owned(), "64".to_owned());
    b.settings
        .insert("json".to_owned(), "other.json".to_owned());
    "http://other".clone_into(&mut b.url);
    "other".clone_into(&mut b.model);
    b.runs[0].ended = RunEnd::Interrupted;
    let found = compare(&a, &b, RULES).unwrap();
    assert_eq!((found.loads.len(), found.loads[0].place.load), (1, LOAD));
    let named: Vec<&str> = found
        .differences
        .iter()
        .map(|found| found.setting.as_str())
        .collect();
    assert_eq!(named, ["url", "model", "--output"]);
    let text = report::comparison(&found);
    for part in [
        "differs     --output: not set -> 64",
        "note        INVALID: 1 of 1 runs of the second results",
        "note        1 of 1 runs of the second results did not come to their end",
        "only in the first results: 4 at a time",
        "0 worse, 0 better",
        "TTFT p99.9 ms",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("runs of the first results"), "{text}");
}

#[test]
fn runs_are_compared_with_each_other_where_both_sides_have_several() {
    let rng = &mut SmallRng::seed_from_u64(5);
    let mut method = |a, b| {
        let (a, b) = (made(rng, a, SAME, 0.0), made(rng, b, SAME, 0.0));
        compare(&a, &b, RULES).unwrap().loads[0].method
    };
    assert_eq!(method(1, 1), Method::WithinRuns);
    assert_eq!(method(3, 1), Method::WithinRuns);
    assert_eq!(method(1, 2), Method::WithinRuns);
    assert_eq!(method(2, 2), Method::BetweenRuns);
}

#[test]
fn results_without_a_load_in_common_cannot_be_compared() {
    let rng = &mut SmallRng::seed_from_u64(5);
    let a = made(rng, 1, SAME, 0.0);
    let mut b = a.clone();
    b.runs[0].load = LoadPoint::Rate(20.0);
    let error = compare(&a, &b, RULES).unwrap_err().to_string();
    assert_eq!(
        error,
        "no load is in both: the first results have 10 requests/s, the second ones 20 requests/s"
    );
    b.runs.clear();
    assert_eq!(
        compare(&a, &b, RULES).unwrap_err(),
        CompareError::Empty("second")
    );
    let mut none = a.clone();
    none.runs[0] = run(
        rng,
        LOAD,
        1,
        Made {
            requests: 0,
            ..SAME
        },
    );
    assert_eq!(
        compare(&a, &none, RULES).unwrap_err(),
        CompareError::NothingMeasured
    );
}

#[test]
fn searches_differ_where_their_bounds_are_apart() {
    let rng = &mut SmallRng::seed_from_u64(5);
    let of = |rng: &mut SmallRng, best: f64, too_much: f64| Results {
        search: Some(search(best, too_much)),
        ..made(rng, 1, SAME, 0.0)
    };
    let first = of(rng, 10.0, 10.4);
    for (best, too_much, verdict) in [
        (10.3, 10.8, Verdict::WithinNoise),
        (10.5, 11.0, Verdict::WithinNoise),
        (12.0, 12.5, Verdict::Better),
        (8.0, 8.4, Verdict::Worse),
    ] {
        let found = compare(&first, &of(rng, best, too_much), RULES).unwrap();
        assert_eq!(found.is_worse(), verdict == Verdict::Worse, "{best}");
        assert_eq!(found.search.unwrap().verdict, verdict, "{best}");
    }
    // What both searches leave open is the wider one's tolerance: 12 is within a fifth of 10.4.
    let mut wide = of(rng, 12.0, 12.5);
    wide.search.as_mut().unwrap().plan.tolerance = 0.2;
    for (a, b) in [(&first, &wide), (&wide, &first)] {
        let found = compare(a, b, RULES).unwrap();
        assert_eq!(found.search.unwrap().verdict, Verdict::WithinNoise);
    }
    let mut other = of(rng, 12.0, 12.5);
    other.slos = crate::slo::Slos::default();
    let found = compare(&first, &other, RULES).unwrap();
    assert_eq!(found.search, None, "they searched for another thing");
}

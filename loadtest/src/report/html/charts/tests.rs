//! What stands in a plot is what was measured, in the unit that its axis names.

use rand::SeedableRng;
use rand::rngs::SmallRng;
use tandem_chart::Size;

use super::*;
use crate::results::Second;
use crate::testing::made::{self, Made, record, results, search};

const NONE: Made = Made {
    requests: 0,
    slower: 1.0,
    failing: 0.0,
};

/// A run in which each first token came after this time, and 190 of 200 requests in time.
fn run(rate: f64, ttft_us: u64) -> Run {
    let rng = &mut SmallRng::seed_from_u64(1);
    let mut run = made::run(rng, LoadPoint::Rate(rate), 1, NONE);
    let measured = &mut run.phases.measured.all;
    let ttft = measured.metrics.entry(Metric::Ttft).or_default();
    ttft.record_n(ttft_us, 200);
    (measured.counts.attained, measured.counts.late) = (190, 10);
    run.figures.requests = 200;
    run.figures.offered_per_s = rate;
    run.figures.goodput_per_s = rate / 2.0;
    run
}

/// The tips of a chart's markers and areas.
fn tips(svg: &str) -> Vec<&str> {
    let tips = svg.split("<title>").skip(1);
    tips.filter_map(|tip| tip.split("</title>").next())
        .collect()
}

/// The paths of its lines, in their order.
fn lines(svg: &str) -> Vec<&str> {
    let lines = svg.lines().filter(|line| line.contains("fill=\"none\""));
    lines.filter_map(|line| line.split('"').nth(1)).collect()
}

/// The second number of a path: how far down it begins.
fn begin(path: &str) -> f64 {
    let numbers = path.trim_start_matches('M').split([' ', 'L', 'H']);
    numbers.skip(1).map(|y| y.parse().unwrap()).next().unwrap()
}

#[test]
fn a_time_over_repeats_is_in_milliseconds_with_its_interval_on_both_sides() {
    let results = results(vec![
        run(5.0, 50_000),
        run(5.0, 60_000),
        run(5.0, 70_000),
        run(9.0, 1),
        run(9.0, 400),
    ]);
    let points = points(&results);
    let found = points[0].quantile(Metric::Ttft, 0.5).unwrap();
    // Student's t of two degrees of freedom, times 10 / sqrt(3).
    let half = 4.303 * 10.0 / 3.0_f64.sqrt();
    let near = |a: f64, b: f64| (a - b).abs() < 0.1;
    assert!(near(found.value, 60.0), "{}", found.value);
    assert!(near(found.low, 60.0 - half), "{}", found.low);
    assert!(near(found.high, 60.0 + half), "{}", found.high);
    let wide = points[1].quantile(Metric::Ttft, 0.5).unwrap();
    assert!(wide.low == 0.0, "no time is below 0: {}", wide.low);
}

#[test]
fn loads_are_in_their_order_and_of_many_the_first_and_the_last_are_drawn() {
    let rates = [8.0, 1.0, 5.0, 2.0, 7.0, 3.0, 6.0, 4.0];
    let results = results(rates.map(|rate| run(rate, 50_000)).to_vec());
    let points = points(&results);
    let xs = |points: &[&AtLoad<'_>]| points.iter().map(|at| at.x()).collect::<Vec<_>>();
    let all: Vec<&AtLoad<'_>> = points.iter().collect();
    assert_eq!(xs(&all), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
    let drawn = xs(&some(&points));
    assert_eq!((drawn.len(), drawn[0], drawn[5]), (MOST_LINES, 1.0, 8.0));
    assert!(drawn.windows(2).all(|pair| pair[0] < pair[1]), "{drawn:?}");
}

#[test]
fn values_that_are_far_apart_have_a_logarithmic_axis() {
    let is_log = |values: &[f64]| {
        let axis = axis("ms", values.iter().copied());
        format!("{axis:?}").contains("log: true")
    };
    assert!(is_log(&[1.0, 0.0, 13.0]));
    assert!(!is_log(&[1.0, 11.0]) && !is_log(&[5.0]) && !is_log(&[]));
}

#[test]
fn the_share_within_the_slo_is_in_percent_as_is_what_was_wanted() {
    let mut results = results(vec![run(5.0, 50_000), run(10.0, 50_000)]);
    results.search = Some(search(5.0, 10.0));
    let svg = attainment(&points(&results), &results)
        .sized(Size {
            width: 420.0,
            height: 300.0,
        })
        .svg();
    assert_eq!(tips(&svg), [": 5, 95", ": 10, 95"]);
    let wanted = svg.lines().find(|line| line.ends_with(">wanted</text>"));
    let y = wanted.and_then(|line| line.split("y=\"").nth(1)?.split('"').next());
    let y: f64 = y.unwrap().parse().unwrap();
    assert!(y < 150.0, "90 % is near the upper end: {y}");
}

#[test]
fn goodput_stands_below_what_was_offered() {
    let results = results(vec![run(5.0, 50_000), run(10.0, 50_000)]);
    let svg = goodput(&points(&results), &results).svg();
    assert_eq!(
        tips(&svg),
        ["within the SLO: 5, 2.5", "within the SLO: 10, 5"]
    );
    let [offered, attained] = lines(&svg)[..] else {
        panic!("{svg}");
    };
    assert!(begin(offered) < begin(attained), "{offered} {attained}");
}

#[test]
fn a_step_of_a_timeline_is_a_mean_of_its_seconds_the_last_one_too() {
    let mut long = run(5.0, 50_000);
    let second = Second {
        scheduled: 9,
        answered: 10,
        failed: 3,
        events: 50,
        tokens: 70,
    };
    long.timeline = vec![second; 2 * MOST_STEPS + 1];
    let found = steps(&long, |second| second.answered);
    assert_eq!(found, vec![10.0; found.len()]);
    assert!(found.len() <= MOST_STEPS);
    assert_eq!(
        tips(&requests_by_second(&long).svg())[2..],
        ["answered: 10 at most", "failed or rejected: 3 at most"]
    );
    assert_eq!(tips(&tokens_by_second(&long).svg()), [": 70 at most"]);
}

#[test]
fn a_requests_parts_follow_each_other_to_its_end() {
    let parts = |record: &Record| -> Vec<(usize, f64, f64)> {
        let segments = row(record).segments;
        segments.iter().map(|s| (s.kind, s.from, s.to)).collect()
    };
    let mut slow = record(7, 90_000);
    slow.lateness_us = 1_000;
    slow.connected_us = Some(3_000);
    slow.head_us = Some(40_000);
    slow.ttft_us = Some(50_000);
    let whole = [
        (0, 0.0, 1.0),
        (1, 1.0, 3.0),
        (2, 3.0, 40.0),
        (3, 40.0, 50.0),
        (4, 50.0, 90.0),
    ];
    assert_eq!(parts(&slow), whole);
    // Nothing came: its time is in the last part. What is said to be after the end is not.
    (slow.connected_us, slow.head_us, slow.ttft_us) = (None, Some(95_000), None);
    assert_eq!(parts(&slow), [(0, 0.0, 1.0), (2, 1.0, 90.0)]);
}

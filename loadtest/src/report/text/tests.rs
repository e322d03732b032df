//! Each figure of a summary stands where its name says.

use rand::SeedableRng;
use rand::rngs::SmallRng;

use super::*;
use crate::results::{ClientFigures, Figures, LoadPoint};
use crate::summary::Counts;
use crate::testing::made::{self, Made, results, search};

const LOAD: LoadPoint = LoadPoint::Rate(10.0);

/// A run with other figures everywhere.
fn run() -> Run {
    let rng = &mut SmallRng::seed_from_u64(1);
    let none = Made {
        requests: 0,
        slower: 1.0,
        failing: 0.0,
    };
    let mut run = made::run(rng, LOAD, 1, none);
    run.figures = Figures {
        requests: 200,
        span_s: 20.0,
        goodput_per_s: 4.5,
        answered_per_s: 6.5,
        output_tokens_per_s: 91.0,
        input_tokens_per_s: 55.0,
        cached_share: 0.25,
        ..Figures::default()
    };
    let phases = &mut run.phases;
    phases.warm_up.all.counts.attained = 7;
    phases.cool_down.all.counts.attained = 9;
    let measured = &mut phases.measured.all;
    measured.counts = Counts {
        attained: 90,
        late: 40,
        rejected: 30,
        failed: 16,
        unsent: 24,
    };
    for (i, metric) in (0..).zip([Metric::Ttft, Metric::Tpot, Metric::Itl]) {
        let found = measured.metrics.entry(metric).or_default();
        // Most of them small, so that the mean is not the median.
        (1..=100).for_each(|n| found.record((n * n / 100 + 200 * i) * 1000));
    }
    run.client = ClientFigures {
        cores: 4,
        cpu_share: 0.25,
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
fn one_run_is_told_in_full() {
    let told = text(&results(vec![run()]));
    for part in [
        "requests    200 in 20.0 s: 90 attained, 40 late, 30 rejected, 16 failed, 24 not sent  (SLO ttft=100ms)\n",
        "throughput  6.50 answers/s, 91.0 output tokens/s, 55.0 prompt tokens/s, 25.0 % of those cached\n",
        "client      25.0 % of 4 cores, 2.00 ms CPU a request, 30.0 us an event; begun 1.00 ms late and noticing \
         3.00 ms late at p99; 12 under way at most\n",
        "warm-up: 7 requests, in none of the figures\n",
        "cool-down: 9 requests, in none of the figures\n",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    let ttft = told.lines().find(|line| line.starts_with("TTFT ms"));
    let cells: Vec<&str> = ttft.unwrap().split_whitespace().skip(2).collect();
    // p50, p90, p95, p99, p99.9, the greatest and the mean.
    let want = ["25.0", "81.0", "90.0", "98.0", "100", "100", "33.4"];
    assert_eq!(cells, want, "{told}");
}

#[test]
fn several_runs_have_a_row_each_with_shares_of_their_requests() {
    let told = text(&results(vec![run(), run()]));
    let row = told.lines().nth(2).unwrap();
    let cells: Vec<&str> = row.split("  ").filter(|cell| !cell.is_empty()).collect();
    let cells: Vec<&str> = cells.iter().map(|cell| cell.trim()).collect();
    let want = [
        "10 requests/s",
        "200",
        "4.50",
        "45.0 %",
        "20.0 %",
        "15.0 %",
        "20.0 %",
        "25.0",
        "98.0",
        "225",
        "298",
        "498",
        "91.0",
    ];
    assert_eq!(cells, want, "{told}");
    let repeats = "10 requests/s, 2 repeats (95 %): TTFT p50 25.0 ± 0.00 ms TTFT p99 98.0 ± 0.00 ms TPOT p50 225 \
                   ± 0.00 ms TPOT p99 298 ± 0.00 ms\n";
    assert!(told.contains(repeats), "{told}");
}

#[test]
fn a_search_tells_how_many_of_its_steps_were_too_close_to_call() {
    let mut found = search(10.0, 12.0);
    let told = super::search(&found);
    assert_eq!(
        told,
        "search      highest load with 90.0 % of requests within the SLO: 10.0, 12.0 is too much (the bounds are within \
         the tolerance)\n"
    );
    let mut close = found.probes[0].clone();
    close.undecided = true;
    found.probes.extend([close.clone(), close]);
    let told = super::search(&found);
    assert!(told.contains("2 load(s) were too close to call"), "{told}");
}

//! What outcomes and workers' time come to together.

use super::*;

const MS: Duration = Duration::from_millis(1);

/// An answer that came at `at`, with these times.
fn answer(at: Duration, ttft: Duration, decoding: Duration, tokens: u32, local: bool) -> Outcome {
    Outcome::Answered(Answer {
        ttft,
        decoding,
        longest_gap: Duration::ZERO,
        prompt: 100,
        tokens,
        queued: Duration::ZERO,
        exposed: Duration::ZERO,
        cached: 25,
        local,
        ended: at + ttft + decoding,
    })
}

#[test]
fn a_summary_is_of_all_requests_and_counts_time_from_the_first_of_them() {
    let begin = Duration::from_secs(100);
    let outcomes = [
        answer(begin, 100 * MS, 900 * MS, 10, true),
        answer(begin + 500 * MS, 200 * MS, 800 * MS, 5, false),
        answer(begin + 1000 * MS, 1000 * MS, Duration::ZERO, 1, false),
        Outcome::Rejected("queue_full"),
    ];
    let slo = Slo {
        ttft: 200 * MS,
        tpot: Duration::MAX,
    };
    let found = Summary::of(&outcomes, &slo);
    assert_eq!((found.requests, found.attained), (4, 2));
    assert_eq!((found.late, found.rejected, found.local), (1, 1, 1));
    assert_eq!(found.attainment, 0.5, "who was turned away did not get it");
    assert_eq!(found.goodput, 1.0, "two in two seconds");
    assert_eq!(found.cached_share, 0.25);
    // The nearest rank: of three the second, and of all but the answer of one token the first of two.
    let ttft = (found.ttft.p50, found.ttft.p90, found.ttft.p99);
    assert_eq!(ttft, (200 * MS, 1000 * MS, 1000 * MS));
    assert_eq!((found.tpot.p50, found.tpot.p99), (100 * MS, 200 * MS));
    assert_eq!(found.tokens_per_second(), 10.0);
    let none = Summary::of(&[], &slo);
    assert_eq!((none.attainment, none.goodput), (1.0, 0.0));
    assert_eq!(none.tokens_per_second(), 0.0);
}

#[test]
fn a_pools_usage_is_that_of_all_its_workers_and_its_most_pages_any_ones() {
    let mut pool = Usage {
        span: 100 * MS,
        ..Usage::default()
    };
    let mut first = Usage::default();
    first.step(30 * MS, 4, 0.75);
    first.step(10 * MS, 8, 0.25);
    let mut second = Usage::default();
    second.step(20 * MS, 1, 0.5);
    pool.add(&first);
    pool.add(&second);
    assert_eq!((pool.workers, pool.steps, pool.busy), (2, 3, 60 * MS));
    assert!((pool.busy_share() - 0.3).abs() < 1e-9);
    let batch = (30.0 * 4.0 + 10.0 * 8.0 + 20.0) / 60.0;
    assert!((pool.mean_batch() - batch).abs() < 1e-9);
    let pages = (30.0 * 0.75 + 10.0 * 0.25 + 20.0 * 0.5) / 60.0;
    assert!((pool.mean_pages() - pages).abs() < 1e-9);
    assert_eq!(pool.most_pages, 0.75);
}

#[test]
fn time_before_the_first_request_is_no_idle_time() {
    let busy = |at: u64| {
        let trace = [Request::new(Duration::from_secs(at), 1000, 20)];
        let done = simulate(&FleetPlan::mixed(pool(R1, 1)), &trace).unwrap();
        (done.decode.span, done.decode.busy_share())
    };
    assert_eq!(busy(1000), busy(0));
    assert!((busy(0).1 - 1.0).abs() < 1e-6, "all of it is work");
}

#[test]
fn sequences_that_do_not_fit_into_one_step_take_turns() {
    let mut plan = FleetPlan::mixed(pool(R1, 1));
    plan.decode.max_batch = 1;
    let found = answers(&plan, &every(Duration::ZERO, 2, 10, 20));
    let step = profile(R1).step(&Work::decode(20));
    let apart = found[0].ended.abs_diff(found[1].ended);
    assert!(apart < step * 2, "{apart:?} of steps of {step:?}");
    assert!(found.iter().all(|answer| answer.longest_gap > step));
}

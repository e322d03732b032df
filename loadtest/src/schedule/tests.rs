use super::*;
use crate::testing::plan;

fn open(rate: &str) -> Load {
    Load::Open {
        curve: rate.parse().unwrap(),
        process: "constant".parse().unwrap(),
    }
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn a_rate_ends_by_count_by_time_or_with_its_curve() {
    let by_count = RunPlan {
        requests: Some(20),
        ..plan(open("2"))
    };
    let by_time = RunPlan {
        duration: Some(seconds(10)),
        ..plan(open("2"))
    };
    let by_curve = plan(open("2@10s"));
    for plan in [by_count, by_time, by_curve] {
        let schedule = Schedule::of(&plan).unwrap();
        assert_eq!(schedule.times.as_ref().unwrap().len(), 20);
        assert_eq!(schedule.length, Some(seconds(10)));
        assert_eq!(schedule.window(), Some(seconds(10)));
    }
    assert_eq!(Schedule::of(&plan(open("2"))), Err(ScheduleError::Endless));
}

#[test]
fn requests_that_all_come_at_once_have_no_rate() {
    let at_once = |requests| RunPlan {
        requests: Some(requests),
        ..plan(open("100000"))
    };
    let window = |requests| Schedule::of(&at_once(requests)).unwrap().window();
    assert_eq!(window(900), None);
    assert_eq!(window(2000), Some(Duration::from_millis(20)));
}

#[test]
fn margins_are_kept_apart_by_time_by_number_and_by_share() {
    for (warm_up, cool_down) in [
        (Margin::Time(seconds(2)), Margin::Time(seconds(3))),
        (Margin::Requests(4), Margin::Requests(6)),
        (Margin::Share(0.2), Margin::Share(0.3)),
    ] {
        let plan = RunPlan {
            warm_up,
            cool_down,
            ..plan(open("2@10s"))
        };
        let schedule = Schedule::of(&plan).unwrap();
        let times = schedule.times.clone().unwrap();
        let phases: Vec<Phase> = (0..)
            .zip(times)
            .map(|(index, at)| schedule.phase(index, at))
            .collect();
        let count = |phase| phases.iter().filter(|p| **p == phase).count();
        assert_eq!(
            (
                count(Phase::WarmUp),
                count(Phase::Measured),
                count(Phase::CoolDown)
            ),
            (4, 10, 6)
        );
        assert_eq!(schedule.window(), Some(seconds(5)));
    }
}

#[test]
fn margins_that_leave_nothing_or_cannot_be_known_are_refused() {
    let closed = || Load::Closed {
        concurrency: 2,
        ramp: Duration::ZERO,
    };
    let nothing = RunPlan {
        warm_up: Margin::Share(0.6),
        cool_down: Margin::Share(0.5),
        ..plan(open("2@10s"))
    };
    assert_eq!(Schedule::of(&nothing), Err(ScheduleError::NothingMeasured));
    let unknown = RunPlan {
        duration: Some(seconds(5)),
        warm_up: Margin::Share(0.1),
        ..plan(closed())
    };
    assert_eq!(
        Schedule::of(&unknown),
        Err(ScheduleError::Unknown("--warmup"))
    );
    let unknown = RunPlan {
        requests: Some(5),
        cool_down: Margin::Time(seconds(1)),
        ..plan(closed())
    };
    assert_eq!(
        Schedule::of(&unknown),
        Err(ScheduleError::Unknown("--cooldown"))
    );
    assert_eq!(Schedule::of(&plan(closed())), Err(ScheduleError::Endless));
    let none = RunPlan {
        duration: Some(Duration::ZERO),
        ..plan(open("2"))
    };
    assert_eq!(Schedule::of(&none), Err(ScheduleError::Empty));
    assert_eq!(
        Schedule::of(&plan(Load::Trace { speed: 1.0 })),
        Err(ScheduleError::NoTrace)
    );
    let many = RunPlan {
        duration: Some(seconds(3600)),
        ..plan(open("1000000"))
    };
    assert_eq!(Schedule::of(&many), Err(ScheduleError::TooMany));
}

#[test]
fn a_trace_is_replayed_at_its_speed() {
    let schedule = Schedule::of(&replay(40, Load::Trace { speed: 2.0 })).unwrap();
    assert_eq!(schedule.times.unwrap().last(), Some(&seconds(6)));
}

#[test]
fn a_share_of_requests_is_the_nearest_number_of_them() {
    // As a product it is a little less than 29.
    let plan = RunPlan {
        requests: Some(100),
        warm_up: Margin::Share(0.29),
        ..plan(open("10"))
    };
    let schedule = Schedule::of(&plan).unwrap();
    let phase = |index| schedule.phase(index, Duration::from_millis(100 * index));
    assert_eq!((phase(28), phase(29)), (Phase::WarmUp, Phase::Measured));
}

#[test]
fn a_curve_that_is_cut_by_a_time_is_no_longer_than_that() {
    let plan = RunPlan {
        duration: Some(seconds(4)),
        ..plan(open("2@10s"))
    };
    let schedule = Schedule::of(&plan).unwrap();
    assert_eq!(schedule.requests, Some(8));
    assert_eq!(schedule.length, Some(seconds(4)));
    assert_eq!(schedule.window(), Some(seconds(4)));
}

fn replay(rows: usize, load: Load) -> RunPlan {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/traces/mooncake_conversation.jsonl");
    let mut trace = crate::trace::Trace::read(&path, crate::trace::Slice::WHOLE).unwrap();
    trace.rows.truncate(rows);
    let mut plan = plan(load);
    let workload = std::sync::Arc::get_mut(&mut plan.workload).unwrap();
    workload.source = std::sync::Arc::new(Source::Trace(trace));
    plan
}

#[test]
fn a_trace_lasts_until_the_request_after_its_last_one_would_have_come() {
    let schedule = Schedule::of(&replay(40, Load::Trace { speed: 2.0 })).unwrap();
    // Forty requests, the last of them after 6 s: a gap more.
    let length = schedule.length.unwrap().as_secs_f64();
    assert!((length - 6.0 * 40.0 / 39.0).abs() < 1e-6, "{length}");
}

#[test]
fn the_only_request_of_a_trace_is_measured() {
    let one = RunPlan {
        cool_down: Margin::Time(Duration::ZERO),
        ..replay(1, Load::Trace { speed: 1.0 })
    };
    let schedule = Schedule::of(&one).unwrap();
    assert_eq!(schedule.phase(0, Duration::ZERO), Phase::Measured);
    assert_eq!(schedule.window(), None);
}

#[test]
fn a_trace_has_no_more_requests_than_rows_whatever_is_asked_for() {
    let closed = Load::Closed {
        concurrency: 2,
        ramp: Duration::ZERO,
    };
    for (asked, requests) in [(30, 30), (1000, 40)] {
        let plan = RunPlan {
            requests: Some(asked),
            ..replay(40, closed.clone())
        };
        assert_eq!(Schedule::of(&plan).unwrap().requests, Some(requests));
    }
}

//! What a search, a look at its result and a single request's figures say.

use super::*;

/// A prompt that is late among others that are not: nothing but its own length makes it so.
fn one_late_of_ten() -> (Vec<Request>, Goal) {
    let mut trace = every(Duration::from_secs(100), 10, 100, 2);
    trace[5].prompt = 100_000;
    (trace, goal(1000, 1000))
}

#[test]
fn a_goal_that_is_kept_by_just_enough_requests_is_kept() {
    let (trace, goal) = one_late_of_ten();
    let outcomes = simulate(&apart(1, 1), &trace).unwrap().outcomes;
    let summary = Summary::of(&outcomes, &goal.slo);
    assert_eq!((summary.attained, summary.late), (9, 1));
    // Nine of ten are 90 %, and no more than that is asked.
    assert_eq!((summary.attainment, goal.attainment), (0.9, 0.9));
    let best = highest_rate(&apart(1, 1), &trace, &goal).unwrap();
    assert!(best.speed >= 1.0, "{best:?}");
    let tried = search::Tried {
        prefill: 1,
        decode: 1,
        policy: 0,
        gpus: 16,
        best,
    };
    assert_eq!(tried.rate_per_gpu(), best.rate / 16.0);
    assert_eq!(tried.goodput(), best.rate * 0.9, "of what is served");
    let more = Goal {
        attainment: 0.91,
        ..goal
    };
    let best = highest_rate(&apart(1, 1), &trace, &more).unwrap();
    assert_eq!((best.speed, best.kept), (0.0, None));
}

#[test]
fn as_many_may_be_late_as_leave_the_wanted_share_in_time() {
    for (attainment, per_cent) in [
        (0.5, 50_usize),
        (0.55, 55),
        (0.9, 90),
        (0.99, 99),
        (1.0, 100),
    ] {
        let goal = Goal {
            attainment,
            ..goal(1, 1)
        };
        for all in 0..500 {
            let in_time = (all * per_cent).div_ceil(100);
            assert_eq!(
                search::most_late(all, &goal),
                all - in_time,
                "{attainment} {all}"
            );
        }
    }
}

#[test]
fn a_rate_is_that_of_the_requests_after_the_first() {
    let mut trace = every(Duration::from_millis(250), 5, 1, 1);
    trace.reverse();
    assert_eq!(search::rate(&trace), 4.0);
    assert_eq!(search::rate(&search::faster(&trace, 2.0)), 8.0);
    assert_eq!((search::rate(&trace[..1]), search::rate(&[])), (0.0, 0.0));
}

/// A prefill worker of one GPU beside a decode worker of eight.
fn pools() -> (Pool, Pool) {
    let decode = pool(R1, 1);
    let mut prefill = decode.clone();
    prefill.profile.gpus = 1;
    (prefill, decode)
}

#[test]
fn gpus_are_those_of_all_workers_of_both_pools() {
    let (prefill, decode) = pools();
    assert_eq!((prefill.of(3).gpus(), decode.of(2).gpus()), (3, 16));
    let plan = FleetPlan::apart(prefill.of(3), decode.of(2));
    assert_eq!(plan.gpus(), 19);
    assert_eq!(FleetPlan::mixed(decode.of(2)).gpus(), 16);
}

#[test]
fn fleets_are_in_the_order_of_what_each_gpu_serves_not_of_what_all_do() {
    let (prefill, decode) = pools();
    let policies = [PolicySettings::default()];
    let space = |mixed| Space {
        prefill: &prefill,
        decode: &decode,
        workers: 3,
        policies: &policies,
        mixed,
    };
    let trace = every(Duration::from_millis(500), 400, 2000, 20);
    let goal = goal(4000, 100);
    let found = search(&space(true), &trace, &goal, |_| ()).unwrap();
    assert_eq!((space(true).fleets(), found.len()), (3, 3));
    let per_gpu: Vec<f64> = found.iter().map(search::Tried::rate_per_gpu).collect();
    assert!(per_gpu.is_sorted_by(|a, b| a >= b), "{per_gpu:?}");
    let all: Vec<f64> = found.iter().map(|tried| tried.best.rate).collect();
    assert!(!all.is_sorted_by(|a, b| a >= b), "another order: {all:?}");
    for tried in &found {
        let of_prefill = tried.prefill;
        assert_eq!(tried.gpus, of_prefill + 8 * tried.decode, "{tried:?}");
    }
    let found = search(&space(false), &trace, &goal, |_| ()).unwrap();
    assert_eq!((space(false).fleets(), found.len()), (2, 2));
    assert!(found.iter().all(|tried| tried.prefill > 0), "{found:?}");
    // What a worker more or less would change stays of the same kind, and is told for each GPU.
    let best = found.iter().find(|tried| tried.prefill == 1).unwrap();
    let why = why(&space(false), best, &trace, &goal).unwrap();
    let around: Vec<_> = why
        .neighbours
        .iter()
        .map(|n| (n.prefill, n.decode))
        .collect();
    assert_eq!(around, [(2, 2), (1, 3), (1, 1)]);
    for n in &why.neighbours {
        let gpus = f64::from(n.prefill + 8 * n.decode);
        assert_eq!(n.rate_per_gpu, n.rate / gpus);
    }
}

fn saturates(decode_room: Option<u64>, trace: &[Request], goal: &Goal) -> Saturates {
    let prefill = pool(R1, 1);
    let mut decode = prefill.clone();
    decode.kv_tokens = decode_room.unwrap_or(decode.kv_tokens);
    let policies = [PolicySettings::default()];
    let space = Space {
        prefill: &prefill,
        decode: &decode,
        workers: 2,
        policies: &policies,
        mixed: false,
    };
    let found = search(&space, trace, goal, |_| ()).unwrap();
    why(&space, &found[0], trace, goal).unwrap().saturates
}

#[test]
fn a_fleet_whose_pages_are_few_gives_way_there_and_one_without_a_goal_nowhere() {
    let trace = every(Duration::from_millis(500), 60, 500, 400);
    let goal = goal(2000, 100);
    assert_eq!(saturates(Some(4000), &trace, &goal), Saturates::DecodeRoom);
    let any = Goal {
        slo: Slo::ANY,
        ..goal
    };
    assert_eq!(saturates(None, &trace, &any), Saturates::Nothing);
}

#[test]
fn alone_each_request_has_a_time_for_a_token_and_the_shortest_prompt_the_first_one() {
    let trace = [
        Request::new(Duration::ZERO, 5000, 1),
        Request::new(Duration::ZERO, 100, 1),
        Request::new(Duration::ZERO, 9000, 1),
    ];
    let plan = apart(1, 1);
    let found = alone(&plan, &trace, &Slo::ANY).unwrap().unwrap();
    let shortest = answers(&plan, &[Request::new(Duration::ZERO, 100, 2)])[0];
    assert_eq!((found.ttft, found.tpot), (shortest.ttft, shortest.tpot()));
    assert!(found.tpot > Duration::ZERO);
}

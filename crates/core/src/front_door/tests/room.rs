//! Large requests and small ones, where room is short.

use super::*;
use crate::front_door::place::OVERTAKES;

fn crowd(workers: &[&str]) -> FrontDoor<First> {
    door_of(AdmissionSettings::one_class(1000), workers)
}

#[test]
fn a_large_request_is_passed_a_few_times_and_never_starved() {
    let mut door = crowd(&["p", "d"]);
    submit(&mut door, 1, 4);
    assert_eq!(asked(&submit(&mut door, 2, 16)), []);
    // Small ones come for ever, each before the one before it has ended.
    let (mut passed, mut running) = (0, vec![1]);
    for n in 100..200 {
        let mut out = submit(&mut door, n, 4);
        let ends = running.len() > 2 || !asked(&out).is_empty() || passed == OVERTAKES;
        if ends && !running.is_empty() {
            out.extend(ended(&mut door, running.remove(0)));
        }
        let placed = asked(&out);
        if placed.contains(&2) {
            assert_eq!(passed, OVERTAKES);
            return;
        }
        passed += placed.len() as u32;
        running.extend(placed);
        assert!(passed <= OVERTAKES, "{passed}");
    }
    panic!("the large request was never placed");
}

#[test]
fn small_requests_go_where_the_large_one_does_not_wait() {
    let mut door = crowd(&["p", "d0", "d1"]);
    assert_eq!(pairs(&submit(&mut door, 1, 10))[0].2, "d0");
    assert_eq!(pairs(&submit(&mut door, 2, 12))[0].2, "d1");
    assert_eq!(asked(&submit(&mut door, 4, 16)), []);
    let mut decodes = Vec::new();
    for n in 100..120 {
        for (small, _, decode) in pairs(&submit(&mut door, n, 1)) {
            decodes.push(decode);
            ended(&mut door, small);
        }
    }
    // None had to wait; from the time when the large one was passed often enough, the emptier worker
    // is kept for it.
    let (early, late) = decodes.split_at(OVERTAKES as usize);
    assert!(early.iter().all(|d| d == "d0"), "{decodes:?}");
    assert_eq!(late, ["d1"; 12], "{decodes:?}");
    assert_eq!(pairs(&ended(&mut door, 1)), [(4, "p".into(), "d0".into())]);
}

#[test]
fn many_small_ones_behind_a_large_one_are_seen_even_of_one_tenant() {
    let mut door = crowd(&["p", "d"]);
    submit(&mut door, 1, 10);
    for n in 2..5 {
        assert_eq!(asked(&submit(&mut door, n, 16)), []);
    }
    assert_eq!(asked(&submit(&mut door, 5, 2)), [5]);
}

//! Pairs weighed together, and who is near whom.

use super::made::*;
use crate::{Rule, Scorer};

fn racks() -> tandem_core::fleet::Fleet {
    let at =
        |name: &str, host: &str, rack: &str| worker(name).label("host", host).label("rack", rack);
    fleet([
        at("p0", "a", "r1").queued(100),
        at("p1", "b", "r2"),
        at("d0", "a", "r1"),
        at("d1", "c", "r2").free(950),
        at("d2", "d", "r3").free(100),
    ])
}

#[test]
fn a_near_prefill_worker_is_worth_a_queue_as_the_weights_say() {
    let mut settings = both(Rule::Scored);
    settings.decode.weights = vec![(Scorer::Pages, 1.0)];
    settings.prefill.weights = vec![(Scorer::Queue, 1.0), (Scorer::Topology, 2.0)];
    assert_eq!(
        always(&settings, &racks(), &request(1)).0,
        "p0",
        "on d0's host"
    );
    settings.prefill.weights[1].1 = 0.5;
    assert_eq!(always(&settings, &racks(), &request(1)).0, "p1");
}

#[test]
fn the_best_pair_need_not_hold_the_best_worker_of_either_stage() {
    let mut settings = both(Rule::LeastLoaded);
    settings.topology.levels = vec!["host".into(), "rack".into()];
    let alone = always(&settings, &racks(), &request(1));
    assert_eq!((alone.0.as_str(), alone.1.as_str()), ("p1", "d0"));
    // d1 shares a rack with the idle p1 and has nearly as many pages as d0.
    settings.pair.candidates = 4;
    settings.pair.topology = 0.5;
    let together = always(&settings, &racks(), &request(1));
    assert_eq!((together.0.as_str(), together.1.as_str()), ("p1", "d1"));
    // Where only the host counts, p0's queue is worth d0's.
    settings.pair.topology = 3.0;
    let host = always(&settings, &racks(), &request(1));
    assert_eq!((host.0.as_str(), host.1.as_str()), ("p0", "d0"));
    let why = pair(&mut pairing(&settings), &racks(), &request(1)).why;
    assert_eq!(why.pairs, 6);
}

//! The measurement of the way from a bump to the first posted write: that it measures, not how fast.

use std::net::SocketAddr;
use std::time::Duration;

use tandem_fabric::bench::{Receiver, receive};
use tandem_worker_agent::measure::{BumpPlan, Threads, bump_to_post};

/// Not a test: where spawned receivers begin. Without an address it does nothing.
#[test]
fn receives() {
    let last = std::env::args().next_back().unwrap();
    if let Ok(address) = last.parse::<SocketAddr>() {
        receive(address, &[]).unwrap();
    }
}

fn measured(provider: &str) {
    let plan = BumpPlan {
        layers: 4,
        gap: (Duration::from_micros(100), Duration::from_millis(1)),
        ..BumpPlan::quick(provider)
    };
    let arguments = [
        "--exact",
        "measure::receives",
        "--nocapture",
        "--test-threads=1",
    ];
    let receiver = Receiver::Spawn(arguments.map(Into::into).to_vec());
    // Every write has been acknowledged and counted by then, or this is an error.
    let results = bump_to_post(&plan, &receiver).unwrap();
    let threads: Vec<Threads> = results.iter().map(|r| r.threads).collect();
    assert_eq!(threads, [Threads::Napping, Threads::Spinning]);
    for result in results {
        assert_eq!(result.samples, 9 * 4, "all but the first step of ten");
        let us = result.us;
        // A generous bound: a machine that is busy with other tests is no reason to fail.
        let sane = us.p50 > 0.0 && us.p50 <= us.p99 && us.p99 < 5e6;
        assert!(sane, "{result:?}");
    }
}

#[test]
fn every_layers_first_post_is_measured_over_tcp() {
    measured("tcp");
}

#[test]
fn every_layers_first_post_is_measured_over_shm() {
    measured("shm");
}

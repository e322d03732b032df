//! No order of events goes round in a circle. So each of them comes to a state in which nothing has to
//! happen any more, and there every request has ended.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use stateright::Model;
use tandem_sim::{Config, Exploration, World};

use super::{layered, with};

/// Whether everything behind a state has been seen.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// It is on the way from the start to where we are.
    OnTheWay,
    Done,
}

/// Visits every state, depth first; the number of states.
///
/// # Panics
/// Where a state comes again on the way from itself.
fn states_without_a_circle(config: Config) -> usize {
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    let name = |world: &World| hasher.hash_one(world);
    let model = Exploration::new(config);
    let mut seen: HashMap<u64, Seen> = HashMap::new();
    let mut way: Vec<(u64, Vec<World>)> = Vec::new();
    for start in model.init_states() {
        seen.insert(name(&start), Seen::OnTheWay);
        way.push((name(&start), model.next_states(&start)));
    }
    while let Some((here, left)) = way.last_mut() {
        let Some(next) = left.pop() else {
            seen.insert(*here, Seen::Done);
            way.pop();
            continue;
        };
        match seen.get(&name(&next)) {
            Some(Seen::Done) => {}
            Some(Seen::OnTheWay) => panic!("a circle through {next:#?}"),
            None => {
                seen.insert(name(&next), Seen::OnTheWay);
                way.push((name(&next), model.next_states(&next)));
            }
        }
    }
    seen.len()
}

#[test]
fn every_order_of_events_comes_to_an_end() {
    let worlds = [
        (
            "three mishaps",
            with(Config::small(1), |b| {
                (b.timeouts, b.cancels, b.dispatch_breaks) = (1, 1, 1);
            }),
        ),
        (
            "two layers, both crash",
            with(layered(1), |b| {
                (b.prefill_crashes, b.decode_crashes, b.restarts) = (1, 1, 2);
            }),
        ),
        (
            "two requests, a crash",
            with(Config::small(2), |b| b.prefill_crashes = 1),
        ),
    ];
    for (name, config) in worlds {
        println!(
            "{name}: {} states, no circle",
            states_without_a_circle(config)
        );
    }
}

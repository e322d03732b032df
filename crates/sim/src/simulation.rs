//! One run of a large world, drawn from a seed.
//!
//! The same seed gives the same run, step by step and byte by byte.

use std::fmt::Write;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::action::Action;
use crate::config::Config;
use crate::violation::Violation;
use crate::world::{Setup, World};

/// One step in so many is a mishap, where one can happen.
const MISHAPS: u32 = 40;
/// Steps after which a run is taken for one that never ends.
const STEPS: usize = 100_000;

/// What happened.
#[derive(Clone, Debug)]
pub struct Run {
    /// Every step, one in a line, and how it ended.
    pub trace: String,
    /// Steps taken.
    pub steps: usize,
    /// What went wrong, if anything did.
    pub violation: Option<Violation>,
}

/// Runs until nothing has to happen any more, or something has gone wrong.
///
/// # Panics
/// Where a run does not end.
#[must_use]
pub fn run(config: Config, seed: u64) -> Run {
    let setup = Setup::new(config);
    let mut world = World::new(&setup);
    let mut rng = StdRng::seed_from_u64(seed);
    let mut trace = format!("seed {seed}\n");
    let mut actions = Vec::new();
    for steps in 0..STEPS {
        world.offer(&mut actions);
        let violation = world.fault_at_rest();
        if violation.is_some() || !actions.iter().any(|a| comes(&world, a)) {
            let end = violation
                .as_ref()
                .map_or("all is well".into(), |v| format!("{v:?}"));
            let _ = writeln!(trace, "{steps} steps: {end}");
            return Run {
                trace,
                steps,
                violation,
            };
        }
        let action = choose(&world, &actions, &mut rng);
        let _ = writeln!(trace, "{action:?}");
        world = world.after(&setup, action);
    }
    panic!("seed {seed}: {STEPS} steps and no end");
}

/// Whether an action comes by itself, in the end.
fn comes(world: &World, action: &Action) -> bool {
    world.is_due(action) || action.is_tick()
}

fn choose(world: &World, actions: &[Action], rng: &mut StdRng) -> Action {
    let (due, mishaps): (Vec<Action>, Vec<Action>) = actions.iter().partition(|action| {
        // Somebody starts what has died.
        world.is_due(action) || matches!(action, Action::Restart(..))
    });
    let from = match (due.is_empty(), mishaps.is_empty()) {
        (true, _) => mishaps,
        (false, true) => due,
        _ if rng.random_ratio(1, MISHAPS) => mishaps,
        _ => due,
    };
    from[rng.random_range(0..from.len())]
}

//! Every order of events, by `stateright`.

use stateright::{Model, Property};

use crate::action::Action;
use crate::config::Config;
use crate::violation::Violation;
use crate::world::{Setup, World};

/// A world to be explored.
#[derive(Clone, Debug)]
pub struct Exploration {
    setup: Setup,
}

impl Exploration {
    /// Of this size.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            setup: Setup::new(config),
        }
    }
}

impl Exploration {
    /// What is wrong with a state, if anything is.
    #[must_use]
    pub fn verdict(&self, world: &World) -> Option<Violation> {
        world.fault_at_rest()
    }
}

impl Model for Exploration {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(&self.setup)]
    }

    fn actions(&self, state: &World, actions: &mut Vec<Action>) {
        state.offer(actions);
    }

    fn next_state(&self, last: &World, action: Action) -> Option<World> {
        Some(last.after(&self.setup, action))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(
                "no early decode, foreign write or stale count",
                |_, world: &World| world.violation().is_none(),
            ),
            Property::always(
                "at rest all has come back and every request has ended",
                |_, world: &World| world.violation().is_some() || world.fault_at_rest().is_none(),
            ),
        ]
    }
}

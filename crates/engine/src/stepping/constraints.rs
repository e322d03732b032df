//! Compiling constraints on a thread beside the engine's, which never waits for it.
//!
//! A sequence that has a constraint does not run before this is compiled. That takes milliseconds, in
//! which its prompt is mostly still on its way.

use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, bounded};
use tandem_constraint::{Constraint, ConstraintError, Grammars, Matching};
use tandem_core::SequenceId;

use super::Compute;
use super::steps::{Closed, Steps};
use crate::{Event, StartError};

/// Constraints that wait to be compiled, at most.
pub(super) const WAITING: usize = 4096;
/// Compiled ones that wait for a step's border; the thread waits behind them.
const COMPILED: usize = 16;

/// A sequence's constraint, and its answer begun elsewhere.
pub(super) struct Order {
    sequence: SequenceId,
    constraint: Arc<Constraint>,
    begun: Vec<u32>,
}

impl Order {
    pub(super) fn new(sequence: SequenceId, constraint: Arc<Constraint>, begun: Vec<u32>) -> Self {
        Self {
            sequence,
            constraint,
            begun,
        }
    }
}

/// What became of it.
pub(super) struct Compiled {
    sequence: SequenceId,
    matching: Result<Matching, ConstraintError>,
}

/// The way to the thread, which ends when this is dropped.
pub(super) struct Compiler {
    orders: Sender<Order>,
    pub(super) compiled: Receiver<Compiled>,
}

impl Compiler {
    /// Starts the thread.
    pub(super) fn start(grammars: Arc<Grammars>) -> Result<Self, StartError> {
        let (orders, queue) = bounded::<Order>(WAITING);
        let (done, compiled) = bounded(COMPILED);
        let run = move || {
            for order in queue {
                let mut matching = grammars.compile(&order.constraint);
                if let Ok(fresh) = &mut matching
                    && let Err(error) = fresh.take(&order.begun)
                {
                    matching = Err(error);
                }
                let sequence = order.sequence;
                if done.send(Compiled { sequence, matching }).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new()
            .name("tandem-grammars".to_owned())
            .spawn(run)
            .map_err(|e| StartError::Threads(e.to_string()))?;
        Ok(Self { orders, compiled })
    }

    /// Gives the order back where too many wait.
    pub(super) fn order(&self, order: Order) -> Result<(), Order> {
        self.orders.try_send(order).map_err(|e| e.into_inner())
    }
}

impl<C: Compute> Steps<C> {
    /// A sequence can go on under its constraint, or cannot.
    pub(super) fn compiled(&mut self, done: Compiled) -> Result<(), Closed> {
        let sequence = done.sequence;
        let Some(index) = self.batch.decodes.iter().position(|d| d.id == sequence) else {
            return Ok(());
        };
        let ended = match done.matching {
            Err(error) => {
                let message = error.to_string();
                Some(Event::Failed { sequence, message })
            }
            Ok(matching) => {
                self.batch.decodes[index].follow(matching);
                self.batch.decodes[index]
                    .take_end()
                    .map(|end| end.event(sequence))
            }
        };
        if let Some(event) = ended {
            self.batch.decodes.remove(index);
            self.emit(event)?;
        }
        Ok(())
    }
}

//! A look at a request's constraint before anything is reserved for it.

use std::sync::Arc;
use std::time::Instant;

use tandem_core::decode::Refusal;
use tandem_engine::{Constraint, ConstraintError, Grammars};
use tokio::sync::Semaphore;

/// Constraints that are compiled at a time, at most: each takes a core.
const AT_A_TIME: usize = 2;
/// Requests that wait for that, at most.
const WAITING: usize = 256;

/// Compiles constraints, whose results the engine then finds ready. Where the engine is in another
/// process it alone knows the vocabulary: here only sizes are looked at.
#[derive(Clone, Debug)]
pub(crate) struct Constraints {
    grammars: Option<Arc<Grammars>>,
    turns: Arc<Semaphore>,
    room: Arc<Semaphore>,
}

impl Constraints {
    pub(crate) fn new(grammars: Option<Arc<Grammars>>) -> Self {
        Self {
            grammars,
            turns: Arc::new(Semaphore::new(AT_A_TIME)),
            room: Arc::new(Semaphore::new(WAITING)),
        }
    }

    /// Refuses a constraint that cannot be used, and one whose turn does not come by the deadline.
    pub(super) async fn check(
        &self,
        constraint: &Arc<Constraint>,
        deadline: Instant,
    ) -> Result<(), Refusal> {
        constraint.check_size().map_err(invalid)?;
        let Some(grammars) = self.grammars.clone() else {
            return Ok(());
        };
        let busy = |what: &str| Refusal::Busy(format!("constraints to compile: {what}"));
        let room = self.room.try_acquire().map_err(|_| busy("too many wait"))?;
        let checked = async {
            let turn = Arc::clone(&self.turns).acquire_owned().await.ok()?;
            let constraint = Arc::clone(constraint);
            let work = tokio::task::spawn_blocking(move || {
                let checked = grammars.check(&constraint);
                drop(turn);
                checked
            });
            work.await.ok()
        };
        let in_time = tokio::time::timeout_at(deadline.into(), checked).await;
        drop(room);
        match in_time {
            Ok(Some(checked)) => checked.map_err(invalid),
            Ok(None) => Err(invalid(ConstraintError::Unusable(
                "the compiler broke on it".to_owned(),
            ))),
            Err(_) => Err(busy("its turn did not come in time")),
        }
    }
}

fn invalid(error: ConstraintError) -> Refusal {
    Refusal::Invalid(error.to_string())
}

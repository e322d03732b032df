//! How far a search is: lines on standard error, and what an interrupt leaves.

use std::io::IsTerminal;
use std::sync::{Arc, Mutex, PoisonError};

use tandem_plan::search::Tried;

use super::report;
use crate::console::{complain, say};
use crate::failure::Failure;
use crate::lifetime::at_stop;

/// What was found until now.
#[derive(Debug)]
pub(super) struct SoFar {
    /// Fleets that there are.
    pub(super) all: usize,
    /// Those that were tried.
    pub(super) tried: usize,
    /// The best of them that keeps the goal.
    pub(super) best: Option<Tried>,
}

/// Follows a search. An interrupt prints what was found until then and ends the process with 130.
pub(super) struct Progress {
    /// `None` once somebody has told it.
    so_far: Arc<Mutex<Option<SoFar>>>,
    /// A line for so many fleets.
    every: usize,
}

/// Lines where nobody watches: a log has all that it needs of them.
const LINES: usize = 20;

impl Progress {
    /// Of a search among so many fleets under policies of these names.
    pub(super) fn start(all: usize, policies: &[String], json: bool) -> Result<Self, Failure> {
        let so_far = Arc::new(Mutex::new(Some(SoFar {
            all,
            tried: 0,
            best: None,
        })));
        let (found, policies) = (Arc::clone(&so_far), policies.to_vec());
        at_stop(move || {
            let found = found.lock().unwrap_or_else(PoisonError::into_inner).take();
            let is_early = found.is_some();
            if let Some(found) = found {
                complain("interrupted");
                say(&report::interrupted(&found, &policies, json));
            }
            is_early
        })?;
        let watched = std::io::stderr().is_terminal();
        Ok(Self {
            so_far,
            every: if watched {
                1
            } else {
                all.div_ceil(LINES).max(1)
            },
        })
    }

    /// One more was tried.
    pub(super) fn hear(&self, tried: &Tried) {
        let mut so_far = self.so_far.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(so_far) = &mut *so_far else { return };
        so_far.hear(tried);
        let number = so_far.tried;
        if number == 1 || number.is_multiple_of(self.every) {
            complain(&report::progress(number, so_far.all, tried));
        }
    }

    /// All is found: what is told from now on is told by who searched.
    pub(super) fn end(&self) {
        let mut so_far = self.so_far.lock().unwrap_or_else(PoisonError::into_inner);
        *so_far = None;
    }
}

impl SoFar {
    fn hear(&mut self, tried: &Tried) {
        self.tried += 1;
        let best = self.best.as_ref().map_or(0.0, Tried::rate_per_gpu);
        if tried.best.kept.is_some() && tried.rate_per_gpu() > best {
            self.best = Some(tried.clone());
        }
    }
}

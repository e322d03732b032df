//! What others may know of the door: copied out after each step.

use std::collections::BTreeMap;
use std::time::Duration;

use tandem_core::admission::{BreakerState, ClassId};
use tandem_core::fleet::{Fleet, Worker};
use tandem_core::front_door::FrontDoor;
use tandem_core::pairing::{Policy, Stage};
use tandem_core::{Instant, WorkerId};

use super::Allowed;

/// The model that the workers serve.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Served {
    pub(crate) name: String,
    /// SHA-256 of its weights.
    pub(crate) fingerprint: String,
    /// Tokens of prompt and answer together.
    pub(crate) context_length: u32,
}

/// The door after its latest step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct View {
    /// Requests that wait for a lease.
    pub(crate) queued: usize,
    /// Of these, those that wait for their first lease, by class.
    pub(crate) queued_by_class: Vec<usize>,
    /// Tokens per second at which the queue drains, as far as that is known.
    pub(crate) drain: Option<u64>,
    /// Told to clients that are turned away before their request is known.
    pub(crate) retry_after: Duration,
    /// Breakers that are not as new.
    pub(crate) breakers: Vec<(WorkerId, Stage, BreakerState)>,
    /// Requests that the door knows.
    pub(crate) submitted: usize,
    /// Roles that nobody ready fills.
    pub(crate) missing: Vec<&'static str>,
    /// What the workers serve, or served before all of them left; `None` before the first came.
    pub(crate) served: Option<Served>,
    /// Tokens that the pages of the largest decode worker hold; `None` without one.
    pub(crate) largest: Option<u64>,
    /// What operators allow workers, where it is not as at first.
    allowed: BTreeMap<WorkerId, Allowed>,
}

impl View {
    /// Follows the door.
    pub(crate) fn update<P: Policy>(&mut self, now: Instant, door: &FrontDoor<P>) {
        self.queued = door.waiting();
        let classes = (0..).map(ClassId).zip(&door.settings().classes);
        self.queued_by_class.clear();
        self.queued_by_class
            .extend(classes.map(|(class, _)| door.queue().of_class(class)));
        self.drain = door.drain().tokens_per_second();
        self.retry_after = door.retry_after();
        self.breakers.clear();
        let states = door.breakers().states(now);
        self.breakers
            .extend(states.map(|(worker, stage, state)| (worker.clone(), stage, state)));
        self.submitted = door.in_flight();
        let fleet = door.fleet();
        self.missing = missing(fleet);
        let decodes = fleet.workers().filter(|w| w.facts.role.decodes());
        self.largest = decodes.map(tokens_held).max();
        if let Some(worker) = fleet.workers().next() {
            let facts = &worker.facts;
            let same = self.served.as_ref().is_some_and(|served| {
                served.name == facts.model && served.fingerprint == facts.fingerprint
            });
            if !same {
                self.served = Some(Served {
                    name: facts.model.clone(),
                    fingerprint: facts.fingerprint.clone(),
                    context_length: facts.context_length,
                });
            }
        }
    }

    /// What an operator allows a worker.
    pub(crate) fn allowed(&self, worker: &WorkerId) -> Allowed {
        self.allowed.get(worker).copied().unwrap_or_default()
    }

    /// Follows what operators say.
    pub(super) fn allow(&mut self, allowed: &BTreeMap<WorkerId, Allowed>) {
        if self.allowed != *allowed {
            self.allowed.clone_from(allowed);
        }
    }

    /// Whether some pair could serve a request, were there room.
    pub(crate) const fn ready(&self) -> bool {
        self.missing.is_empty()
    }
}

fn missing(fleet: &Fleet) -> Vec<&'static str> {
    let ready = || fleet.workers().filter(|w| w.takes_requests());
    let mut missing = Vec::new();
    if !ready().any(|w| w.facts.role.prefills()) {
        missing.push("prefill");
    }
    if !ready().any(|w| w.facts.role.decodes()) {
        missing.push("decode");
    }
    missing
}

fn tokens_held(worker: &Worker) -> u64 {
    let layout = &worker.facts.layout;
    u64::from(layout.pages()) * u64::from(layout.geometry().page_tokens)
}

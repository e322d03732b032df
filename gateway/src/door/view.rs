//! What others may know of the door: copied out after each step.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tandem_core::admission::{BreakerState, ClassId};
use tandem_core::blocks::BlockSeed;
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
    /// Roles that nobody ready fills.
    pub(crate) missing: Vec<&'static str>,
    /// What the workers serve, or served before all of them left; `None` before the first came.
    pub(crate) served: Option<Served>,
    /// Tokens that the pages of the largest decode worker hold; `None` without one.
    pub(crate) largest: Option<u64>,
    /// What operators allow workers, where it is not as at first.
    allowed: BTreeMap<WorkerId, Allowed>,
    /// Blocks that the prefix index knows, and how many it forgot for want of room.
    pub(crate) index: (usize, u64),
    /// How the workers name blocks of tokens.
    pub(crate) seeds: Arc<[BlockSeed]>,
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
        let fleet = door.fleet();
        let census = fleet.census();
        self.missing = door.missing_roles().collect();
        self.largest = (census.most_tokens > 0).then_some(census.most_tokens);
        self.index = fleet.index().map_or((0, 0), |i| (i.len(), i.evicted()));
        if *self.seeds != *fleet.seeds() {
            self.seeds = fleet.seeds().into();
        }
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

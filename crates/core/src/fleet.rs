//! What a gateway knows of its workers.
//!
//! Owns the table of workers that have registered and their latest loads. Refuses a worker whose
//! model or pages do not fit the others': every prefill worker must be able to push to every decode
//! worker.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::layout::WorkerLayout;
use crate::{Incarnation, WorkerId, WorkerRole};

/// What a worker said when it registered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "explore", derive(Hash))]
pub struct WorkerFacts {
    /// Its name.
    pub worker: WorkerId,
    /// Its process.
    pub incarnation: Incarnation,
    /// What it does.
    pub role: WorkerRole,
    /// Model's name.
    pub model: String,
    /// SHA-256 of the model's weights, hexadecimal.
    pub fingerprint: String,
    /// Tokens of prompt and answer together.
    pub context_length: u32,
    /// Its KV cache: shape, shards, pages.
    pub layout: Arc<WorkerLayout>,
    /// libfabric provider; empty where it has none.
    pub provider: String,
}

/// What a worker reports regularly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "explore", derive(Hash))]
pub struct WorkerLoad {
    /// Counts up; an older report is ignored.
    pub sequence: u64,
    /// Pages that could be leased now.
    pub free_pages: u32,
    /// Prompt tokens it has not computed yet.
    pub queued_prompt_tokens: u64,
    /// Requests waiting there.
    pub queued_requests: u32,
    /// Sequences in its engine's batch.
    pub running: u32,
    /// It takes no new requests.
    pub stopping: bool,
}

/// What an operator wants of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Standing {
    /// It takes requests.
    #[default]
    Enabled,
    /// It finishes what it has, and takes nothing new.
    Draining,
}

/// Why a worker may not join the pool.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{worker} does not fit the pool: its {field} is {theirs}, that of {other} is {ours}")]
pub struct Mismatch {
    /// Who wants to join.
    pub worker: WorkerId,
    /// What differs.
    pub field: &'static str,
    /// Its value.
    pub theirs: String,
    /// The pool's value.
    pub ours: String,
    /// A worker of the pool that has it.
    pub other: WorkerId,
}

/// A registered worker.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "explore", derive(PartialEq, Eq, Hash))]
pub struct Worker {
    /// What it is.
    pub facts: WorkerFacts,
    /// Its latest report.
    pub load: WorkerLoad,
    /// Pages picked here and not yet in its reports.
    pub picked_pages: u32,
    /// Prompt tokens picked here and not yet in its reports.
    pub picked_tokens: u64,
    /// It refused for lack of room since its latest report.
    pub full: bool,
    /// What its operator wants.
    pub standing: Standing,
    /// Its share of the requests, in per cent of what it would get; at least 1.
    pub weight: u32,
}

impl Worker {
    /// Whether it takes new requests, were there room.
    #[must_use]
    pub fn takes_requests(&self) -> bool {
        !self.load.stopping && self.standing == Standing::Enabled
    }

    /// Pages that a new lease may have, as far as is known.
    #[must_use]
    pub const fn free_pages(&self) -> u32 {
        if self.full {
            0
        } else {
            self.load.free_pages.saturating_sub(self.picked_pages)
        }
    }

    /// Prompt tokens before a new one's turn, as far as is known.
    #[must_use]
    pub const fn queued_tokens(&self) -> u64 {
        self.load.queued_prompt_tokens + self.picked_tokens
    }
}

/// All registered workers, by name.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "explore", derive(PartialEq, Eq, Hash))]
pub struct Fleet {
    workers: BTreeMap<WorkerId, Worker>,
}

impl Fleet {
    /// Whether an operator lets a worker take new requests.
    pub fn set_standing(&mut self, worker: &WorkerId, standing: Standing) {
        if let Some(worker) = self.workers.get_mut(worker) {
            worker.standing = standing;
        }
    }

    /// A worker's share of the requests, in per cent of what it would get; at least 1.
    pub fn set_weight(&mut self, worker: &WorkerId, percent: u32) {
        if let Some(worker) = self.workers.get_mut(worker) {
            worker.weight = percent.max(1);
        }
    }

    /// All workers, in the order of their names.
    pub fn workers(&self) -> impl Iterator<Item = &Worker> {
        self.workers.values()
    }

    /// One worker.
    #[must_use]
    pub fn get(&self, worker: &WorkerId) -> Option<&Worker> {
        self.workers.get(worker)
    }

    /// One worker, to change what is known of it.
    pub fn get_mut(&mut self, worker: &WorkerId) -> Option<&mut Worker> {
        self.workers.get_mut(worker)
    }

    /// Registers a worker, in place of an earlier life of it.
    pub fn join(&mut self, facts: WorkerFacts, load: WorkerLoad) -> Result<(), Mismatch> {
        if let Some(other) = self
            .workers
            .values()
            .find(|w| w.facts.worker != facts.worker)
        {
            fits(&facts, &other.facts)?;
        }
        let worker = Worker {
            load,
            picked_pages: 0,
            picked_tokens: 0,
            full: false,
            standing: Standing::default(),
            weight: 100,
            facts,
        };
        self.workers.insert(worker.facts.worker.clone(), worker);
        Ok(())
    }

    /// Forgets a worker, unless it is another life than the one meant.
    pub fn leave(&mut self, worker: &WorkerId, incarnation: Incarnation) {
        if self
            .workers
            .get(worker)
            .is_some_and(|w| w.facts.incarnation == incarnation)
        {
            self.workers.remove(worker);
        }
    }

    /// Takes a report. Pages picked before it are in it by now, or soon will be.
    pub fn report(&mut self, worker: &WorkerId, incarnation: Incarnation, load: WorkerLoad) {
        let Some(entry) = self.workers.get_mut(worker) else {
            return;
        };
        if entry.facts.incarnation != incarnation || load.sequence <= entry.load.sequence {
            return;
        }
        entry.load = load;
        entry.full = false;
    }
}

fn fits(theirs: &WorkerFacts, ours: &WorkerFacts) -> Result<(), Mismatch> {
    let differs = |field, a: &str, b: &str| {
        if a == b {
            return Ok(());
        }
        Err(Mismatch {
            worker: theirs.worker.clone(),
            field,
            theirs: a.to_owned(),
            ours: b.to_owned(),
            other: ours.worker.clone(),
        })
    };
    differs("model", &theirs.model, &ours.model)?;
    differs("fingerprint", &theirs.fingerprint, &ours.fingerprint)?;
    let (a, b) = (
        theirs.context_length.to_string(),
        ours.context_length.to_string(),
    );
    differs("context length", &a, &b)?;
    if let Err(e) = theirs.layout.matches(&ours.layout) {
        return differs(e.field, &e.ours, &e.theirs);
    }
    if theirs.role == WorkerRole::Both || ours.role == WorkerRole::Both {
        return Ok(());
    }
    differs("provider", &theirs.provider, &ours.provider)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::geometry::{KvDtype, KvGeometry, KvKind, KvOrder};

    fn layout(head_dim: u16) -> Arc<WorkerLayout> {
        let geometry = KvGeometry {
            layers: 2,
            kv_heads: 1,
            head_dim,
            page_tokens: 4,
            dtype: KvDtype::F16,
            kind: KvKind::Heads,
            order: KvOrder::Together,
            context_bytes: 0,
        };
        Arc::new(WorkerLayout::tensor_parallel(geometry, 16, 1).unwrap())
    }

    pub(crate) fn facts(name: &str, role: WorkerRole) -> WorkerFacts {
        WorkerFacts {
            worker: WorkerId::new(name).unwrap(),
            incarnation: Incarnation(1),
            role,
            model: "m".into(),
            fingerprint: "f".into(),
            context_length: 256,
            layout: layout(2),
            provider: "tcp".into(),
        }
    }

    #[test]
    fn a_worker_of_another_model_or_geometry_is_refused_with_both_values() {
        let mut fleet = Fleet::default();
        fleet
            .join(facts("p", WorkerRole::Prefill), WorkerLoad::default())
            .unwrap();
        let mut d = facts("d", WorkerRole::Decode);
        d.model = "other".into();
        let text = fleet
            .join(d, WorkerLoad::default())
            .unwrap_err()
            .to_string();
        assert_eq!(
            text,
            "d does not fit the pool: its model is other, that of p is m"
        );
        let mut d = facts("d", WorkerRole::Decode);
        d.layout = layout(8);
        let text = fleet
            .join(d, WorkerLoad::default())
            .unwrap_err()
            .to_string();
        assert_eq!(
            text,
            "d does not fit the pool: its head_dim is 8, that of p is 2"
        );
    }

    #[test]
    fn a_restarted_worker_takes_the_place_of_its_earlier_life() {
        let mut fleet = Fleet::default();
        let old = facts("p", WorkerRole::Prefill);
        fleet.join(old.clone(), WorkerLoad::default()).unwrap();
        let mut new = old.clone();
        new.incarnation = Incarnation(2);
        new.model = "newer".into();
        fleet.join(new, WorkerLoad::default()).unwrap();
        fleet.leave(&old.worker, Incarnation(1));
        assert_eq!(
            fleet.get(&old.worker).unwrap().facts.incarnation,
            Incarnation(2)
        );
    }

    #[test]
    fn an_old_report_changes_nothing() {
        let mut fleet = Fleet::default();
        let f = facts("p", WorkerRole::Prefill);
        fleet
            .join(
                f.clone(),
                WorkerLoad {
                    sequence: 5,
                    ..WorkerLoad::default()
                },
            )
            .unwrap();
        let report = |sequence, free_pages| WorkerLoad {
            sequence,
            free_pages,
            ..WorkerLoad::default()
        };
        fleet.report(&f.worker, f.incarnation, report(4, 9));
        fleet.report(&f.worker, Incarnation(9), report(7, 9));
        assert_eq!(fleet.get(&f.worker).unwrap().free_pages(), 0);
        fleet.report(&f.worker, f.incarnation, report(6, 9));
        assert_eq!(fleet.get(&f.worker).unwrap().free_pages(), 9);
    }
}

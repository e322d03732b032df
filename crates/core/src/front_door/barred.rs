//! Workers that a request is kept from: those that failed it, those that fail everybody, and the one
//! that is kept for another.

use std::sync::Arc;

use crate::admission::Breakers;
use crate::fleet::{Fleet, Worker};
use crate::pairing::Stage;
use crate::{Incarnation, Instant, WorkerId, WorkerRole};

/// A worker that a request had trouble with, in that life.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Avoided {
    pub(super) worker: WorkerId,
    pub(super) incarnation: Incarnation,
    pub(super) stage: Stage,
    /// It failed the request, and nobody else is to blame: never again. Otherwise it is taken where
    /// there is no other.
    pub(super) never: bool,
}

/// Every worker of a stage has failed the request.
pub(super) struct NoneLeft;

/// Who may not be chosen. Few, or none.
#[derive(Clone, Debug, Default)]
pub(super) struct Barred {
    prefill: Vec<WorkerId>,
    decode: Vec<WorkerId>,
}

impl Barred {
    /// `alone`: decode workers do without a prefill worker, so that all of these may have failed it.
    pub(super) fn of(
        now: Instant,
        fleet: &Fleet,
        avoid: &[Avoided],
        breakers: &Breakers,
        (kept, alone): (Option<&WorkerId>, bool),
    ) -> Result<Self, NoneLeft> {
        let mut barred = Self::default();
        if !avoid.is_empty() || breakers.states(now).next().is_some() {
            let prefill = for_stage(now, fleet, avoid, breakers, Stage::Prefill);
            barred.prefill = match prefill {
                Err(NoneLeft) if alone => all(fleet, Stage::Prefill),
                prefill => prefill?,
            };
            barred.decode = for_stage(now, fleet, avoid, breakers, Stage::Decode)?;
        }
        barred.decode.extend(kept.cloned());
        Ok(barred)
    }

    /// Who may not be chosen for which stage.
    pub(super) fn list(self) -> Arc<[(Stage, WorkerId)]> {
        let prefill = self.prefill.into_iter().map(|w| (Stage::Prefill, w));
        let decode = self.decode.into_iter().map(|w| (Stage::Decode, w));
        prefill.chain(decode).collect()
    }
}

fn for_stage(
    now: Instant,
    fleet: &Fleet,
    avoid: &[Avoided],
    breakers: &Breakers,
    stage: Stage,
) -> Result<Vec<WorkerId>, NoneLeft> {
    let avoided = |worker: &Worker, never| {
        avoid.iter().any(|a| {
            a.stage == stage
                && a.never == never
                && a.worker == worker.facts.worker
                && a.incarnation == worker.facts.incarnation
        })
    };
    let mut ready = fleet.workers().filter(|w| serves(w, stage)).peekable();
    // Nobody to compute prompts separately, or to decode: not for this module to say.
    if ready.peek().is_none() {
        return Ok(Vec::new());
    }
    let (failed, rest): (Vec<&Worker>, Vec<&Worker>) = ready.partition(|w| avoided(w, true));
    if rest.is_empty() {
        return Err(NoneLeft);
    }
    let doubtful = |w: &&Worker| avoided(w, false) || breakers.bars(now, &w.facts.worker, stage);
    let (doubtful, good): (Vec<&Worker>, Vec<&Worker>) = rest.into_iter().partition(doubtful);
    // A fleet of which all are in doubt serves better than one that serves nobody.
    let doubtful = if good.is_empty() {
        Vec::new()
    } else {
        doubtful
    };
    let names = failed.into_iter().chain(doubtful);
    Ok(names.map(|w| w.facts.worker.clone()).collect())
}

fn all(fleet: &Fleet, stage: Stage) -> Vec<WorkerId> {
    let all = fleet.workers().filter(|w| serves(w, stage));
    all.map(|w| w.facts.worker.clone()).collect()
}

fn serves(worker: &Worker, stage: Stage) -> bool {
    let role = worker.facts.role;
    let able = match stage {
        Stage::Prefill => role == WorkerRole::Prefill,
        Stage::Decode => role.decodes(),
    };
    able && worker.takes_requests()
}

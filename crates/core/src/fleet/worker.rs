//! One worker: what it said of itself, what it reports, what was picked from it since.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::blocks::BlockSeed;
use crate::layout::WorkerLayout;
use crate::prefix_index::Place;
use crate::step_times::StepTimes;
use crate::{Incarnation, WorkerId, WorkerRole};

use super::picks::Picks;

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
    /// How it names blocks; `None` where it keeps none.
    pub seed: Option<BlockSeed>,
    /// Where it stands and what it is, as its operator says: `host`, `rack`, `pool`.
    pub labels: BTreeMap<String, String>,
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
    /// A prompt token's time, as measured there; 0: not measured yet.
    pub prefill_ns_per_token: u32,
    /// A decode step's time, as measured there; 0: not measured yet.
    pub decode_step_us: u32,
}

/// What an operator wants of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Standing {
    /// It takes requests.
    #[default]
    Enabled,
    /// It finishes what it has, and takes nothing new.
    Draining,
    /// It takes nothing.
    Disabled,
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
    /// What its operator wants.
    pub standing: Standing,
    /// Whether it answers as it should.
    pub healthy: bool,
    /// Its share of the requests, in per cent.
    pub weight: u32,
    /// How long its steps take.
    pub times: StepTimes,
    /// It refused for lack of room since its latest report.
    pub(super) full: bool,
    /// Counts the fleet's registrations.
    pub(super) registration: u64,
    pub(super) picks: Picks,
    /// Where the index has its blocks.
    pub(super) place: Option<Place>,
}

impl Worker {
    pub(super) fn new(facts: WorkerFacts, load: WorkerLoad, registration: u64) -> Self {
        let mut worker = Self {
            facts,
            load,
            standing: Standing::default(),
            healthy: true,
            weight: 100,
            times: StepTimes::default(),
            full: false,
            registration,
            picks: Picks::default(),
            place: None,
        };
        worker.measure();
        worker
    }

    /// Takes a report, if it is later than the last.
    pub(super) fn report(&mut self, load: WorkerLoad) {
        if load.sequence <= self.load.sequence {
            return;
        }
        self.load = load;
        self.full = false;
        self.picks.reported();
        self.measure();
    }

    fn measure(&mut self) {
        self.times.prefill(self.load.prefill_ns_per_token);
        self.times.step(self.load.running, self.load.decode_step_us);
    }

    /// Whether it takes new requests, were there room.
    #[must_use]
    pub fn takes_requests(&self) -> bool {
        !self.load.stopping && self.healthy && self.standing == Standing::Enabled
    }

    /// It refused for lack of room since its latest report.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.full
    }

    /// Pages that a new lease may have, as far as is known.
    #[must_use]
    pub const fn free_pages(&self) -> u32 {
        if self.full {
            0
        } else {
            self.load.free_pages.saturating_sub(self.picks.pages())
        }
    }

    /// Pages picked here and not yet in its reports.
    #[must_use]
    pub const fn picked_pages(&self) -> u32 {
        self.picks.pages()
    }

    /// Prompt tokens before a new one's turn, as far as is known.
    #[must_use]
    pub const fn queued_tokens(&self) -> u64 {
        self.load.queued_prompt_tokens + self.picks.tokens()
    }

    /// Requests that it runs or that wait there, as far as is known.
    #[must_use]
    pub const fn requests(&self) -> u32 {
        self.load.running + self.load.queued_requests + self.picks.requests()
    }
}

pub(super) fn fits(theirs: &WorkerFacts, ours: &WorkerFacts) -> Result<(), Mismatch> {
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

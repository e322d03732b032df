//! One worker: its agent's rules, its engine, and what it reports.

use std::collections::BTreeMap;
use std::time::Duration;

use tandem_core::decode::{self, DecodeAgent, DecodeLimits, Peer};
use tandem_core::fleet::{WorkerFacts, WorkerLoad};
use tandem_core::pool::{CacheChange, PageCounts};
use tandem_core::prefill::{self, PrefillAgent, PrefillLimits};
use tandem_core::step_times::Fading;
use tandem_core::{Incarnation, Instant, WorkerId, WorkerRole};

use crate::blocks::seed;
use crate::engine::Engine;
use crate::plan::{PlanError, Pool, Transfer};
use crate::usage::Usage;

/// The only life of each worker.
pub(crate) const LIFE: Incarnation = Incarnation(1);

/// A worker and what it holds.
#[derive(Debug)]
pub(crate) struct Worker<'p> {
    pub(crate) facts: WorkerFacts,
    pub(crate) agent: Agent,
    pub(crate) engine: Engine<'p>,
    /// Sequences that its engine holds.
    pub(crate) sequences: u32,
    /// Requests of a decode worker without a token yet, and the prompt tokens of those whose prompts are computed
    /// here.
    pub(crate) waiting: u32,
    pub(crate) waiting_tokens: u64,
    pub(crate) prefill_ns: Fading,
    pub(crate) step_us: Fading,
    /// When its link is free again, where prompts travel as a whole.
    pub(crate) link_free: Duration,
    pub(crate) usage: Usage,
    /// What its cache did and nobody heard of yet.
    changes: Vec<CacheChange>,
    /// Somebody has heard of its cache.
    told: bool,
    reported: WorkerLoad,
    /// A report is on its way.
    pub(crate) reports: bool,
}

/// The rules that it follows.
#[derive(Debug)]
pub(crate) enum Agent {
    Prefill(Box<PrefillAgent>),
    Decode(Box<DecodeAgent>),
}

/// What an agent wants done.
pub(crate) enum Said {
    Prefill(prefill::Output),
    Decode(decode::Output),
}

/// Agents' own limits stand in nobody's way: pages do.
const UNLIMITED: usize = usize::MAX;
/// Nothing drains in a fleet in which nothing fails.
const DRAIN: Duration = Duration::from_secs(5);

impl<'p> Worker<'p> {
    pub(crate) fn new(
        pool: &'p Pool,
        role: WorkerRole,
        number: u32,
        transfer: Transfer,
    ) -> Result<Self, PlanError> {
        let layout = pool.layout()?;
        let worker = WorkerId::new(format!("{role}-{number:04}"));
        let worker = worker.map_err(|error| PlanError::Refused(error.to_string()))?;
        let prefills = role == WorkerRole::Prefill;
        let agent = if prefills {
            Agent::Prefill(Box::new(PrefillAgent::new(PrefillLimits {
                layout: layout.clone(),
                queue: UNLIMITED,
                drain_timeout: DRAIN,
            })))
        } else {
            Agent::Decode(Box::new(DecodeAgent::new(DecodeLimits {
                layout: layout.clone(),
                requests: UNLIMITED,
                drain_timeout: DRAIN,
            })))
        };
        let facts = WorkerFacts {
            worker,
            incarnation: LIFE,
            role,
            model: String::new(),
            fingerprint: String::new(),
            context_length: pool.profile.context_length,
            layout,
            provider: String::new(),
            seed: Some(seed(pool.page_tokens)),
            labels: BTreeMap::new(),
        };
        let mut worker = Self {
            facts,
            agent,
            engine: Engine::new(pool, prefills.then_some(transfer)),
            sequences: 0,
            waiting: 0,
            waiting_tokens: 0,
            prefill_ns: Fading::default(),
            step_us: Fading::default(),
            link_free: Duration::ZERO,
            usage: Usage::default(),
            changes: Vec::new(),
            told: false,
            reported: WorkerLoad::default(),
            reports: false,
        };
        worker.reported = worker.figures();
        Ok(worker)
    }

    pub(crate) fn peer(&self) -> Peer {
        Peer {
            worker: self.facts.worker.clone(),
            incarnation: LIFE,
        }
    }

    pub(crate) fn decode(&mut self, now: Instant, input: decode::Input) {
        if let Agent::Decode(agent) = &mut self.agent {
            agent.handle(now, input);
        }
    }

    pub(crate) fn prefill(&mut self, now: Instant, input: prefill::Input) {
        if let Agent::Prefill(agent) = &mut self.agent {
            agent.handle(now, input);
        }
    }

    /// What its agent wants next; what becomes of its cache is kept for the next report.
    pub(crate) fn poll(&mut self) -> Option<Said> {
        loop {
            let said = match &mut self.agent {
                Agent::Prefill(agent) => Said::Prefill(agent.poll()?),
                Agent::Decode(agent) => Said::Decode(agent.poll()?),
            };
            match said {
                Said::Prefill(prefill::Output::Cache(change))
                | Said::Decode(decode::Output::Cache(change)) => self.changes.push(change),
                said => return Some(said),
            }
        }
    }

    pub(crate) fn pages(&self) -> PageCounts {
        match &self.agent {
            Agent::Prefill(agent) => agent.pages(),
            Agent::Decode(agent) => agent.pages(),
        }
    }

    /// Share of its pages that are somebody's.
    pub(crate) fn used(&self) -> f64 {
        let pages = self.pages();
        1.0 - f64::from(pages.free()) / f64::from(pages.total())
    }

    /// What it reports next, but for the report's number.
    fn figures(&self) -> WorkerLoad {
        let (queued_requests, queued_prompt_tokens) = match &self.agent {
            Agent::Prefill(agent) => (agent.queued() as u32, agent.queued_tokens()),
            Agent::Decode(_) => (self.waiting, self.waiting_tokens),
        };
        WorkerLoad {
            sequence: self.reported.sequence,
            free_pages: self.pages().free(),
            queued_prompt_tokens,
            queued_requests,
            running: self.sequences,
            stopping: false,
            prefill_ns_per_token: self.prefill_ns.get(),
            decode_step_us: self.step_us.get(),
        }
    }

    /// Whether there is something to report.
    pub(crate) fn has_news(&self) -> bool {
        !self.changes.is_empty() || self.figures() != self.reported
    }

    /// A report.
    pub(crate) fn report(&mut self) -> WorkerLoad {
        self.reported = self.figures();
        self.reported.sequence += 1;
        self.reported
    }

    /// What its cache did since the last report; whether that is all that it holds.
    pub(crate) fn take_changes(&mut self) -> Option<(bool, Vec<CacheChange>)> {
        if self.changes.is_empty() {
            return None;
        }
        let anew = !std::mem::replace(&mut self.told, true);
        Some((anew, std::mem::take(&mut self.changes)))
    }
}

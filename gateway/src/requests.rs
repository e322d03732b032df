//! The requests that are in flight, how far each is, and why the latest ones went where they went.
//!
//! Owns no more than clients could send at once, and the last [`REMEMBERED`] decisions. Holds nothing
//! of what a client or a model said.

mod decision;
#[cfg(test)]
mod tests;
pub(crate) mod why;

use std::collections::{HashMap, VecDeque};
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dashmap::DashMap;
use dashmap::mapref::multiple::RefMulti;
use serde_json::{Value, json};
use tandem_core::pairing::Pair;
use tandem_core::{RequestId, WorkerId};
use tandem_telemetry::{RequestTimes, Stage};
use tokio::time::Instant;

use crate::caller::Caller;
use decision::{Decision, Step, explained};

/// Ended requests whose decisions can be looked up.
const REMEMBERED: usize = 1024;
/// Steps of one request that are kept; those in the middle of a long search are left out.
const STEPS: usize = 16;

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    open: DashMap<RequestId, Arc<Entry>>,
    ended: Mutex<VecDeque<Decision>>,
}

#[derive(Debug)]
struct Entry {
    /// The client's name for it, or ours.
    name: String,
    endpoint: &'static str,
    caller: Caller,
    arrived: Instant,
    tokens: AtomicU64,
    progress: Mutex<Progress>,
}

#[derive(Clone, Debug)]
struct Progress {
    /// Where it is now. The prefill worker tells at the end only how long it let the prompt wait, computed
    /// and pushed it, so until then all of that is [`Stage::Prefill`].
    stage: Stage,
    since: Instant,
    /// Known once it has ended.
    took: Option<Took>,
    prompt_tokens: u64,
    pair: Option<Pair>,
    /// Pages of its lease.
    pages: Option<u32>,
    steps: Vec<(u64, Step)>,
}

/// How long an ended request took, as its line in the log says.
#[derive(Clone, Debug)]
struct Took {
    stages: Vec<(Stage, Duration)>,
    ttft: Option<Duration>,
    total: Duration,
}

impl Progress {
    fn enter(&mut self, stage: Stage, now: Instant) {
        self.stage = stage;
        self.since = now;
    }

    /// The workers that do something for it now. A prefill worker's part is over once the pages are there.
    fn workers(&self) -> impl Iterator<Item = &WorkerId> {
        let prefills = self.stage < Stage::FirstToken;
        let pair = self.pair.as_ref();
        let decode = pair.map(|pair| &pair.decode);
        let prefill = pair.and_then(|pair| pair.prefill.as_ref());
        decode.into_iter().chain(prefill.filter(|_| prefills))
    }
}

impl Requests {
    /// A request has arrived.
    pub(crate) fn enter(
        self: &Arc<Self>,
        request: RequestId,
        name: String,
        endpoint: &'static str,
        caller: Caller,
    ) -> Tracked {
        let now = Instant::now();
        let entry = Arc::new(Entry {
            name,
            endpoint,
            caller,
            arrived: now,
            tokens: AtomicU64::new(0),
            progress: Mutex::new(Progress {
                stage: Stage::Read,
                since: now,
                took: None,
                prompt_tokens: 0,
                pair: None,
                pages: None,
                steps: Vec::new(),
            }),
        });
        self.open.insert(request, Arc::clone(&entry));
        Tracked {
            requests: Arc::clone(self),
            request,
            way: Way(entry),
        }
    }

    /// How many each worker has, prompts that it computes or pushes and answers.
    pub(crate) fn by_worker(&self) -> HashMap<WorkerId, usize> {
        let mut counts = HashMap::new();
        for entry in &self.open {
            for worker in entry.progress().workers() {
                *counts.entry(worker.clone()).or_default() += 1;
            }
        }
        counts
    }

    /// The same for one worker.
    pub(crate) fn on(&self, worker: &WorkerId) -> usize {
        let open = self.open.iter();
        open.filter(|entry| entry.progress().workers().any(|own| own == worker))
            .count()
    }

    /// Those in flight, the oldest first.
    pub(crate) fn json(&self) -> Vec<Value> {
        self.rows(|request, entry| Some(entry.json(request)))
    }

    /// Leases that were granted to this gateway's requests and have not ended, the oldest first.
    pub(crate) fn leases(&self) -> Vec<Value> {
        self.rows(|request, entry| {
            let progress = entry.progress();
            let (pair, pages) = (progress.pair?, progress.pages?);
            Some(json!({
                "request": request.to_string(),
                "decode": pair.decode.as_str(),
                "prefill": pair.prefill.as_ref().map(WorkerId::as_str),
                "pages": pages,
                "stage": progress.stage.as_str(),
                "age_ms": millis(entry.arrived),
            }))
        })
    }

    fn rows(&self, row: impl Fn(RequestId, &Entry) -> Option<Value>) -> Vec<Value> {
        let mut rows: Vec<_> = self
            .open
            .iter()
            .filter_map(|entry| Some((entry.arrived, row(*entry.key(), &entry)?)))
            .collect();
        rows.sort_by_key(|(arrived, _)| *arrived);
        rows.into_iter().map(|(_, row)| row).collect()
    }

    /// The request in flight of that name: our id for it or its `x-request-id`.
    pub(crate) fn in_flight(&self, name: &str) -> Option<RequestId> {
        let is_meant = |e: &RefMulti<'_, RequestId, Arc<Entry>>| is_meant(e.key(), &e.name, name);
        self.open.iter().find(is_meant).map(|entry| *entry.key())
    }

    /// Why a request went where it went, by our id for it or by its `x-request-id`; of several of that
    /// name the latest.
    pub(crate) fn explain(&self, name: &str) -> Option<Value> {
        let open = self.in_flight(name);
        let open = open.and_then(|request| self.open.get(&request));
        if let Some(entry) = open {
            let mut value = entry.json(*entry.key());
            value["steps"] = explained(&entry.progress().steps);
            return Some(value);
        }
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let mut latest = ended.iter().rev();
        let decision = latest.find(|own| is_meant(&own.request, &own.name, name))?;
        let mut value = decision.json();
        value["stage"] = json!("ended");
        value["steps"] = explained(&decision.progress.steps);
        Some(value)
    }

    /// The last `most` that ended, the latest first.
    pub(crate) fn recent(&self, most: usize) -> Vec<Value> {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.iter().rev().take(most).map(Decision::json).collect()
    }
}

impl Entry {
    fn progress(&self) -> Progress {
        self.progress
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn json(&self, request: RequestId) -> Value {
        let progress = self.progress();
        let pair = progress.pair.as_ref();
        json!({
            "request": request.to_string(),
            "request_id": self.name,
            "endpoint": self.endpoint,
            "tenant": &*self.caller.tenant,
            "key": self.caller.key.as_deref(),
            "stage": progress.stage.as_str(),
            "age_ms": millis(self.arrived),
            "stage_age_ms": millis(progress.since),
            "prompt_tokens": progress.prompt_tokens,
            "tokens": self.tokens.load(Ordering::Relaxed),
            "decode": pair.map(|pair| pair.decode.as_str()),
            "prefill": pair.and_then(|pair| pair.prefill.as_ref()).map(WorkerId::as_str),
        })
    }
}

/// A request's place among those in flight. Dropping it says that the request has ended.
#[derive(Debug)]
pub(crate) struct Tracked {
    requests: Arc<Requests>,
    request: RequestId,
    way: Way,
}

impl Tracked {
    /// A further answer to the same request.
    pub(crate) fn another(&self, request: RequestId) -> Self {
        let Entry {
            name,
            endpoint,
            caller,
            ..
        } = &*self.way.0;
        self.requests
            .enter(request, name.clone(), endpoint, caller.clone())
    }
}

impl Deref for Tracked {
    type Target = Way;

    fn deref(&self) -> &Way {
        &self.way
    }
}

/// Where it is written down how far a request is.
#[derive(Clone, Debug)]
pub(crate) struct Way(Arc<Entry>);

impl Way {
    /// Who asks.
    pub(crate) fn caller(&self) -> &Caller {
        &self.0.caller
    }

    /// It is there now.
    pub(crate) fn stage(&self, stage: Stage) {
        self.change(|progress, now| progress.enter(stage, now));
    }

    /// Its prompt is known.
    pub(crate) fn prompt(&self, tokens: u64) {
        self.change(|progress, _| progress.prompt_tokens = tokens);
    }

    /// The door chose these for it.
    pub(crate) fn asked(&self, pair: &Pair) {
        self.stage(Stage::Lease);
        self.change(|progress, _| progress.pair = Some(pair.clone()));
        self.step(Step::Asked(pair.clone()));
    }

    /// They did not take it on.
    pub(crate) fn not_taken(&self, why: &str) {
        self.stage(Stage::Queue);
        self.change(|progress, _| progress.pair = None);
        self.step(Step::NotTaken(why.to_owned()));
    }

    /// They granted a lease of so many pages.
    pub(crate) fn reserved(&self, pages: u32) {
        self.stage(Stage::Prefill);
        self.change(|progress, _| progress.pages = Some(pages));
        self.step(Step::Reserved);
    }

    /// Its pages are there. An answer that goes on elsewhere has had its first token.
    pub(crate) fn started(&self) {
        let goes_on = self.0.tokens.load(Ordering::Relaxed) > 0;
        self.stage(if goes_on {
            Stage::Decode
        } else {
            Stage::FirstToken
        });
    }

    /// It has ended, and took so long.
    pub(crate) fn took(&self, times: &RequestTimes) {
        let stage = |stage: Stage| Some((stage, times.stage(stage)?));
        let took = Took {
            stages: Stage::ALL.into_iter().filter_map(stage).collect(),
            ttft: times.ttft(),
            total: times.end_to_end().unwrap_or_default(),
        };
        self.change(|progress, _| progress.took = Some(took));
    }

    /// One more token.
    pub(crate) fn token(&self) {
        if self.0.tokens.fetch_add(1, Ordering::Relaxed) == 0 {
            self.stage(Stage::Decode);
        }
    }

    /// Nobody takes it, and why.
    pub(crate) fn turned_away(&self, why: &str) {
        self.step(Step::TurnedAway(why.to_owned()));
    }

    /// How it ended: `stop`, or an error's code.
    pub(crate) fn ended(&self, how: &str) {
        self.step(Step::Ended(how.to_owned()));
    }

    fn step(&self, step: Step) {
        let after = millis(self.0.arrived);
        self.change(|progress, _| {
            if progress.steps.len() == STEPS {
                progress.steps.remove(STEPS / 2);
            }
            progress.steps.push((after, step));
        });
    }

    fn change(&self, change: impl FnOnce(&mut Progress, Instant)) {
        let progress = self.0.progress.lock();
        let mut progress = progress.unwrap_or_else(PoisonError::into_inner);
        change(&mut progress, Instant::now());
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        self.requests.open.remove(&self.request);
        let entry = &self.way.0;
        let progress = entry.progress();
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let decision = Decision {
            request: self.request,
            name: entry.name.clone(),
            endpoint: entry.endpoint,
            tenant: Arc::clone(&entry.caller.tenant),
            ended_at_ms: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
            tokens: entry.tokens.load(Ordering::Relaxed),
            progress,
        };
        let ended = self.requests.ended.lock();
        let mut ended = ended.unwrap_or_else(PoisonError::into_inner);
        if ended.len() == REMEMBERED {
            ended.pop_front();
        }
        ended.push_back(decision);
    }
}

fn is_meant(request: &RequestId, own: &str, name: &str) -> bool {
    own == name || request.to_string() == name
}

fn millis(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

//! The gateway's rules: who waits, who goes where, who is turned away.
//!
//! What must hold: a request waits in one bounded queue until a decode worker seems to have room for
//! all of it; nothing is dispatched before that worker has granted the lease; what can never fit is
//! refused at once; whatever was picked is given back on every way out.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::fleet::{Fleet, Mismatch, Worker, WorkerFacts, WorkerLoad};
use crate::pairing::{Pair, Policy, RequestFacts, Stage};
use crate::{Incarnation, Instant, RequestId, WorkerId};

/// The gateway's bounds.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "explore", derive(PartialEq, Eq, Hash))]
pub struct DoorLimits {
    /// Requests that wait for a lease.
    pub queue: usize,
    /// Told to clients that are turned away while no worker is there.
    pub retry_after: Duration,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// A checked and tokenised request wants a pair.
    Submit {
        /// Its facts.
        facts: RequestFacts,
        /// When it must have ended.
        deadline: Instant,
    },
    /// Its decode worker granted the lease.
    Reserved {
        /// Which request.
        request: RequestId,
    },
    /// Its decode worker did not take it on.
    Refused {
        /// Which request.
        request: RequestId,
        /// Whether another try may do: elsewhere, or later.
        again: Again,
        /// What the worker said.
        message: String,
    },
    /// It is over: answered, failed, or its client left. Harmless for unknown ones.
    Ended {
        /// Which request.
        request: RequestId,
    },
    /// A worker reports.
    Report {
        /// Who.
        worker: WorkerId,
        /// In which life.
        incarnation: Incarnation,
        /// What.
        load: WorkerLoad,
    },
    /// A worker is lost.
    Left {
        /// Who.
        worker: WorkerId,
        /// In which life.
        incarnation: Incarnation,
    },
    /// Time has passed.
    Tick,
}

/// What a refusal means for the next try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// The worker has no room now: wait for its next report.
    WhenRoom,
    /// Something else of the pair was in the way (a full queue, a stale peer): try again, a limited
    /// number of times.
    Elsewhere,
    /// It would be refused everywhere.
    Never,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "explore", derive(Hash))]
pub enum Output {
    /// Ask this pair.
    Ask {
        /// Which request.
        request: RequestId,
        /// Whom.
        pair: Pair,
    },
    /// Turn it away.
    Reject {
        /// Which request.
        request: RequestId,
        /// Why.
        why: Rejection,
    },
}

/// Why a request is turned away before anything was started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[cfg_attr(feature = "explore", derive(Hash))]
pub enum Rejection {
    /// No worker can do a part of it.
    #[error("no {0} worker is ready")]
    NoWorker(&'static str),
    /// The queue is full.
    #[error("{waiting} requests are waiting for a decode worker already")]
    QueueFull {
        /// How many.
        waiting: usize,
    },
    /// It needs more pages than any decode worker has.
    #[error("the request needs {needed} KV pages, more than the {most} that any decode worker has")]
    NeverFits {
        /// Pages it needs.
        needed: u32,
        /// Pages of the largest decode worker.
        most: u32,
    },
    /// Its deadline passed while it waited.
    #[error("the deadline passed while the request waited for a decode worker with room")]
    Waited,
    /// Workers refused it too often, or for good.
    #[error("the workers refused the request: {0}")]
    Refused(String),
}

/// The queue, the fleet and what was picked from it.
#[derive(Debug)]
#[cfg_attr(feature = "explore", derive(Clone, PartialEq, Eq, Hash))]
pub struct FrontDoor<P> {
    limits: DoorLimits,
    fleet: Fleet,
    policy: P,
    waiting: VecDeque<RequestId>,
    requests: BTreeMap<RequestId, Entry>,
    outputs: VecDeque<Output>,
}

#[derive(Debug)]
#[cfg_attr(feature = "explore", derive(Clone, PartialEq, Eq, Hash))]
struct Entry {
    facts: RequestFacts,
    deadline: Instant,
    tries: u32,
    picked: Option<Picked>,
}

/// What a pick took from the fleet's figures, until the workers' own reports hold it.
#[derive(Debug)]
#[cfg_attr(feature = "explore", derive(Clone, PartialEq, Eq, Hash))]
struct Picked {
    pair: Pair,
    pages: u32,
    counted: bool,
}

/// Pairs that one request is tried on, where workers refuse it for other reasons than room.
const MAX_TRIES: u32 = 4;

impl<P: Policy> FrontDoor<P> {
    /// A door with no workers behind it yet.
    #[must_use]
    pub fn new(limits: DoorLimits, policy: P) -> Self {
        Self {
            limits,
            fleet: Fleet::default(),
            policy,
            waiting: VecDeque::new(),
            requests: BTreeMap::new(),
            outputs: VecDeque::new(),
        }
    }

    /// The workers behind it.
    #[must_use]
    pub const fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// Requests that wait for a lease.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Requests that have not ended.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.requests.len()
    }

    /// Told to clients that are turned away for want of workers or room.
    #[must_use]
    pub const fn retry_after(&self) -> Duration {
        self.limits.retry_after
    }

    /// Whether some pair could serve a request, were there room.
    #[must_use]
    pub fn ready(&self) -> bool {
        self.missing().is_none()
    }

    /// The next thing to do.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When to send [`Input::Tick`] at the latest.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.waiting
            .iter()
            .filter_map(|id| self.requests.get(id))
            .map(|e| e.deadline)
            .min()
    }

    /// A worker registers, or is refused.
    pub fn join(&mut self, facts: WorkerFacts, load: WorkerLoad) -> Result<(), Mismatch> {
        self.fleet.join(facts, load)?;
        self.place();
        Ok(())
    }

    /// Something happened.
    pub fn handle(&mut self, now: Instant, input: Input) {
        match input {
            Input::Submit { facts, deadline } => self.submit(facts, deadline),
            Input::Reserved { request } => self.reserved(request),
            Input::Refused {
                request,
                again,
                message,
            } => self.refused(request, again, message),
            Input::Ended { request } => self.ended(request),
            Input::Report {
                worker,
                incarnation,
                load,
            } => {
                self.fleet.report(&worker, incarnation, load);
                self.forget_counted(&worker);
            }
            Input::Left {
                worker,
                incarnation,
            } => self.fleet.leave(&worker, incarnation),
            Input::Tick => self.expire(now),
        }
        self.place();
    }

    fn submit(&mut self, facts: RequestFacts, deadline: Instant) {
        let request = facts.request;
        let rejected = if let Some(role) = self.missing() {
            Some(Rejection::NoWorker(role))
        } else if let Some(why) = self.never_fits(&facts) {
            Some(why)
        } else if self.waiting.len() >= self.limits.queue {
            Some(Rejection::QueueFull {
                waiting: self.waiting.len(),
            })
        } else {
            None
        };
        if let Some(why) = rejected {
            self.outputs.push_back(Output::Reject { request, why });
            return;
        }
        let entry = Entry {
            facts,
            deadline,
            tries: 0,
            picked: None,
        };
        let old = self.requests.insert(request, entry);
        assert!(
            old.is_none(),
            "request ids are drawn at random and used once"
        );
        self.waiting.push_back(request);
    }

    fn reserved(&mut self, request: RequestId) {
        if let Some(picked) = self
            .requests
            .get_mut(&request)
            .and_then(|e| e.picked.as_mut())
        {
            // From the next report on, the worker's own figures hold these pages.
            picked.counted = true;
        }
    }

    fn refused(&mut self, request: RequestId, again: Again, message: String) {
        let Some(entry) = self.requests.get_mut(&request) else {
            return;
        };
        entry.tries += 1;
        let tries = entry.tries;
        let Some(picked) = entry.picked.take() else {
            return;
        };
        self.give_back(&picked);
        match again {
            Again::WhenRoom => {
                if let Some(worker) = self.fleet.get_mut(&picked.pair.decode) {
                    worker.full = true;
                }
                self.waiting.push_front(request);
            }
            Again::Elsewhere if tries < MAX_TRIES => self.waiting.push_front(request),
            Again::Elsewhere | Again::Never => {
                self.requests.remove(&request);
                let why = Rejection::Refused(message);
                self.outputs.push_back(Output::Reject { request, why });
            }
        }
    }

    fn ended(&mut self, request: RequestId) {
        let Some(entry) = self.requests.remove(&request) else {
            return;
        };
        match entry.picked {
            Some(picked) => self.give_back(&picked),
            None => self.waiting.retain(|id| *id != request),
        }
    }

    fn give_back(&mut self, picked: &Picked) {
        if picked.pages == 0 {
            return;
        }
        if let Some(worker) = self.fleet.get_mut(&picked.pair.decode) {
            worker.picked_pages = worker.picked_pages.saturating_sub(picked.pages);
        }
    }

    /// After a report of `worker`: what it had granted before is in its own figures now.
    fn forget_counted(&mut self, worker: &WorkerId) {
        let mut pages = 0;
        for picked in self.requests.values_mut().filter_map(|e| e.picked.as_mut()) {
            if picked.counted && picked.pair.decode == *worker {
                pages += std::mem::take(&mut picked.pages);
            }
        }
        if let Some(entry) = self.fleet.get_mut(worker) {
            entry.picked_pages = entry.picked_pages.saturating_sub(pages);
            entry.picked_tokens = 0;
        }
    }

    fn expire(&mut self, now: Instant) {
        let requests = &mut self.requests;
        let outputs = &mut self.outputs;
        self.waiting.retain(|id| {
            if requests.get(id).is_none_or(|e| e.deadline > now) {
                return true;
            }
            requests.remove(id);
            outputs.push_back(Output::Reject {
                request: *id,
                why: Rejection::Waited,
            });
            false
        });
    }

    /// Pairs waiting requests, the oldest first, for as long as there is room. One that must wait
    /// keeps those behind it waiting: a large request is not overtaken for ever.
    fn place(&mut self) {
        while let Some(request) = self.waiting.front().copied() {
            if let Some(role) = self.missing() {
                self.turn_away(request, Rejection::NoWorker(role));
                continue;
            }
            let Some(facts) = self.requests.get(&request).map(|e| e.facts) else {
                self.waiting.pop_front();
                continue;
            };
            if let Some(why) = self.never_fits(&facts) {
                self.turn_away(request, why);
                continue;
            }
            let Some((pair, pages)) = self.pair(&facts) else {
                return;
            };
            self.waiting.pop_front();
            self.pick(&pair, pages, &facts);
            if let Some(entry) = self.requests.get_mut(&request) {
                entry.picked = Some(Picked {
                    pair: pair.clone(),
                    pages,
                    counted: false,
                });
            }
            self.outputs.push_back(Output::Ask { request, pair });
        }
    }

    fn turn_away(&mut self, request: RequestId, why: Rejection) {
        self.waiting.pop_front();
        if self.requests.remove(&request).is_some() {
            self.outputs.push_back(Output::Reject { request, why });
        }
    }

    fn pair(&mut self, facts: &RequestFacts) -> Option<(Pair, u32)> {
        let fits = |w: &Worker| {
            w.facts.role.decodes() && !w.load.stopping && w.free_pages() >= pages_of(w, facts)
        };
        let decodes: Vec<&Worker> = self.fleet.workers().filter(|w| fits(w)).collect();
        if decodes.is_empty() {
            return None;
        }
        let choice = self.policy.choose(Stage::Decode, &decodes, facts);
        let decode = decodes[choice.index];
        let pages = pages_of(decode, facts);
        if decode.facts.role.prefills() {
            let decode = decode.facts.worker.clone();
            return Some((
                Pair {
                    decode,
                    prefill: None,
                    why: choice.why,
                },
                pages,
            ));
        }
        let prefills: Vec<&Worker> = self
            .fleet
            .workers()
            .filter(|w| w.facts.role == crate::WorkerRole::Prefill && !w.load.stopping)
            .collect();
        if prefills.is_empty() {
            return None;
        }
        let second = self.policy.choose(Stage::Prefill, &prefills, facts);
        let pair = Pair {
            decode: decode.facts.worker.clone(),
            prefill: Some(prefills[second.index].facts.worker.clone()),
            why: format!("decode: {}; prefill: {}", choice.why, second.why),
        };
        Some((pair, pages))
    }

    fn pick(&mut self, pair: &Pair, pages: u32, facts: &RequestFacts) {
        if let Some(worker) = self.fleet.get_mut(&pair.decode) {
            worker.picked_pages += pages;
        }
        let computes = pair.prefill.as_ref().unwrap_or(&pair.decode);
        if let Some(worker) = self.fleet.get_mut(computes) {
            worker.picked_tokens += u64::from(facts.prompt_tokens);
        }
    }

    /// The role that nobody ready fills.
    fn missing(&self) -> Option<&'static str> {
        let ready = || self.fleet.workers().filter(|w| !w.load.stopping);
        if !ready().any(|w| w.facts.role.decodes()) {
            return Some("decode");
        }
        (!ready().any(|w| w.facts.role.prefills())).then_some("prefill")
    }

    fn never_fits(&self, facts: &RequestFacts) -> Option<Rejection> {
        let decodes = || self.fleet.workers().filter(|w| w.facts.role.decodes());
        if decodes().any(|w| w.facts.layout.pages() >= pages_of(w, facts)) {
            return None;
        }
        let needed = decodes().map(|w| pages_of(w, facts)).min()?;
        let most = decodes().map(|w| w.facts.layout.pages()).max()?;
        Some(Rejection::NeverFits { needed, most })
    }
}

/// Pages that a request needs on a worker: for all its tokens but the last one generated.
fn pages_of(worker: &Worker, facts: &RequestFacts) -> u32 {
    let tokens = facts.prompt_tokens as usize + facts.new_tokens as usize - 1;
    worker.facts.layout.geometry().pages_for(tokens) as u32
}

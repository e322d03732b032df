//! The gateway's rules: who waits, who goes where, who is turned away, who is tried again.
//!
//! What must hold: a request waits in one bounded queue until a decode worker seems to have room for
//! all of it; nothing is dispatched before that worker has granted the lease; what can never fit is
//! refused at once; whatever was picked is given back on every way out; a request that failed is tried
//! again a bounded number of times, never on the worker that failed it.

mod admit;
mod again;
mod barred;
mod explain;
mod messages;
mod place;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::admission::{AdmissionSettings, Breakers, DrainRate, Meters, Queue};
use crate::fleet::{
    self, Fleet, NotJoined, Reservation, Standing, Worker, WorkerFacts, WorkerLoad,
};
use crate::pairing::{NoPairReason, Pair, Policy, RequestFacts};
use crate::{Instant, RequestId, WorkerId};

use barred::Avoided;
pub use messages::{Again, Blame, Input, KeyLimits, Output, Rejection};

/// The queue, the fleet and what was picked from it.
#[derive(Debug)]
#[cfg_attr(feature = "explore", derive(Clone, PartialEq, Eq, Hash))]
pub struct FrontDoor<P> {
    settings: Arc<AdmissionSettings>,
    fleet: Fleet,
    policy: P,
    queue: Queue,
    tenants: Meters,
    keys: Meters,
    drain: DrainRate,
    breakers: Breakers,
    requests: BTreeMap<RequestId, Entry>,
    outputs: VecDeque<Output>,
    /// When something last happened.
    now: Instant,
}

#[derive(Debug)]
#[cfg_attr(feature = "explore", derive(Clone, PartialEq, Eq, Hash))]
struct Entry {
    facts: RequestFacts,
    deadline: Instant,
    /// It waits no longer than this for its first lease.
    until: Instant,
    key: Option<KeyLimits>,
    /// Tokens of its answer that it was charged for.
    asked_tokens: u32,
    /// Tokens of its answer that have come, as far as the door was told.
    generated: u32,
    /// A lease was granted to it, now or earlier.
    leased: bool,
    refusals: u32,
    retries: u32,
    migrations: u32,
    avoid: Vec<Avoided>,
    picked: Option<Picked>,
}

impl Entry {
    const fn new(
        facts: RequestFacts,
        deadline: Instant,
        until: Instant,
        key: Option<KeyLimits>,
    ) -> Self {
        Self {
            asked_tokens: facts.new_tokens,
            facts,
            deadline,
            until,
            key,
            generated: 0,
            leased: false,
            refusals: 0,
            retries: 0,
            migrations: 0,
            avoid: Vec::new(),
            picked: None,
        }
    }
}

/// What a pick took from the fleet's figures, until the workers' own reports hold it.
#[derive(Debug)]
#[cfg_attr(feature = "explore", derive(Clone, PartialEq, Eq, Hash))]
struct Picked {
    pair: Pair,
    reservation: Option<Reservation>,
    /// Somebody waited when it was picked: its lease says how fast the queue drains.
    waited: bool,
}

impl<P: Policy> FrontDoor<P> {
    /// A door with no workers behind it yet.
    ///
    /// # Panics
    /// Where the settings have no class.
    #[must_use]
    pub fn new(settings: AdmissionSettings, policy: P) -> Self {
        assert!(
            usize::from(settings.default_class.0) < settings.classes.len(),
            "the default class is one of the classes"
        );
        Self {
            fleet: Fleet::new(policy.index_blocks()),
            policy,
            queue: Queue::new(&settings),
            tenants: Meters::default(),
            keys: Meters::default(),
            drain: DrainRate::default(),
            breakers: Breakers::new(settings.breaker),
            requests: BTreeMap::new(),
            outputs: VecDeque::new(),
            now: Instant::ZERO,
            settings: Arc::new(settings),
        }
    }

    /// The workers behind it.
    #[must_use]
    pub const fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// The policy, to be asked why.
    #[must_use]
    pub const fn policy(&self) -> &P {
        &self.policy
    }

    /// How it admits.
    #[must_use]
    pub fn settings(&self) -> &AdmissionSettings {
        &self.settings
    }

    /// Those that wait for a lease.
    #[must_use]
    pub const fn queue(&self) -> &Queue {
        &self.queue
    }

    /// How fast the queue drains.
    #[must_use]
    pub const fn drain(&self) -> &DrainRate {
        &self.drain
    }

    /// Workers that failed too often.
    #[must_use]
    pub const fn breakers(&self) -> &Breakers {
        &self.breakers
    }

    /// Requests that wait for a lease.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Requests that have not ended.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.requests.len()
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
        let waiting = self.queue.deadline()?;
        let next_try = self.breakers.next_try(self.now);
        Some(next_try.map_or(waiting, |at| at.min(waiting)))
    }

    /// Follows another policy from now on. Requests that have their pair keep it, and the prefix index
    /// its size.
    pub fn set_policy(&mut self, policy: P) {
        self.policy = policy;
        self.place(self.now);
    }

    /// Admits by other settings from now on, whose classes are numbered as those before
    /// ([`AdmissionSettings::following`]). Those that wait do so until the deadline that they came with.
    pub fn set_admission(&mut self, settings: AdmissionSettings) {
        self.queue.follow(&settings);
        self.breakers.follow(settings.breaker);
        self.settings = Arc::new(settings);
        self.place(self.now);
    }

    /// A worker registers, or is refused.
    pub fn join(&mut self, facts: WorkerFacts, load: WorkerLoad) -> Result<(), NotJoined> {
        self.join_as(facts, load, Standing::default(), 100)
    }

    /// The same with what an operator has said of it before.
    pub fn join_as(
        &mut self,
        facts: WorkerFacts,
        load: WorkerLoad,
        standing: Standing,
        weight: u32,
    ) -> Result<(), NotJoined> {
        let worker = facts.worker.clone();
        self.fleet.join(facts, load)?;
        self.allow(&worker, standing, weight);
        Ok(())
    }

    /// What an operator wants of a worker from now on. Harmless for unknown ones.
    pub fn allow(&mut self, worker: &WorkerId, standing: Standing, weight: u32) {
        self.fleet.set_standing(worker, standing);
        self.fleet.set_weight(worker, weight);
        self.place(self.now);
    }

    /// Something happened.
    pub fn handle(&mut self, now: Instant, input: Input) {
        self.now = now;
        self.drain.advance(now, !self.queue.is_empty());
        match input {
            Input::Submit {
                facts,
                deadline,
                key,
            } => self.submit(now, facts, deadline, key),
            Input::Reserved { request } => self.reserved(now, request),
            Input::Refused {
                request,
                again,
                message,
            } => self.refused(now, request, again, message),
            Input::Started { request } => self.started(request),
            Input::Failed {
                request,
                blame,
                generated,
            } => self.failed(now, request, blame, generated),
            Input::Served { request } => self.served(request),
            Input::Ended { request, generated } => self.ended(now, request, generated),
            Input::Report {
                worker,
                incarnation,
                load,
            } => self.fleet.report(&worker, incarnation, load),
            Input::Cached {
                worker,
                incarnation,
                anew,
                changes,
            } => return self.fleet.cached(&worker, incarnation, anew, &changes),
            Input::Left {
                worker,
                incarnation,
            } => self.fleet.leave(&worker, incarnation),
            Input::Tick => self.expire(now),
        }
        self.place(now);
    }

    /// A pair; or why to turn the request away, or nothing where it is to wait.
    fn pair(&mut self, now: Instant, facts: &RequestFacts) -> Result<Pair, Option<Rejection>> {
        let none = match self.policy.pair(now, &self.fleet, facts) {
            Ok(pair) => return Ok(pair),
            Err(none) => none,
        };
        Err(match none.reason {
            NoPairReason::NoRoom(_) => None,
            NoPairReason::NoWorker(stage) => Some(Rejection::NoWorker(stage.as_str())),
            NoPairReason::TooLate(why) => Some(Rejection::Promise(why)),
        })
    }

    /// Roles that nobody ready fills. One without a prefill worker is filled where the policy lets
    /// decode workers compute prompts.
    pub fn missing_roles(&self) -> impl Iterator<Item = &'static str> {
        let census = self.fleet.census();
        let prefill = census.prefills == 0 && !self.policy.decodes_alone();
        let roles = [(prefill, "prefill"), (census.decodes == 0, "decode")];
        roles
            .into_iter()
            .filter(|(missing, _)| *missing)
            .map(|(_, role)| role)
    }

    /// The one to name in an error: without decode workers nothing else matters.
    fn missing(&self) -> Option<&'static str> {
        self.missing_roles().last()
    }

    fn never_fits(&self, facts: &RequestFacts) -> Option<Rejection> {
        let tokens = u64::from(facts.prompt_tokens) + u64::from(facts.new_tokens) - 1;
        if tokens <= self.fleet.census().most_tokens {
            return None;
        }
        let decodes = || self.fleet.workers().filter(|w| w.facts.role.decodes());
        let needed = decodes().map(|w| pages_of(w, facts)).min()?;
        let most = decodes().map(|w| w.facts.layout.pages()).max()?;
        Some(Rejection::NeverFits { needed, most })
    }
}

/// Pages that a request needs on a worker: for all its tokens but the last one generated.
fn pages_of(worker: &Worker, facts: &RequestFacts) -> u32 {
    fleet::pages_for(worker.facts.layout.geometry().page_tokens, facts)
}

//! The gateway: the core's front door, and for each request the stream to its decode worker.

mod registry;

use std::collections::{BTreeMap, BTreeSet};

use tandem_core::admission::{AdmissionSettings, BreakerSettings};
use tandem_core::decode::Refusal;
use tandem_core::fleet::{Fleet, Worker, pages_for};
use tandem_core::front_door::{Again, Blame, FrontDoor, Input, Output};
use tandem_core::pairing::{
    NoPair, NoPairReason, Pair, Policy, RequestFacts, Stage, of_decode, of_prefill,
};
use tandem_core::{Instant, WorkerRole};

use crate::names::{Attempt, Life, index_of, worker_id};

/// The first request on the first worker, the second on the second.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct InTurn;

impl Policy for InTurn {
    fn pair(
        &mut self,
        now: Instant,
        fleet: &Fleet,
        request: &RequestFacts,
    ) -> Result<Pair, NoPair> {
        self.explain(now, fleet, request)
    }

    fn explain(&self, _: Instant, fleet: &Fleet, request: &RequestFacts) -> Result<Pair, NoPair> {
        let in_turn = |workers: Vec<&Worker>, reason| {
            let none = || NoPair {
                reason,
                why: std::sync::Arc::default(),
            };
            let turn = request.request.0 as usize % workers.len().max(1);
            let worker = workers.get(turn).ok_or_else(none)?;
            Ok(worker.facts.worker.clone())
        };
        let figures = |w: &Worker| {
            let slot = fleet.slot(&w.facts.worker);
            slot.map(|slot| fleet.figures()[slot.index()])
                .unwrap_or_default()
        };
        let decodes = fleet.workers().filter(|w| {
            let figures = figures(w);
            of_decode(&figures, pages_for(figures.page_tokens, request)).is_ok()
        });
        let decode = in_turn(decodes.collect(), NoPairReason::NoRoom(Stage::Decode))?;
        let prefills = fleet.workers().filter(|w| {
            !request.avoids(Stage::Prefill, &w.facts.worker) && of_prefill(&figures(w)).is_ok()
        });
        let prefill = in_turn(prefills.collect(), NoPairReason::NoRoom(Stage::Prefill))?;
        Ok(Pair {
            decode,
            prefill: Some(prefill),
            local: None,
            cached_tokens: 0,
            why: std::sync::Arc::default(),
        })
    }
}

/// What became of a client's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Client {
    /// It waits at the door.
    Waiting,
    /// A decode worker was asked.
    Asked(Attempt),
    /// It has its answer, or an error.
    Ended,
}

/// A stream to a decode worker.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ask {
    pub(crate) decode: Life,
    pub(crate) prefill: Life,
    /// The request has arrived.
    pub(crate) arrived: bool,
    /// The gateway knows that the lease is granted.
    reserved: bool,
    broken: bool,
    /// The gateway wants no more of it, or has heard that it broke.
    pub(crate) let_go: bool,
    /// The worker has heard that the gateway wants no more of it.
    pub(crate) cancelled: bool,
}

/// What a decode worker tells the gateway.
pub(crate) enum Told {
    Reserved,
    Refused(Refusal),
    Failed,
    Finished,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Gateway {
    door: FrontDoor<InTurn>,
    clients: Vec<Client>,
    tries: Vec<u8>,
    /// The last request that has come.
    arrived: u8,
    pub(crate) asks: BTreeMap<Attempt, Ask>,
    /// Lives that are registered.
    known: BTreeMap<(WorkerRole, u8), Life>,
    /// Decode workers that granted a lease since their last report.
    unreported: BTreeSet<u8>,
}

impl Gateway {
    pub(crate) fn new(requests: usize, retries: u32) -> Self {
        // What differs with each state without a rule of pages hanging on it is off.
        let settings = AdmissionSettings {
            early_rejection: false,
            breaker: BreakerSettings {
                failures: 0,
                ..BreakerSettings::default()
            },
            retries,
            ..AdmissionSettings::one_class(requests)
        };
        Self {
            door: FrontDoor::new(settings, InTurn),
            clients: vec![Client::Waiting; requests],
            tries: vec![0; requests],
            arrived: 0,
            asks: BTreeMap::new(),
            known: BTreeMap::new(),
            unreported: BTreeSet::new(),
        }
    }

    pub(crate) fn client(&self, request: u8) -> Client {
        self.clients[usize::from(request) - 1]
    }

    pub(crate) const fn arrived(&self) -> u8 {
        self.arrived
    }

    /// The next request that comes.
    pub(crate) fn next(&self) -> Option<u8> {
        (self.arrived < self.requests()).then_some(self.arrived + 1)
    }

    fn requests(&self) -> u8 {
        self.clients.len() as u8
    }

    fn set_client(&mut self, request: u8, client: Client) {
        self.clients[usize::from(request) - 1] = client;
    }

    pub(crate) fn unended(&self) -> Option<Attempt> {
        let at = self.clients.iter().position(|c| *c != Client::Ended)?;
        let (request, number) = (at as u8 + 1, self.tries[at]);
        Some(Attempt { request, number })
    }

    pub(crate) fn known(&self, role: WorkerRole, index: u8) -> Option<Life> {
        self.known.get(&(role, index)).copied()
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.door.deadline()
    }

    /// Whether a report of these free pages would change anything.
    pub(crate) fn wants_report(&self, decode: u8, free: u32) -> bool {
        let worker = self
            .door
            .fleet()
            .get(&worker_id(WorkerRole::Decode, decode.into()));
        let stale = self.unreported.contains(&decode);
        let differs = |w: &Worker| w.is_full() || w.load.free_pages != free || stale;
        self.door.waiting() > 0 && worker.is_some_and(differs)
    }

    pub(crate) fn can_break(&self, attempt: Attempt) -> bool {
        self.asks
            .get(&attempt)
            .is_some_and(|a| a.arrived && !a.broken && !a.let_go)
    }

    pub(crate) fn is_broken(&self, attempt: Attempt) -> bool {
        self.asks.get(&attempt).is_some_and(|a| a.broken)
    }

    pub(crate) fn break_ask(&mut self, attempt: Attempt) {
        if let Some(ask) = self.asks.get_mut(&attempt) {
            ask.broken = true;
        }
    }

    fn end(&mut self, attempt: Attempt) {
        self.set_client(attempt.request, Client::Ended);
        let request = attempt.id();
        let ended = Input::Ended {
            request,
            generated: 0,
        };
        self.door.handle(Instant::ZERO, ended);
    }

    fn refused(&mut self, attempt: Attempt, again: Again) {
        self.set_client(attempt.request, Client::Waiting);
        let refused = Input::Refused {
            request: attempt.id(),
            again,
            message: String::new(),
        };
        self.door.handle(Instant::ZERO, refused);
    }

    /// The door says whether it is tried again.
    fn failed(&mut self, attempt: Attempt, blame: Blame) {
        self.set_client(attempt.request, Client::Waiting);
        let failed = Input::Failed {
            request: attempt.id(),
            blame,
            generated: 0,
        };
        self.door.handle(Instant::ZERO, failed);
    }

    /// Carries out what the door decided.
    fn place(&mut self) {
        while let Some(output) = self.door.poll() {
            match output {
                Output::Ask { request, pair } => self.ask(request.0 as u8, &pair),
                Output::Reject { request, .. } => {
                    self.set_client(request.0 as u8, Client::Ended);
                }
            }
        }
    }

    fn ask(&mut self, request: u8, pair: &Pair) {
        let number = &mut self.tries[usize::from(request) - 1];
        *number += 1;
        let attempt = Attempt {
            request,
            number: *number,
        };
        let known = |role, worker| self.known.get(&(role, index_of(worker) as u8)).copied();
        let prefill = pair.prefill.as_ref();
        let decode = known(WorkerRole::Decode, &pair.decode);
        let prefill = prefill.and_then(|p| known(WorkerRole::Prefill, p));
        self.set_client(request, Client::Asked(attempt));
        let (Some(decode), Some(prefill)) = (decode, prefill) else {
            return self.refused(attempt, Again::Elsewhere);
        };
        let ask = Ask {
            decode,
            prefill,
            arrived: false,
            reserved: false,
            broken: false,
            let_go: false,
            cancelled: false,
        };
        self.asks.insert(attempt, ask);
    }

    /// A decode worker's message.
    pub(crate) fn tell(&mut self, attempt: Attempt, told: Told) {
        let Some(ask) = self.asks.get_mut(&attempt) else {
            return;
        };
        if ask.broken || ask.let_go {
            return;
        }
        if let Told::Reserved = told {
            ask.reserved = true;
            self.unreported.insert(ask.decode.worker);
            let request = attempt.id();
            self.door.handle(Instant::ZERO, Input::Reserved { request });
        } else {
            self.asks.remove(&attempt);
            match told {
                Told::Refused(why) => self.refused(attempt, again(&why)),
                // Whoever is to blame: with nobody else there the same pair is tried.
                Told::Failed => self.failed(attempt, Blame::Fabric),
                _ => self.end(attempt),
            }
        }
        self.place();
    }

    /// The stream to the decode worker is lost. Whether the worker lives and has yet to hear of it.
    pub(crate) fn lost(&mut self, attempt: Attempt, lives: bool) {
        let Some(ask) = self.asks.get_mut(&attempt) else {
            return;
        };
        ask.let_go = true;
        let reserved = ask.reserved;
        if !lives || ask.cancelled || !ask.arrived {
            self.asks.remove(&attempt);
        }
        if reserved {
            self.failed(attempt, Blame::Decode);
        } else {
            self.refused(attempt, Again::Elsewhere);
        }
        self.place();
    }

    pub(crate) fn client_leaves(&mut self, request: u8) {
        let asked = self.client(request);
        let number = self.tries[usize::from(request) - 1];
        self.end(Attempt { request, number });
        if let Client::Asked(attempt) = asked {
            let arrived = self.asks.get_mut(&attempt).is_some_and(|ask| {
                ask.let_go = true;
                ask.arrived
            });
            if !arrived {
                self.asks.remove(&attempt);
            }
        }
        self.place();
    }

    pub(crate) fn tick(&mut self) {
        if let Some(now) = self.door.deadline() {
            self.door.handle(now, Input::Tick);
        }
        self.place();
    }
}

/// What a refusal means for the next try, as in the gateway's relay.
const fn again(why: &Refusal) -> Again {
    match why {
        Refusal::NoRoom(_) => Again::WhenRoom,
        Refusal::NeverFits(_) | Refusal::Invalid(_) => Again::Never,
        _ => Again::Elsewhere,
    }
}

//! Pairing those that wait, for as long as there is room.
//!
//! The first in the queue's order may find no room while those behind it would: it wants more pages
//! than any decode worker has free. They pass it, but [`OVERTAKES`] times at most; from then on one
//! decode worker is kept for it, the one with the most free pages of those that are large enough, and
//! others go elsewhere only. What runs there ends, nobody enters, so its room comes; and where it does
//! not fit is open to all. At most one request at a time, the first, is kept a worker for.

use super::admit::tokens;
use super::barred::{Barred, NoneLeft};
use super::{FrontDoor, Output, Picked, Policy, Rejection, pages_of};
use crate::pairing::{RequestFacts, Stage};
use crate::{Instant, RequestId, WorkerId};

/// Requests that may pass the first one while it finds no room.
pub(super) const OVERTAKES: u32 = 8;
/// Requests that are looked at while the first one finds no room.
const LOOK_AHEAD: usize = 16;

/// What became of a look at one request.
enum Looked {
    Placed,
    TurnedAway,
    NoRoom,
}

impl<P: Policy> FrontDoor<P> {
    /// Pairs waiting requests for as long as there is room.
    pub(super) fn place(&mut self, now: Instant) {
        if self.queue.is_empty() {
            return;
        }
        if let Some(role) = self.missing() {
            let all: Vec<RequestId> = self.queue.requests().collect();
            for request in all {
                self.turn_away(now, request, Rejection::NoWorker(role));
            }
            return;
        }
        while self.place_one(now) {}
    }

    /// Places the first request that finds room, or turns one away; `false` where there is none.
    fn place_one(&mut self, now: Instant) -> bool {
        // A request of more tokens finds no room.
        let most_free = self.fleet.of_stage(Stage::Decode).most_free_tokens();
        let mut first: Option<RequestId> = None;
        let mut kept = None;
        for request in self.queue.candidates(now, LOOK_AHEAD) {
            let Some(facts) = self.requests.get(&request).map(|e| e.facts.clone()) else {
                self.queue.leave(request);
                return true;
            };
            match self.look(now, &facts, most_free, kept.as_ref()) {
                Looked::TurnedAway => return true,
                Looked::Placed => {
                    if let Some(first) = first {
                        self.queue.overtaken(first);
                    }
                    return true;
                }
                Looked::NoRoom if first.is_none() => {
                    first = Some(request);
                    if self.queue.times_overtaken(request) >= OVERTAKES {
                        kept = self.kept_for(&facts);
                    }
                }
                Looked::NoRoom => {}
            }
        }
        false
    }

    fn look(
        &mut self,
        now: Instant,
        facts: &RequestFacts,
        most_free: u64,
        kept: Option<&WorkerId>,
    ) -> Looked {
        let request = facts.request;
        if let Some(why) = self.never_fits(facts) {
            self.turn_away(now, request, why);
            return Looked::TurnedAway;
        }
        let barred = match self.barred(now, request, kept) {
            Ok(barred) => barred,
            Err(NoneLeft) => {
                self.turn_away(now, request, Rejection::NotAgain);
                return Looked::TurnedAway;
            }
        };
        if tokens(facts) > most_free + 1 {
            return Looked::NoRoom;
        }
        let mut facts = facts.clone();
        facts.avoid = barred.list();
        let pair = match self.pair(now, &facts) {
            Ok(pair) => pair,
            Err(None) => return Looked::NoRoom,
            Err(Some(why)) => {
                self.turn_away(now, request, why);
                return Looked::TurnedAway;
            }
        };
        let waited = self.queue.has_waited(now, request) || self.queue.len() > 1;
        self.queue.placed(now, request);
        let pages = self
            .fleet
            .get(&pair.decode)
            .map_or(0, |w| pages_of(w, &facts));
        let reservation = self.fleet.pick(&pair, &facts, pages);
        self.breakers
            .picked(now, &pair.decode, Stage::Decode, request);
        let computes = pair.prefill.as_ref().unwrap_or(&pair.decode);
        self.breakers.picked(now, computes, Stage::Prefill, request);
        if let Some(entry) = self.requests.get_mut(&request) {
            entry.picked = Some(Picked {
                pair: pair.clone(),
                reservation: Some(reservation),
                waited,
            });
        }
        self.outputs.push_back(Output::Ask { request, pair });
        Looked::Placed
    }

    pub(super) fn barred(
        &self,
        now: Instant,
        request: RequestId,
        kept: Option<&WorkerId>,
    ) -> Result<Barred, NoneLeft> {
        let avoid = self.requests.get(&request).map_or(&[][..], |e| &e.avoid);
        let alone = self.policy.decodes_alone();
        Barred::of(now, &self.fleet, avoid, &self.breakers, (kept, alone))
    }

    /// The decode worker on which a request that finds no room will find it first.
    fn kept_for(&self, facts: &RequestFacts) -> Option<WorkerId> {
        let large = self.fleet.workers().filter(|w| {
            w.facts.role.decodes()
                && w.takes_requests()
                && w.facts.layout.pages() >= pages_of(w, facts)
        });
        let emptiest = large.max_by_key(|w| w.free_pages())?;
        Some(emptiest.facts.worker.clone())
    }

    /// A waiting request goes.
    pub(super) fn turn_away(&mut self, now: Instant, request: RequestId, why: Rejection) {
        self.queue.leave(request);
        let Some(entry) = self.forget(now, request, 0) else {
            return;
        };
        let retry_after = self.retry_after_of(&entry.facts, &why);
        self.outputs.push_back(Output::Reject {
            request,
            why,
            retry_after,
        });
    }
}

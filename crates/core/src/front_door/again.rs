//! Requests that were asked of a pair: refused, failed and tried again, or over.

use super::admit::{tokens, waiting};
use super::barred::Avoided;
use super::{Again, Blame, Entry, FrontDoor, Picked, Policy, Rejection};
use crate::pairing::Stage;
use crate::{Instant, RequestId, WorkerId};

/// Pairs that one request is tried on, where workers refuse it for other reasons than room.
pub(super) const MAX_TRIES: u32 = 4;

impl<P: Policy> FrontDoor<P> {
    pub(super) fn reserved(&mut self, now: Instant, request: RequestId) {
        let Some(entry) = self.requests.get_mut(&request) else {
            return;
        };
        entry.leased = true;
        if let Some(picked) = entry.picked.as_mut() {
            // From the next report on, the worker's own figures hold these pages.
            picked
                .reservation
                .iter_mut()
                .for_each(|r| self.fleet.granted(r));
            if picked.waited {
                self.drain.granted(now, tokens(&entry.facts));
            }
        }
    }

    pub(super) fn refused(
        &mut self,
        now: Instant,
        request: RequestId,
        again: Again,
        message: String,
    ) {
        let Some(picked) = self.take_picked(request) else {
            return;
        };
        let Some(entry) = self.requests.get_mut(&request) else {
            return;
        };
        match again {
            Again::WhenRoom => {
                self.fleet.refused(&picked.pair.decode);
                self.come_back(now, request);
            }
            Again::Elsewhere if entry.refusals + 1 < MAX_TRIES => {
                entry.refusals += 1;
                self.avoid(request, &picked, Blame::Fabric);
                self.come_back(now, request);
            }
            Again::Elsewhere | Again::Never => {
                self.turn_away(now, request, Rejection::Refused(message));
            }
        }
    }

    pub(super) fn failed(
        &mut self,
        now: Instant,
        request: RequestId,
        blame: Blame,
        generated: u32,
    ) {
        let Some(picked) = self.take_picked(request) else {
            return;
        };
        if let Some((worker, stage)) = to_blame(&picked, blame) {
            self.breakers.failed(now, worker, stage);
        }
        self.avoid(request, &picked, blame);
        let Some(entry) = self.requests.get_mut(&request) else {
            return;
        };
        if entry.goes_on(generated, self.settings.retries, self.settings.migrations) {
            self.come_back(now, request);
        } else {
            self.turn_away(now, request, Rejection::NotAgain);
        }
    }

    /// A request that was placed waits again, before all others.
    fn come_back(&mut self, now: Instant, request: RequestId) {
        if let Some(entry) = self.requests.get(&request) {
            // One that had a lease is not late by its class's rule for the queue.
            let until = if entry.leased {
                entry.deadline
            } else {
                entry.until
            };
            self.queue.come_back(now, waiting(&entry.facts, until));
        }
    }

    /// Keeps a request from those that are to blame, or that may be.
    fn avoid(&mut self, request: RequestId, picked: &Picked, blame: Blame) {
        let life = |worker: &WorkerId| Some(self.fleet.get(worker)?.facts.incarnation);
        let never = to_blame(picked, blame);
        let mut found = Vec::new();
        for (worker, stage) in parts(picked) {
            let is_to_blame = never == Some((worker, stage));
            if (is_to_blame || never.is_none())
                && let Some(incarnation) = life(worker)
            {
                found.push(Avoided {
                    worker: worker.clone(),
                    incarnation,
                    stage,
                    never: is_to_blame,
                });
            }
        }
        if let Some(entry) = self.requests.get_mut(&request) {
            for avoided in found {
                if !entry.avoid.contains(&avoided) {
                    entry.avoid.push(avoided);
                }
            }
        }
    }

    pub(super) fn started(&mut self, request: RequestId) {
        let entry = self.requests.get_mut(&request);
        if let Some(picked) = entry.and_then(|e| e.picked.as_mut()) {
            let computes = picked.pair.prefill.as_ref().unwrap_or(&picked.pair.decode);
            self.breakers.succeeded(computes, Stage::Prefill);
            picked
                .reservation
                .iter_mut()
                .for_each(|r| self.fleet.prefilled(r));
        }
    }

    pub(super) fn served(&mut self, request: RequestId) {
        if let Some(picked) = self.requests.get(&request).and_then(|e| e.picked.as_ref()) {
            self.breakers.succeeded(&picked.pair.decode, Stage::Decode);
        }
    }

    pub(super) fn ended(&mut self, now: Instant, request: RequestId, generated: u32) {
        self.take_picked(request);
        self.queue.leave(request);
        self.forget(now, request, generated);
    }

    pub(super) fn expire(&mut self, now: Instant) {
        for request in self.queue.expired(now) {
            self.turn_away(now, request, Rejection::Waited);
        }
    }

    /// What was picked for a request is given back.
    fn take_picked(&mut self, request: RequestId) -> Option<Picked> {
        let mut picked = self.requests.get_mut(&request)?.picked.take()?;
        if let Some(reservation) = picked.reservation.take() {
            self.fleet.give_back(reservation);
        }
        for (worker, stage) in parts(&picked) {
            self.breakers.let_go(worker, stage, request);
        }
        Some(picked)
    }

    /// A request is over: what it did not use is not its caller's to pay.
    pub(super) fn forget(
        &mut self,
        now: Instant,
        request: RequestId,
        generated: u32,
    ) -> Option<Entry> {
        let entry = self.requests.remove(&request)?;
        let generated = u64::from(generated.max(entry.generated));
        let unused = if entry.leased {
            u64::from(entry.asked_tokens).saturating_sub(generated)
        } else {
            tokens(&entry.facts)
        };
        let tenant = &entry.facts.tenant;
        let limits = self.settings.tenant(tenant).limits;
        self.tenants.end(now, tenant.as_str(), &limits, unused);
        if let Some(key) = &entry.key {
            self.keys.end(now, &key.key, &key.limits, unused);
        }
        Some(entry)
    }
}

impl Entry {
    /// Whether it is tried again after it failed with so many tokens out, which then belong to its
    /// prompt.
    fn goes_on(&mut self, generated: u32, retries: u32, migrations: u32) -> bool {
        let (used, most) = if generated == 0 {
            (&mut self.retries, retries)
        } else {
            (&mut self.migrations, migrations)
        };
        let more = generated.saturating_sub(self.generated);
        if *used >= most || more >= self.facts.new_tokens {
            return false;
        }
        *used += 1;
        self.generated += more;
        self.facts.prompt_tokens += more;
        self.facts.new_tokens -= more;
        true
    }
}

/// The two parts of a pair.
fn parts(picked: &Picked) -> [(&WorkerId, Stage); 2] {
    let pair = &picked.pair;
    let computes = pair.prefill.as_ref().unwrap_or(&pair.decode);
    [(computes, Stage::Prefill), (&pair.decode, Stage::Decode)]
}

/// The one worker that is to blame, if one is.
fn to_blame(picked: &Picked, blame: Blame) -> Option<(&WorkerId, Stage)> {
    let [prefill, decode] = parts(picked);
    match blame {
        Blame::Prefill if picked.pair.prefill.is_some() => Some(prefill),
        Blame::Prefill | Blame::Decode => Some(decode),
        Blame::Fabric => None,
    }
}

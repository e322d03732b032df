//! A request's arrival: it waits, or is turned away at once.

use std::time::Duration;

use super::{Entry, FrontDoor, KeyLimits, Output, Policy, Rejection};
use crate::admission::Waiting;
use crate::pairing::RequestFacts;
use crate::{Instant, RequestId};

/// Told to clients that are turned away while nothing is known of how fast the queue drains.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Nobody is told to come back later than this: by then much may have changed.
const RETRY_AFTER_MOST: Duration = Duration::from_secs(60);

impl<P: Policy> FrontDoor<P> {
    pub(super) fn submit(
        &mut self,
        now: Instant,
        mut facts: RequestFacts,
        deadline: Instant,
        key: Option<KeyLimits>,
    ) {
        let request = facts.request;
        let class = self.settings.class(facts.class);
        facts.targets = class.targets;
        let until = class
            .queue_deadline
            .map_or(deadline, |most| deadline.min(now + most));
        let displaced = match self.admit(now, &facts, until, key.as_ref()) {
            Ok(displaced) => displaced,
            Err(why) => {
                let retry_after = self.retry_after_of(&facts, &why);
                let reject = Output::Reject {
                    request,
                    why,
                    retry_after,
                };
                self.outputs.push_back(reject);
                return;
            }
        };
        if let Some(displaced) = displaced {
            self.turn_away(now, displaced, Rejection::Displaced);
        }
        let tokens = tokens(&facts);
        let tenant = self.settings.tenant(&facts.tenant);
        let name = facts.tenant.name();
        self.tenants.begin(now, name, &tenant.limits, tokens);
        if let Some(key) = &key {
            self.keys.begin(now, &key.key, &key.limits, tokens);
        }
        let waiting = waiting(&facts, until);
        self.queue.enter(now, waiting, tenant.weight);
        let entry = Entry::new(facts, deadline, until, key);
        let old = self.requests.insert(request, entry);
        assert!(
            old.is_none(),
            "request ids are drawn at random and used once"
        );
    }

    /// Whether it may wait; with whom it displaces.
    fn admit(
        &self,
        now: Instant,
        facts: &RequestFacts,
        until: Instant,
        key: Option<&KeyLimits>,
    ) -> Result<Option<RequestId>, Rejection> {
        if let Some(role) = self.missing() {
            return Err(Rejection::NoWorker(role));
        }
        if let Some(why) = self.never_fits(facts) {
            return Err(why);
        }
        let tokens = tokens(facts);
        let limited = |scope| move |exceeded| Rejection::Limited { scope, exceeded };
        let limits = &self.settings.tenant(&facts.tenant).limits;
        let name = facts.tenant.as_str();
        self.tenants
            .check(now, name, limits, tokens)
            .map_err(limited("tenant"))?;
        if let Some(key) = key {
            self.keys
                .check(now, &key.key, &key.limits, tokens)
                .map_err(limited("key"))?;
        }
        let allowed = until.since(now);
        match self.wait_of(facts) {
            Some(wait) if self.settings.early_rejection && wait > allowed => {
                return Err(Rejection::TooLate { wait, allowed });
            }
            _ => {}
        }
        let check = self.queue.check(facts.class, &facts.tenant);
        check.map_err(Rejection::QueueFull)
    }

    /// The time before a new request's turn, at the rate at which the queue drains; `None` while that
    /// is not known, or nobody is before it.
    fn wait_of(&self, facts: &RequestFacts) -> Option<Duration> {
        let tenant = self.settings.tenant(&facts.tenant);
        let cost = tokens(facts);
        let (class, weight) = (facts.class, tenant.weight);
        let before = self.queue.tokens_before(class, &facts.tenant, cost, weight);
        if before == 0 {
            return None;
        }
        self.drain.time_for(before + cost)
    }

    /// When another try of a request that is turned away may do.
    pub(super) fn retry_after_of(&self, facts: &RequestFacts, why: &Rejection) -> Option<Duration> {
        let wait = match why {
            Rejection::NeverFits { .. } => return None,
            Rejection::Limited { exceeded, .. } if exceeded.never => return None,
            // The bucket knows exactly.
            Rejection::Limited { exceeded, .. } if exceeded.wait.is_some() => return exceeded.wait,
            Rejection::TooLate { wait, allowed } => Some(wait.saturating_sub(*allowed)),
            Rejection::QueueFull(_) | Rejection::Displaced | Rejection::Waited => {
                self.wait_of(facts)
            }
            Rejection::Limited { .. }
            | Rejection::NoWorker(_)
            | Rejection::Promise(_)
            | Rejection::Refused(_)
            | Rejection::NotAgain => None,
        };
        Some(within_reason(wait))
    }

    /// Told to clients that are turned away before their request is known: the time in which all that
    /// waits drains.
    #[must_use]
    pub fn retry_after(&self) -> Duration {
        within_reason(self.drain.time_for(self.queue.tokens()))
    }
}

fn within_reason(wait: Option<Duration>) -> Duration {
    wait.unwrap_or(RETRY_AFTER)
        .clamp(RETRY_AFTER, RETRY_AFTER_MOST)
}

/// What a request costs: the tokens of its prompt and those that it may generate.
pub(super) fn tokens(facts: &RequestFacts) -> u64 {
    u64::from(facts.prompt_tokens) + u64::from(facts.new_tokens)
}

pub(super) fn waiting(facts: &RequestFacts, until: Instant) -> Waiting {
    Waiting {
        request: facts.request,
        class: facts.class,
        tenant: facts.tenant.clone(),
        priority: facts.priority,
        cost: tokens(facts),
        until,
    }
}

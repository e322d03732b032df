//! What the policy would choose now, for operators. Changes nothing.

use std::sync::Arc;

use super::{FrontDoor, Policy};
use crate::pairing::{NoPair, Pair, RequestFacts, Stage};
use crate::{Instant, RequestId, WorkerId};

impl<P: Policy> FrontDoor<P> {
    /// For a request that has not ended, kept from the workers that it is kept from now; `None` for any
    /// other.
    #[must_use]
    pub fn explain(&self, now: Instant, request: RequestId) -> Option<Result<Pair, NoPair>> {
        let mut facts = self.requests.get(&request)?.facts.clone();
        // Where none is left the policy says so of each.
        facts.avoid = match self.barred(now, request, None) {
            Ok(barred) => barred.list(),
            Err(_) => self.avoided(request),
        };
        Some(self.policy.explain(now, &self.fleet, &facts))
    }

    /// For a request that is not here, of the class and with all else that `facts` say.
    pub fn would_choose(&self, now: Instant, mut facts: RequestFacts) -> Result<Pair, NoPair> {
        facts.targets = self.settings.class(facts.class).targets;
        self.policy.explain(now, &self.fleet, &facts)
    }

    fn avoided(&self, request: RequestId) -> Arc<[(Stage, WorkerId)]> {
        let avoid = self.requests.get(&request).map_or(&[][..], |e| &e.avoid);
        avoid.iter().map(|a| (a.stage, a.worker.clone())).collect()
    }
}

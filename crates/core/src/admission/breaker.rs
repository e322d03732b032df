//! Circuit breakers: a worker that failed several requests in a row is left alone for a while.
//!
//! One for each worker and stage, so that a fault of decoding never bars the worker from computing
//! prompts. Closed: all may go there. Open: none, for a time that grows with each opening. Half open:
//! one request may try it; its success closes the breaker, its failure opens it for longer.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::pairing::Stage;
use crate::{Instant, RequestId, WorkerId};

/// When breakers open and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BreakerSettings {
    /// Failures in a row that open it; 0: never.
    pub failures: u32,
    /// First time open; it doubles with each opening in a row.
    pub open: Duration,
    /// Longest time open.
    pub open_most: Duration,
    /// Seed of the jitter.
    pub seed: u64,
}

impl Default for BreakerSettings {
    fn default() -> Self {
        Self {
            failures: 5,
            open: Duration::from_secs(1),
            open_most: Duration::from_secs(60),
            seed: 0,
        }
    }
}

/// What a breaker lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BreakerState {
    /// Everybody.
    Closed,
    /// One request.
    HalfOpen,
    /// Nobody.
    Open,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Breaker {
    /// In a row, since it was last closed.
    failures: u32,
    /// Openings in a row.
    openings: u32,
    /// Open until then, half open from then on; `None`: closed.
    until: Option<Instant>,
    /// The request that tries it.
    probe: Option<RequestId>,
}

/// All breakers that are not as new.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Breakers {
    settings: BreakerSettings,
    breakers: BTreeMap<(WorkerId, Stage), Breaker>,
}

impl Breakers {
    /// All are closed.
    #[must_use]
    pub const fn new(settings: BreakerSettings) -> Self {
        Self {
            settings,
            breakers: BTreeMap::new(),
        }
    }

    /// Follows other settings from now on. What is open stays so for its time.
    pub fn follow(&mut self, settings: BreakerSettings) {
        self.settings = settings;
        if settings.failures == 0 {
            self.breakers.clear();
        }
    }

    /// Whether a request may not go there now.
    #[must_use]
    pub fn bars(&self, now: Instant, worker: &WorkerId, stage: Stage) -> bool {
        // Nearly always there are none.
        if self.breakers.is_empty() {
            return false;
        }
        match self.breakers.get(&(worker.clone(), stage)) {
            Some(breaker) => match breaker.state(now) {
                BreakerState::Closed => false,
                BreakerState::HalfOpen => breaker.probe.is_some(),
                BreakerState::Open => true,
            },
            None => false,
        }
    }

    /// A request goes there.
    pub fn picked(&mut self, now: Instant, worker: &WorkerId, stage: Stage, request: RequestId) {
        if let Some(breaker) = self.breakers.get_mut(&(worker.clone(), stage))
            && breaker.state(now) == BreakerState::HalfOpen
        {
            breaker.probe.get_or_insert(request);
        }
    }

    /// A request that went there is over, or goes elsewhere: where it was to try the worker, another
    /// may.
    pub fn let_go(&mut self, worker: &WorkerId, stage: Stage, request: RequestId) {
        if let Some(breaker) = self.breakers.get_mut(&(worker.clone(), stage))
            && breaker.probe == Some(request)
        {
            breaker.probe = None;
        }
    }

    /// The worker did its part of a request.
    pub fn succeeded(&mut self, worker: &WorkerId, stage: Stage) {
        if !self.breakers.is_empty() {
            self.breakers.remove(&(worker.clone(), stage));
        }
    }

    /// The worker failed a request, and nobody else is to blame.
    pub fn failed(&mut self, now: Instant, worker: &WorkerId, stage: Stage) {
        let settings = self.settings;
        if settings.failures == 0 {
            return;
        }
        let breaker = self.breakers.entry((worker.clone(), stage)).or_default();
        match breaker.state(now) {
            // Requests that went there before it opened.
            BreakerState::Open => return,
            BreakerState::Closed => breaker.failures += 1,
            BreakerState::HalfOpen => breaker.failures = settings.failures,
        }
        if breaker.failures >= settings.failures {
            let open = settings.open_for(worker, stage, breaker.openings);
            breaker.openings = breaker.openings.saturating_add(1);
            breaker.failures = 0;
            breaker.probe = None;
            breaker.until = Some(now + open);
        }
    }

    /// When the next one lets a request try.
    #[must_use]
    pub fn next_try(&self, now: Instant) -> Option<Instant> {
        let untils = self.breakers.values().filter_map(|b| b.until);
        untils.filter(|until| *until > now).min()
    }

    /// Those that are not as new.
    pub fn states(&self, now: Instant) -> impl Iterator<Item = (&WorkerId, Stage, BreakerState)> {
        self.breakers
            .iter()
            .map(move |((worker, stage), b)| (worker, *stage, b.state(now)))
    }
}

impl Breaker {
    fn state(&self, now: Instant) -> BreakerState {
        match self.until {
            None => BreakerState::Closed,
            Some(until) if now < until => BreakerState::Open,
            Some(_) => BreakerState::HalfOpen,
        }
    }
}

impl BreakerSettings {
    /// Between half and all of the time of this opening, so that gateways do not try in step.
    fn open_for(&self, worker: &WorkerId, stage: Stage, openings: u32) -> Duration {
        let doubled = self.open.saturating_mul(1 << openings.min(16));
        let whole = doubled.min(self.open_most);
        let text = worker.as_str().bytes().chain([stage as u8, openings as u8]);
        // FNV-1a, then a mixing step: any even spread will do.
        let hash = text.fold(self.seed ^ 0xcbf2_9ce4_8422_2325, |h, b| {
            (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3)
        });
        let part = (hash ^ (hash >> 29)) % 1024;
        whole / 2 + (whole / 2 / 1024) * u32::try_from(part).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> BreakerSettings {
        BreakerSettings {
            failures: 3,
            open: Duration::from_millis(100),
            open_most: Duration::from_millis(350),
            seed: 7,
        }
    }

    fn worker() -> WorkerId {
        WorkerId::new("w").unwrap()
    }

    /// Fails it until it opens; the time it stays open.
    fn open(breakers: &mut Breakers, now: Instant) -> Duration {
        while !breakers.bars(now, &worker(), Stage::Decode) {
            breakers.failed(now, &worker(), Stage::Decode);
        }
        breakers.next_try(now).unwrap().since(now)
    }

    #[test]
    fn only_failures_in_a_row_open_it_and_only_for_their_stage() {
        let mut breakers = Breakers::new(settings());
        for _ in 0..5 {
            breakers.failed(Instant::ZERO, &worker(), Stage::Decode);
            breakers.failed(Instant::ZERO, &worker(), Stage::Decode);
            breakers.succeeded(&worker(), Stage::Decode);
        }
        assert!(!breakers.bars(Instant::ZERO, &worker(), Stage::Decode));
        open(&mut breakers, Instant::ZERO);
        assert!(!breakers.bars(Instant::ZERO, &worker(), Stage::Prefill));
    }

    #[test]
    fn it_opens_for_longer_each_time_up_to_a_bound() {
        let mut breakers = Breakers::new(settings());
        let mut now = Instant::ZERO;
        for most in [100, 200, 350, 350, 350] {
            let time = open(&mut breakers, now);
            let most = Duration::from_millis(most);
            assert!(time >= most / 2 && time <= most, "{time:?} of {most:?}");
            now = now + time;
        }
        breakers.succeeded(&worker(), Stage::Decode);
        assert!(open(&mut breakers, now) <= Duration::from_millis(100));
    }

    #[test]
    fn half_open_it_lets_one_request_try() {
        let mut breakers = Breakers::new(settings());
        let then = Instant::ZERO + open(&mut breakers, Instant::ZERO);
        let (a, b) = (RequestId(1), RequestId(2));
        let bars = |breakers: &Breakers| breakers.bars(then, &worker(), Stage::Decode);
        assert!(!bars(&breakers));
        breakers.picked(then, &worker(), Stage::Decode, a);
        assert!(bars(&breakers));
        breakers.let_go(&worker(), Stage::Decode, b);
        assert!(bars(&breakers), "it was not b that tried");
        breakers.let_go(&worker(), Stage::Decode, a);
        assert!(!bars(&breakers));
        // One failure is enough now.
        breakers.failed(then, &worker(), Stage::Decode);
        assert!(bars(&breakers));
    }

    #[test]
    fn with_no_number_of_failures_none_opens() {
        let mut breakers = Breakers::new(BreakerSettings {
            failures: 0,
            ..settings()
        });
        for _ in 0..100 {
            breakers.failed(Instant::ZERO, &worker(), Stage::Decode);
        }
        assert_eq!(breakers.states(Instant::ZERO).count(), 0);
    }
}

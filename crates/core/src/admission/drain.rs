//! How fast the queue drains: tokens of granted leases per second, while somebody waited.
//!
//! Time in which nobody waits says nothing about what the fleet can do, so it is left out. What is
//! older than [`WINDOW`] is forgotten: workers come and go.

use std::collections::VecDeque;
use std::time::Duration;

use crate::Instant;

/// What is older does not count.
const WINDOW: Duration = Duration::from_secs(30);
/// The window moves in steps of this.
const SLOT_NANOS: u64 = 500_000_000;
/// Grants from which on there is an estimate.
const EVIDENCE: u64 = 4;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Slot {
    /// When it began, in slots since the origin.
    number: u64,
    busy_nanos: u64,
    tokens: u64,
    grants: u64,
}

/// The estimator. Holds at most one slot for each half second of the window.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct DrainRate {
    slots: VecDeque<Slot>,
    /// Up to when time was counted.
    seen: Instant,
}

impl DrainRate {
    /// Time has passed; `waiting`: somebody waited all the while.
    pub fn advance(&mut self, now: Instant, waiting: bool) {
        let passed = now.since(self.seen);
        if now <= self.seen {
            return;
        }
        self.seen = now;
        if waiting {
            let nanos = u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX);
            self.slot(now).busy_nanos += nanos;
        }
        let first = (now.as_nanos() / SLOT_NANOS)
            .saturating_sub(WINDOW.as_secs() * 1_000_000_000 / SLOT_NANOS);
        while self.slots.front().is_some_and(|slot| slot.number < first) {
            self.slots.pop_front();
        }
    }

    /// A lease of so many tokens was granted while somebody waited.
    pub fn granted(&mut self, now: Instant, tokens: u64) {
        let slot = self.slot(now);
        slot.tokens += tokens;
        slot.grants += 1;
    }

    fn slot(&mut self, now: Instant) -> &mut Slot {
        let number = now.as_nanos() / SLOT_NANOS;
        if self.slots.back().is_none_or(|slot| slot.number < number) {
            let slot = Slot {
                number,
                ..Slot::default()
            };
            self.slots.push_back(slot);
        }
        let last = self.slots.len() - 1;
        &mut self.slots[last]
    }

    fn sums(&self) -> Slot {
        let add = |a: Slot, b: &Slot| Slot {
            number: 0,
            busy_nanos: a.busy_nanos + b.busy_nanos,
            tokens: a.tokens + b.tokens,
            grants: a.grants + b.grants,
        };
        self.slots.iter().fold(Slot::default(), add)
    }

    /// Tokens per second; `None` while too little was seen.
    #[must_use]
    pub fn tokens_per_second(&self) -> Option<u64> {
        let sums = self.sums();
        if sums.grants < EVIDENCE || sums.busy_nanos == 0 {
            return None;
        }
        let rate = u128::from(sums.tokens) * 1_000_000_000 / u128::from(sums.busy_nanos);
        u64::try_from(rate).ok()
    }

    /// The time in which `tokens` drain at the present rate.
    #[must_use]
    pub fn time_for(&self, tokens: u64) -> Option<Duration> {
        let sums = self.sums();
        if sums.grants < EVIDENCE || sums.busy_nanos == 0 || sums.tokens == 0 {
            return None;
        }
        let nanos = u128::from(tokens) * u128::from(sums.busy_nanos) / u128::from(sums.tokens);
        Some(Duration::from_nanos(
            u64::try_from(nanos).unwrap_or(u64::MAX),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    #[test]
    fn only_time_in_which_somebody_waited_counts() {
        let mut drain = DrainRate::default();
        drain.advance(ms(9_000), false);
        for second in 10..15_u64 {
            drain.advance(ms(second * 1000), true);
            drain.granted(ms(second * 1000), 300);
        }
        drain.advance(ms(20_000), false);
        assert_eq!(drain.tokens_per_second(), Some(300));
        assert_eq!(drain.time_for(900), Some(Duration::from_secs(3)));
    }

    #[test]
    fn little_evidence_is_none_and_old_evidence_is_forgotten() {
        let mut drain = DrainRate::default();
        for n in 1..=3 {
            drain.advance(ms(n * 100), true);
            drain.granted(ms(n * 100), 10);
        }
        assert_eq!(drain.tokens_per_second(), None);
        assert_eq!(drain.time_for(10), None);
        drain.granted(ms(300), 10);
        assert_eq!(drain.time_for(40), Some(Duration::from_millis(300)));
        assert_eq!(drain.tokens_per_second(), Some(133));
        drain.advance(ms(31_000), false);
        assert_eq!(drain.tokens_per_second(), None);
        assert_eq!(
            drain,
            DrainRate {
                seen: ms(31_000),
                ..DrainRate::default()
            }
        );
    }
}

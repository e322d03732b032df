//! The last seconds of a run, for who watches it. Pure, and of a fixed size.

use crate::distribution::Distribution;

/// Seconds that are kept.
pub(super) const SECONDS: u64 = 10;

/// One slot for each of the last seconds, and one for that which goes on.
#[derive(Debug, Default)]
pub(super) struct Recent {
    slots: [Slot; SECONDS as usize + 1],
}

/// One second.
#[derive(Debug, Default)]
pub(super) struct Slot {
    second: u64,
    pub(super) sums: Lately,
}

/// What happened lately. Times in microseconds.
#[derive(Clone, Debug, Default)]
pub struct Lately {
    /// Seconds that this is of.
    pub span_s: f64,
    /// Requests sent.
    pub sent: u64,
    /// Whole answers that ended.
    pub answered: u64,
    /// Requests that ended otherwise.
    pub failed: u64,
    /// Of first tokens that came.
    pub ttft: Distribution,
    /// Of whole answers that ended.
    pub tpot: Distribution,
    /// How much later than scheduled requests were begun.
    pub lateness: Distribution,
}

impl Recent {
    /// The slot of a second since the start. What it held of an earlier one is gone.
    pub(super) fn at(&mut self, second: u64) -> &mut Lately {
        let count = self.slots.len() as u64;
        let slot = &mut self.slots[(second % count) as usize];
        if slot.second != second {
            slot.second = second;
            slot.sums = Lately::default();
        }
        &mut slot.sums
    }

    /// The sums of the last seconds, that which goes on included.
    pub(super) fn until(&self, now_s: f64) -> Lately {
        let second = now_s as u64;
        let first = second.saturating_sub(SECONDS);
        let mut all = Lately {
            span_s: now_s - first as f64,
            ..Lately::default()
        };
        for slot in &self.slots {
            if !(first..=second).contains(&slot.second) {
                continue;
            }
            all.sent += slot.sums.sent;
            all.answered += slot.sums.answered;
            all.failed += slot.sums.failed;
            all.ttft.add(&slot.sums.ttft);
            all.tpot.add(&slot.sums.tpot);
            all.lateness.add(&slot.sums.lateness);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_older_than_ten_seconds_is_gone() {
        let mut recent = Recent::default();
        for second in 0..30 {
            let now = recent.at(second);
            now.sent += 1;
            now.ttft.record(second);
        }
        let lately = recent.until(29.5);
        assert_eq!((lately.sent, lately.span_s), (11, 10.5));
        assert_eq!(lately.ttft.min(), Some(19));
        assert_eq!(recent.until(60.0).sent, 0, "nothing has happened since");
    }

    #[test]
    fn the_first_seconds_are_taken_for_no_more_than_they_are() {
        let mut recent = Recent::default();
        recent.at(0).answered += 4;
        recent.at(1).failed += 1;
        let lately = recent.until(2.0);
        assert_eq!((lately.answered, lately.failed, lately.span_s), (4, 1, 2.0));
    }
}

//! How often a client may take back what it has just asked for.
//!
//! QUIC lets it open another stream for each that it has reset, so the bound of open streams does not
//! bound the work ("rapid reset", CVE-2023-44487 of HTTP/2). Only requests that are taken back within a
//! moment and before their answer has begun count: who stops an answer is no attacker.

use std::time::Duration;

use tandem_core::admission::{Bucket, Rate};
use tokio::time::Instant;

/// Taken back later, a request has been worth its work.
const A_MOMENT: Duration = Duration::from_secs(1);
/// As many at once as over HTTP/2, and as many again in ten seconds.
const ALLOWED: Rate = Rate {
    units: 64,
    per: Duration::from_secs(10),
    burst: 64,
};

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// With an answer, or the beginning of one.
    Answered,
    /// Its client took it back, this long after it had opened the stream.
    TakenBack(Duration),
}

/// Of one connection.
#[derive(Debug)]
pub(super) struct Resets {
    since: Instant,
    left: Bucket,
}

impl Resets {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            since: now,
            left: Bucket::default(),
        }
    }

    /// A request has ended. `false` where its client is one to be sent away.
    pub(super) fn note(&mut self, now: Instant, ended: Ended) -> bool {
        let Ended::TakenBack(after) = ended else {
            return true;
        };
        if after >= A_MOMENT {
            return true;
        }
        let now = tandem_core::Instant::ZERO + (now - self.since);
        if self.left.wait(now, &ALLOWED, 1) != Ok(Duration::ZERO) {
            return false;
        }
        self.left.take(now, &ALLOWED, 1);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT_ONCE: Ended = Ended::TakenBack(Duration::from_millis(1));

    #[test]
    fn many_requests_taken_back_at_once_are_too_many_and_one_now_and_then_is_not() {
        let start = Instant::now();
        let mut resets = Resets::new(start);
        for n in 0..200 {
            let now = start + Duration::from_secs(n);
            assert!(resets.note(now, AT_ONCE));
        }
        let now = start + Duration::from_secs(300);
        assert!((0..64).all(|_| resets.note(now, AT_ONCE)));
        assert!(!resets.note(now, AT_ONCE));
    }

    #[test]
    fn who_stops_an_answer_or_waits_for_one_in_vain_is_no_attacker() {
        let start = Instant::now();
        let mut resets = Resets::new(start);
        for ended in [Ended::Answered, Ended::TakenBack(A_MOMENT)] {
            assert!((0..1000).all(|_| resets.note(start, ended)));
        }
        assert!((0..64).all(|_| resets.note(start, AT_ONCE)));
    }
}

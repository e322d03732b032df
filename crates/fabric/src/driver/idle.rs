//! When the thread stops spinning, and for how long.
//!
//! A sleep that no descriptor ends is a fixed part of the time that has been quiet already. So what
//! comes after a long silence is seen a little later, never by more than that part, and a silence of
//! a whole prefill costs few wake-ups: a thread that looks every 200 µs takes a twentieth of a core
//! from those it serves.

use std::time::{Duration, Instant};

use crate::options::IdlePolicy;

/// With a descriptor for everything: how long a wait may last although nothing wakes it, for what
/// a provider might fail to announce.
const QUIET_WAIT: Duration = Duration::from_millis(500);
/// The same while flows are outstanding.
const BUSY_WAIT: Duration = Duration::from_millis(10);
/// Waits on descriptors that may end for nothing before they are believed no more.
const FRUITLESS: u32 = 32;
/// While a refused write or an event waits to be tried again.
const RETRY: Duration = Duration::from_millis(1);
/// A sleep is one part in so many of the time that has been quiet.
const PART: u32 = 16;

/// Why the thread should not wait long.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outstanding {
    /// Something must be tried again without a wake-up.
    pub(crate) retry: bool,
    /// Writes are in flight or awaited.
    pub(crate) flows: bool,
    /// A flow is open or a slot is armed: writes may be on their way to the thread or to its inboxes.
    pub(crate) open: bool,
    /// All endpoints can be waited for.
    pub(crate) descriptors: bool,
}

/// What to do while there is nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// Look again at once.
    Spin,
    /// Wait for a caller or for an endpoint's descriptor, at most so long.
    Watch(Duration),
    /// Wait for a caller, at most so long; endpoints are looked at afterwards.
    Sleep(Duration),
}

/// Spin first, then wait for longer and longer.
#[derive(Debug)]
pub(crate) struct Idle {
    policy: IdlePolicy,
    since: Option<Instant>,
    /// Waits that ended early for nothing, since something last happened.
    fruitless: u32,
}

impl Idle {
    pub(crate) fn new(policy: IdlePolicy) -> Self {
        Self {
            policy,
            since: None,
            fruitless: 0,
        }
    }

    /// Something happened.
    pub(crate) fn active(&mut self) {
        self.since = None;
        self.fruitless = 0;
    }

    /// A wait on descriptors ended early, and nobody had called. A few such are bytes of a write that
    /// is not complete yet. Many are a provider whose descriptor stays readable though nothing is left
    /// to do (tcp's native provider, once it has peers): the thread would spin for ever and take a core
    /// from those it serves.
    pub(crate) fn ended_early(&mut self) {
        self.fruitless = self.fruitless.saturating_add(1);
    }

    /// Nothing happened: what to do.
    pub(crate) fn rest(&mut self, now: Instant, outstanding: Outstanding) -> Rest {
        let quiet = now.duration_since(*self.since.get_or_insert(now));
        let spin = if outstanding.open {
            self.policy.open_spin
        } else {
            self.policy.spin
        };
        if quiet < spin {
            return Rest::Spin;
        }
        if outstanding.descriptors && self.fruitless < FRUITLESS {
            return Rest::Watch(match outstanding {
                Outstanding { retry: true, .. } => RETRY,
                Outstanding { flows, .. } if flows => BUSY_WAIT,
                _ => QUIET_WAIT,
            });
        }
        let longest = match outstanding {
            Outstanding { retry: true, .. } => RETRY.min(self.policy.busy_sleep),
            Outstanding { flows, .. } if flows => self.policy.busy_sleep,
            _ => self.policy.idle_sleep,
        };
        Rest::Sleep((quiet / PART).max(self.policy.first_sleep).min(longest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOFTWARE: Outstanding = Outstanding {
        retry: false,
        flows: true,
        open: true,
        descriptors: false,
    };

    #[test]
    fn it_spins_first_and_again_after_activity() {
        let policy = IdlePolicy::default();
        let mut idle = Idle::new(policy);
        let start = Instant::now();
        assert_eq!(idle.rest(start, SOFTWARE), Rest::Spin);
        let later = start + policy.spin;
        assert_eq!(idle.rest(later, SOFTWARE), Rest::Sleep(policy.first_sleep));
        idle.active();
        assert_eq!(idle.rest(later, SOFTWARE), Rest::Spin);
    }

    #[test]
    fn with_a_core_of_its_own_it_spins_while_flows_are_open_but_not_for_ever() {
        let policy = IdlePolicy::dedicated();
        let closed = Outstanding::default();
        let open = Outstanding {
            open: true,
            ..closed
        };
        let start = Instant::now();
        let mut idle = Idle::new(policy);
        assert_eq!(idle.rest(start, open), Rest::Spin);
        let layer = start + Duration::from_millis(100);
        assert_eq!(idle.rest(layer, open), Rest::Spin);
        assert!(matches!(idle.rest(layer, closed), Rest::Sleep(_)));
        let hung = start + policy.open_spin;
        assert!(matches!(idle.rest(hung, open), Rest::Sleep(_)));
        // Without such a core an open flow changes nothing.
        let mut shared = Idle::new(IdlePolicy::default());
        assert_eq!(shared.rest(start, open), Rest::Spin);
        assert!(matches!(shared.rest(layer, open), Rest::Sleep(_)));
    }

    #[test]
    fn a_sleep_is_a_part_of_the_silence_and_no_longer_than_the_policy_says() {
        let policy = IdlePolicy::default();
        let mut idle = Idle::new(policy);
        let start = Instant::now();
        assert_eq!(idle.rest(start, SOFTWARE), Rest::Spin);
        let mut rest =
            |millis, outstanding| idle.rest(start + Duration::from_millis(millis), outstanding);
        let part = Duration::from_micros(500);
        assert_eq!(rest(8, SOFTWARE), Rest::Sleep(part));
        assert_eq!(rest(60_000, SOFTWARE), Rest::Sleep(policy.busy_sleep));
        let idle = Outstanding::default();
        assert_eq!(rest(60_000, idle), Rest::Sleep(policy.idle_sleep));
        let retry = Outstanding {
            retry: true,
            ..idle
        };
        assert!(matches!(rest(60_000, retry), Rest::Sleep(time) if time <= RETRY));
    }

    #[test]
    fn a_descriptor_that_stays_readable_does_not_keep_it_awake() {
        let policy = IdlePolicy::default();
        let mut idle = Idle::new(policy);
        let watched = Outstanding {
            descriptors: true,
            ..Outstanding::default()
        };
        let start = Instant::now();
        assert_eq!(idle.rest(start, watched), Rest::Spin);
        let later = start + Duration::from_secs(60);
        for _ in 0..FRUITLESS {
            assert_eq!(idle.rest(later, watched), Rest::Watch(QUIET_WAIT));
            idle.ended_early();
        }
        assert_eq!(idle.rest(later, watched), Rest::Sleep(policy.idle_sleep));
        idle.active();
        assert_eq!(idle.rest(later, watched), Rest::Spin);
    }
}

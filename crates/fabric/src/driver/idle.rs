//! When the thread stops spinning, and for how long.

use std::time::{Duration, Instant};

use crate::options::IdlePolicy;

/// With a descriptor for everything: how long a wait may last although nothing wakes it, for what
/// a provider might fail to announce.
const QUIET_WAIT: Duration = Duration::from_millis(500);
/// The same while transfers are outstanding.
const BUSY_WAIT: Duration = Duration::from_millis(10);
/// Waits that may end for nothing before the thread sleeps instead.
const FRUITLESS: u32 = 32;
/// While a refused write or an event waits to be tried again.
const RETRY: Duration = Duration::from_millis(1);

/// Why the thread should not wait long.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outstanding {
    /// Something must be tried again without a wake-up.
    pub(crate) retry: bool,
    /// Writes are in flight or awaited.
    pub(crate) transfers: bool,
    /// All endpoints can be waited for.
    pub(crate) descriptors: bool,
}

/// Spin first, then wait for longer and longer.
#[derive(Debug)]
pub(crate) struct Idle {
    policy: IdlePolicy,
    since: Option<Instant>,
    sleep: Duration,
    /// Waits that ended early for nothing, since something last happened.
    fruitless: u32,
}

impl Idle {
    pub(crate) fn new(policy: IdlePolicy) -> Self {
        Self {
            policy,
            since: None,
            sleep: policy.first_sleep,
            fruitless: 0,
        }
    }

    /// Something happened.
    pub(crate) fn active(&mut self) {
        self.since = None;
        self.sleep = self.policy.first_sleep;
        self.fruitless = 0;
    }

    /// A wait on descriptors ended early, and nobody had called. A few such are bytes of a write that
    /// is not complete yet. Many are a provider whose descriptor stays readable though nothing is left
    /// to do (tcp's native provider, once it has peers): the thread would spin for ever and take a core
    /// from those it serves. How long to sleep before looking again.
    pub(crate) fn ended_early(&mut self, transfers: bool) -> Option<Duration> {
        self.fruitless = self.fruitless.saturating_add(1);
        let beyond = self.fruitless.checked_sub(FRUITLESS)?;
        let longest = if transfers {
            self.policy.first_sleep * 4
        } else {
            self.policy.max_sleep
        };
        let sleep = self.policy.first_sleep * 2u32.pow(beyond.min(10));
        Some(sleep.min(longest))
    }

    /// Nothing happened: how long to wait, `None` to spin on.
    pub(crate) fn wait(&mut self, outstanding: Outstanding) -> Option<Duration> {
        let now = Instant::now();
        let since = *self.since.get_or_insert(now);
        if now.duration_since(since) < self.policy.spin {
            return None;
        }
        if outstanding.descriptors {
            let longest = if outstanding.transfers {
                BUSY_WAIT
            } else {
                QUIET_WAIT
            };
            return Some(if outstanding.retry { RETRY } else { longest });
        }
        let longest = if outstanding.transfers {
            self.policy.max_sleep.min(self.policy.first_sleep * 4)
        } else {
            self.policy.max_sleep
        };
        let wait = self.sleep.min(longest);
        self.sleep = (self.sleep * 2).min(self.policy.max_sleep);
        Some(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_spins_first_and_again_after_activity() {
        let policy = IdlePolicy {
            spin: Duration::from_secs(3600),
            ..IdlePolicy::default()
        };
        assert_eq!(Idle::new(policy).wait(Outstanding::default()), None);
        let policy = IdlePolicy {
            spin: Duration::ZERO,
            ..IdlePolicy::default()
        };
        let mut idle = Idle::new(policy);
        assert_eq!(idle.wait(Outstanding::default()), Some(policy.first_sleep));
        assert_eq!(
            idle.wait(Outstanding::default()),
            Some(policy.first_sleep * 2)
        );
        idle.active();
        assert_eq!(idle.wait(Outstanding::default()), Some(policy.first_sleep));
    }

    #[test]
    fn a_descriptor_that_stays_readable_does_not_keep_it_awake() {
        let policy = IdlePolicy::default();
        let mut idle = Idle::new(policy);
        for _ in 1..FRUITLESS {
            assert_eq!(idle.ended_early(false), None);
        }
        assert_eq!(idle.ended_early(false), Some(policy.first_sleep));
        for _ in 0..20 {
            assert!(idle.ended_early(false).unwrap() <= policy.max_sleep);
        }
        assert_eq!(idle.ended_early(false), Some(policy.max_sleep));
        assert_eq!(idle.ended_early(true), Some(policy.first_sleep * 4));
        idle.active();
        assert_eq!(idle.ended_early(false), None);
    }

    #[test]
    fn outstanding_transfers_keep_sleeps_short() {
        let policy = IdlePolicy {
            spin: Duration::ZERO,
            ..IdlePolicy::default()
        };
        let mut idle = Idle::new(policy);
        let outstanding = Outstanding {
            transfers: true,
            ..Outstanding::default()
        };
        for _ in 0..20 {
            assert!(idle.wait(outstanding).unwrap() <= policy.first_sleep * 4);
        }
    }
}

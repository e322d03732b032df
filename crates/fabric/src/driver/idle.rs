//! When the thread stops spinning, and for how long.

use std::time::{Duration, Instant};

use crate::options::IdlePolicy;

/// With a descriptor for everything: how long a wait may last although nothing wakes it, for what
/// a provider might fail to announce.
const QUIET_WAIT: Duration = Duration::from_millis(500);
/// The same while transfers are outstanding.
const BUSY_WAIT: Duration = Duration::from_millis(10);
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
}

impl Idle {
    pub(crate) fn new(policy: IdlePolicy) -> Self {
        Self {
            policy,
            since: None,
            sleep: policy.first_sleep,
        }
    }

    /// Something happened.
    pub(crate) fn active(&mut self) {
        self.since = None;
        self.sleep = self.policy.first_sleep;
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

//! When the watcher looks at the counter again.
//!
//! It spins for a little while, then sleeps for a part of the time that nothing has moved: on a
//! machine with few cores a watcher that spins, or wakes every 50 µs, would take the engine's. With a
//! core to itself it takes nobody's, and spins while a step runs.

use std::time::Duration;

/// Looks without a sleep for so long after something moved.
const SPIN: Duration = Duration::from_micros(20);
/// The same while a step runs, on a core of its own. Bounded, since an engine that hangs in a step must
/// not heat a core for ever.
const STEP_SPIN: Duration = Duration::from_secs(1);
/// A sleep between looks is one part in so many of the time that nothing has moved, so that a layer is
/// seen late by at most that part of its own time.
const PART: u32 = 32;
/// The shortest and the longest such sleep.
const NAP: (Duration, Duration) = (Duration::from_micros(20), Duration::from_millis(1));
/// The longest sleep while nothing runs; an order ends it.
const REST: Duration = Duration::from_millis(500);

/// Whose core the thread runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Anybody's.
    Shared,
    /// Its own.
    Own,
}

/// What the thread waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Waiting {
    /// A step runs, so that the counter will move.
    pub(crate) step: bool,
    /// Something is kept that a fabric did not take yet.
    pub(crate) kept: bool,
}

/// What to do before the next look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Nothing.
    Now,
    /// Wait for an order, at most so long.
    Within(Duration),
}

impl Pace {
    /// Nothing has moved for `still`.
    pub(crate) fn look(self, waiting: Waiting, still: Duration) -> Look {
        if waiting == Waiting::default() {
            return Look::Within(REST);
        }
        let spin = match self {
            Self::Own if waiting.step => STEP_SPIN,
            Self::Own | Self::Shared => SPIN,
        };
        if still < spin {
            return Look::Now;
        }
        Look::Within((still / PART).clamp(NAP.0, NAP.1))
    }

    /// Between two looks without a sleep.
    pub(crate) fn spin(self) {
        match self {
            Self::Shared => std::hint::spin_loop(),
            // Half a microsecond on a core where nobody else is; where somebody is after all, such as
            // an engine that knows nothing of this, it is let in.
            Self::Own => std::thread::yield_now(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Waiting = Waiting {
        step: true,
        kept: false,
    };
    const KEPT: Waiting = Waiting {
        step: false,
        kept: true,
    };
    const LAYER: Duration = Duration::from_millis(10);

    #[test]
    fn on_a_shared_core_a_nap_is_a_part_of_the_stillness() {
        let look = |still| Pace::Shared.look(STEP, still);
        assert_eq!(look(Duration::ZERO), Look::Now);
        assert_eq!(look(SPIN), Look::Within(NAP.0));
        assert_eq!(look(LAYER), Look::Within(LAYER / PART));
        assert_eq!(look(Duration::from_secs(9)), Look::Within(NAP.1));
    }

    #[test]
    fn on_a_core_of_its_own_it_spins_while_a_step_runs_but_not_for_ever() {
        let look = |waiting, still| Pace::Own.look(waiting, still);
        assert_eq!(look(STEP, LAYER), Look::Now);
        assert_eq!(look(STEP, STEP_SPIN), Look::Within(NAP.1));
        assert_eq!(look(KEPT, LAYER), Look::Within(LAYER / PART));
    }

    #[test]
    fn where_nothing_is_awaited_it_waits_for_an_order() {
        for pace in [Pace::Shared, Pace::Own] {
            let look = pace.look(Waiting::default(), Duration::ZERO);
            assert_eq!(look, Look::Within(REST));
        }
    }
}

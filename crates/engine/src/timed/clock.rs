//! The time that a timed engine lives in.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Modelled time: it starts at zero and is what profiles speak of.
pub trait Clock: Send {
    /// What time it is.
    fn now(&self) -> Duration;

    /// Returns when that time has come.
    fn wait_until(&mut self, at: Duration);

    /// How much modelled time passes while a thread that overslept catches up; one that is later than
    /// that has lost the time.
    fn grace(&self) -> Duration;
}

/// The machine's clock, at another pace.
#[derive(Debug)]
pub struct WallClock {
    started: Instant,
    /// Seconds of the machine for one of the model.
    scale: f64,
    precise: bool,
}

/// An oversleeping thread is no more than that.
const GRACE: Duration = Duration::from_millis(100);

impl WallClock {
    /// A modelled second takes `scale` seconds.
    ///
    /// # Panics
    /// Where that is not positive: a [`JumpClock`] does not wait.
    #[must_use]
    pub fn scaled(scale: f64) -> Self {
        assert!(scale > 0.0 && scale.is_finite(), "a scale of {scale}");
        Self {
            started: Instant::now(),
            scale,
            precise: false,
        }
    }
}

impl Clock for WallClock {
    fn now(&self) -> Duration {
        self.started.elapsed().div_f64(self.scale)
    }

    fn wait_until(&mut self, at: Duration) {
        if !self.precise {
            // Sleeps of a thread may otherwise end 50 us late. Where the system refuses they do.
            let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
            self.precise = true;
        }
        let left = at
            .mul_f64(self.scale)
            .saturating_sub(self.started.elapsed());
        if !left.is_zero() {
            std::thread::sleep(left);
        }
    }

    fn grace(&self) -> Duration {
        GRACE.div_f64(self.scale)
    }
}

/// A clock that does not wait: what was waited for has come.
#[derive(Debug, Default)]
pub struct JumpClock(Elapsed);

/// The time of a [`JumpClock`], to be read elsewhere.
#[derive(Clone, Debug, Default)]
pub struct Elapsed(Arc<AtomicU64>);

impl Elapsed {
    /// How much modelled time has passed.
    #[must_use]
    pub fn get(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Acquire))
    }
}

impl JumpClock {
    /// Its time.
    #[must_use]
    pub fn elapsed(&self) -> Elapsed {
        self.0.clone()
    }
}

impl Clock for JumpClock {
    fn now(&self) -> Duration {
        self.0.get()
    }

    fn wait_until(&mut self, at: Duration) {
        let at = u64::try_from(at.as_nanos()).unwrap_or(u64::MAX);
        self.0.0.fetch_max(at, Ordering::AcqRel);
    }

    fn grace(&self) -> Duration {
        Duration::ZERO
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scaled_clock_waits_for_its_own_time() {
        let mut clock = WallClock::scaled(0.01);
        let began = Instant::now();
        clock.wait_until(Duration::from_secs(1));
        assert!(began.elapsed() >= Duration::from_millis(9));
        assert!(clock.now() >= Duration::from_secs(1));
        // What is past is not waited for.
        clock.wait_until(Duration::from_millis(1));
    }

    #[test]
    fn a_clock_that_jumps_never_goes_back() {
        let mut clock = JumpClock::default();
        let elapsed = clock.elapsed();
        clock.wait_until(Duration::from_secs(5));
        clock.wait_until(Duration::from_secs(3));
        assert_eq!(
            (clock.now(), elapsed.get()),
            (Duration::from_secs(5), clock.now())
        );
    }
}

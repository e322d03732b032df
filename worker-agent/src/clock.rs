//! The shell's clock for the core.

use tandem_core::Instant;

/// Counts from when it was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(tokio::time::Instant);

impl Clock {
    pub(crate) fn start() -> Self {
        Self(tokio::time::Instant::now())
    }

    pub(crate) fn now(&self) -> Instant {
        let nanos = self.0.elapsed().as_nanos();
        Instant::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// The same moment for a timer.
    pub(crate) fn timer(&self, at: Instant) -> tokio::time::Instant {
        self.0 + at.since(Instant::ZERO)
    }

    /// Waits until `at`; for ever where there is none.
    pub(crate) async fn sleep_until(&self, at: Option<Instant>) {
        match at {
            Some(at) => tokio::time::sleep_until(self.timer(at)).await,
            None => std::future::pending().await,
        }
    }
}

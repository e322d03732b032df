//! Tokio's clock in the core's terms.

use tandem_core::Instant;

/// When this process's time began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    origin: tokio::time::Instant,
}

impl Clock {
    /// Time begins.
    pub(crate) fn start() -> Self {
        Self {
            origin: tokio::time::Instant::now(),
        }
    }

    /// Now, for the core.
    pub(crate) fn now(self) -> Instant {
        self.core(tokio::time::Instant::now())
    }

    /// A moment, for the core.
    pub(crate) fn core(self, moment: tokio::time::Instant) -> Instant {
        let nanos = moment.saturating_duration_since(self.origin).as_nanos();
        Instant::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// A moment of the core's, for tokio.
    pub(crate) fn tokio(self, moment: Instant) -> tokio::time::Instant {
        self.origin + moment.since(Instant::ZERO)
    }
}

//! What the thread and its handles both hold.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::credit::Credits;
use crate::stats::{FabricStats, NicStats};
use crate::wake::Wake;

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) stats: FabricStats,
    /// In the order of the NICs.
    pub(crate) nics: Vec<NicStats>,
    pub(crate) credits: Credits,
    pub(crate) wake: Wake,
    pub(crate) pulse: Pulse,
}

/// When the thread was last seen outside libfabric.
#[derive(Debug)]
pub(crate) struct Pulse {
    start: Instant,
    last_ms: AtomicU64,
}

impl Pulse {
    pub(crate) fn new() -> Self {
        Self {
            start: Instant::now(),
            last_ms: AtomicU64::new(0),
        }
    }

    pub(crate) fn beat(&self) {
        self.last_ms
            .store(self.start.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    pub(crate) fn silent_for(&self) -> Duration {
        let last = Duration::from_millis(self.last_ms.load(Ordering::Relaxed));
        self.start.elapsed().saturating_sub(last)
    }
}

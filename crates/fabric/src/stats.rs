//! Counters of one fabric, written by its thread and read by anyone.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[doc = $doc:expr])* $name:ident),* $(,)?) => {
        /// Live counters. Only ever grow; each is read on its own, without a common instant.
        #[derive(Debug, Default)]
        pub struct FabricStats { $($(#[doc = $doc])* pub $name: Counter,)* }

        impl FabricStats {
            /// All of them, with their names, for metrics.
            #[must_use]
            pub fn all(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.get())),*]
            }
        }
    };
}

counters! {
    /// Writes handed to libfabric.
    writes_posted,
    /// Bytes of them.
    bytes_posted,
    /// Writes that completed well.
    writes_completed,
    /// Writes that completed in error.
    writes_failed,
    /// Writes refused before posting: out of range, or of a flow that had ended or stopped.
    writes_refused,
    /// Times that libfabric answered `FI_EAGAIN` to a write.
    posts_again,
    /// Immediates that counted.
    immediates,
    /// Immediates that belonged to no waiting flow.
    immediates_stale,
    /// Error entries of completion queues that belong to no write of this process.
    foreign_errors,
    /// Entries whose context is none that was given out, or is not in flight.
    unknown_contexts,
    /// Events of the event queue.
    queue_events,
    /// Slots released that were not armed.
    bad_releases,
    /// Times that the thread went to wait.
    waits,
}

/// What one NIC has posted.
#[derive(Debug, Default)]
pub struct NicStats {
    /// Writes.
    pub writes: Counter,
    /// Bytes of them.
    pub bytes: Counter,
}

/// One counter.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Its value.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, n: u64) {
        // One writer: a load and a store are cheaper than a locked addition.
        self.0.store(self.get().wrapping_add(n), Ordering::Relaxed);
    }
}

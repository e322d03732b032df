//! Room in the thread's queues, per transfer, so that one that is stuck holds up no other.

use std::sync::atomic::{AtomicU32, Ordering};

use tandem_core::TransferId;

/// Writes that one transfer may have queued and not yet posted.
pub const QUEUED_WRITES: u32 = 1024;
const BUCKETS: usize = 256;

/// Counts queued writes by transfer. Transfers whose ids agree modulo 256 share a count, which
/// costs them room and nothing else. Bounds all queues to 256 × [`QUEUED_WRITES`] writes.
#[derive(Debug)]
pub(crate) struct Credits([AtomicU32; BUCKETS]);

impl Credits {
    pub(crate) fn new() -> Self {
        Self([const { AtomicU32::new(0) }; BUCKETS])
    }

    /// Takes room for a write; false where there is none.
    pub(crate) fn take(&self, transfer: TransferId) -> bool {
        let bucket = self.bucket(transfer);
        if bucket.fetch_add(1, Ordering::Relaxed) < QUEUED_WRITES {
            return true;
        }
        bucket.fetch_sub(1, Ordering::Relaxed);
        false
    }

    /// A write left the queue.
    pub(crate) fn give_back(&self, transfer: TransferId) {
        let before = self.bucket(transfer).fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "more credit than was taken");
    }

    fn bucket(&self, transfer: TransferId) -> &AtomicU32 {
        &self.0[transfer.0 as usize % BUCKETS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stuck_transfer_holds_up_no_other() {
        let credits = Credits::new();
        for _ in 0..QUEUED_WRITES {
            assert!(credits.take(TransferId(1)));
        }
        assert!(!credits.take(TransferId(1)));
        assert!(credits.take(TransferId(2)));
        credits.give_back(TransferId(1));
        assert!(credits.take(TransferId(1)));
    }
}

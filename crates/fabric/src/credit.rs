//! Room in the thread's queues, per flow, so that one that is stuck holds up no other.

use std::sync::atomic::{AtomicU32, Ordering};

use tandem_core::FlowId;

/// Writes that one flow may have queued and not yet posted.
pub const QUEUED_WRITES: u32 = 1024;
const BUCKETS: usize = 256;

/// Counts queued writes by flow. Flows whose ids agree modulo 256 share a count, which
/// costs them room and nothing else. Bounds all queues to 256 × [`QUEUED_WRITES`] writes.
#[derive(Debug)]
pub(crate) struct Credits([AtomicU32; BUCKETS]);

impl Credits {
    pub(crate) fn new() -> Self {
        Self([const { AtomicU32::new(0) }; BUCKETS])
    }

    /// Takes room for a write; false where there is none.
    pub(crate) fn take(&self, flow: FlowId) -> bool {
        let bucket = self.bucket(flow);
        if bucket.fetch_add(1, Ordering::Relaxed) < QUEUED_WRITES {
            return true;
        }
        bucket.fetch_sub(1, Ordering::Relaxed);
        false
    }

    /// Takes room for up to `wanted` writes; returns for how many.
    pub(crate) fn take_some(&self, flow: FlowId, wanted: u32) -> u32 {
        let bucket = self.bucket(flow);
        let taken = wanted.min(QUEUED_WRITES);
        let before = bucket.fetch_add(taken, Ordering::Relaxed);
        let room = QUEUED_WRITES.saturating_sub(before).min(taken);
        if room < taken {
            bucket.fetch_sub(taken - room, Ordering::Relaxed);
        }
        room
    }

    /// A write left the queue.
    pub(crate) fn give_back(&self, flow: FlowId) {
        let before = self.bucket(flow).fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "more credit than was taken");
    }

    /// Room that was taken for writes which were not queued.
    pub(crate) fn give_back_some(&self, flow: FlowId, writes: usize) {
        if writes > 0 {
            let before = self
                .bucket(flow)
                .fetch_sub(writes as u32, Ordering::Relaxed);
            assert!(before as usize >= writes, "more credit than was taken");
        }
    }

    fn bucket(&self, flow: FlowId) -> &AtomicU32 {
        &self.0[flow.0 as usize % BUCKETS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stuck_flow_holds_up_no_other() {
        let credits = Credits::new();
        for _ in 0..QUEUED_WRITES {
            assert!(credits.take(FlowId(1)));
        }
        assert!(!credits.take(FlowId(1)));
        assert!(credits.take(FlowId(2)));
        credits.give_back(FlowId(1));
        assert!(credits.take(FlowId(1)));
    }

    #[test]
    fn as_many_are_taken_as_there_is_room_for() {
        let credits = Credits::new();
        assert_eq!(credits.take_some(FlowId(1), 1000), 1000);
        assert_eq!(credits.take_some(FlowId(1), 1000), QUEUED_WRITES - 1000);
        assert_eq!(credits.take_some(FlowId(1), 1), 0);
        assert_eq!(credits.take_some(FlowId(2), 1 << 20), QUEUED_WRITES);
        credits.give_back(FlowId(1));
        assert_eq!(credits.take_some(FlowId(1), 2), 1);
    }
}

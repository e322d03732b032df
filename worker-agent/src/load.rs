//! What a worker reports of itself.

use std::sync::Mutex;

use tandem_core::lease::PageState;
use tandem_core::pool::PageCounts;
use tandem_fabric::{Counter, FabricStats};
use tandem_wire::proto;
use tokio::sync::watch;

use crate::start::Facts;

/// The figures that the worker's task last published.
#[derive(Debug)]
pub(crate) struct Gauges {
    latest: watch::Sender<Figures>,
    sequence: Mutex<u64>,
}

/// A task's figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    pub(crate) pages: PageCounts,
    pub(crate) queued_requests: u32,
    pub(crate) queued_prompt_tokens: u64,
    pub(crate) running: u32,
    pub(crate) requests: u32,
    pub(crate) transfers_completed: u64,
    pub(crate) transfers_failed: u64,
    pub(crate) fences: u64,
    pub(crate) prompt_tokens: u64,
    pub(crate) generated_tokens: u64,
    pub(crate) compute_us: u64,
    pub(crate) exposed_us: u64,
    pub(crate) cached_tokens: u64,
    pub(crate) proposed_tokens: u64,
    pub(crate) accepted_tokens: u64,
    pub(crate) prefill_ns_per_token: Fading,
    pub(crate) decode_step_us: Fading,
    pub(crate) stopping: bool,
}

/// A measured time, of which the latest measurements count most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fading(u32);

impl Fading {
    /// Of a later measurement this part is taken: one in so many.
    const SHARE: i64 = 8;

    /// It was measured again; 0 tells nothing.
    pub(crate) fn measure(&mut self, value: u64) {
        let value = u32::try_from(value).unwrap_or(u32::MAX);
        let step = (i64::from(value) - i64::from(self.0)) / Self::SHARE;
        self.0 = match (self.0, value) {
            (own, 0) => own,
            (0, value) => value,
            (own, _) => u32::try_from(i64::from(own) + step).unwrap_or(own),
        };
    }
}

impl Gauges {
    pub(crate) fn new() -> Self {
        Self {
            latest: watch::Sender::new(Figures::default()),
            sequence: Mutex::new(0),
        }
    }

    /// Wakes those who report, where something has changed.
    pub(crate) fn publish(&self, figures: Figures) {
        self.latest.send_if_modified(|latest| {
            let changed = *latest != figures;
            *latest = figures;
            changed
        });
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<Figures> {
        self.latest.subscribe()
    }

    /// A report, later than all before it.
    pub(crate) fn report(&self, facts: &Facts) -> proto::Load {
        let fabrics = facts.fabrics.as_ref();
        let mut sequence = self.sequence.lock().unwrap_or_else(|e| e.into_inner());
        *sequence += 1;
        let f = *self.latest.borrow();
        let pages = |state| f.pages.of(state);
        let stat = |counter: fn(&FabricStats) -> &Counter| {
            fabrics.map_or(0, |fabrics| fabrics.sum(counter))
        };
        proto::Load {
            sequence: *sequence,
            pages: Some(proto::Pages {
                total: f.pages.total(),
                free: f.pages.free(),
                cached: pages(PageState::Cached),
                leased: pages(PageState::Leased),
                exposed: pages(PageState::Exposed),
                ready: pages(PageState::Ready),
                active: pages(PageState::Active),
                draining: pages(PageState::Draining),
                quarantined: pages(PageState::Quarantined),
            }),
            queued_requests: f.queued_requests,
            queued_prompt_tokens: f.queued_prompt_tokens,
            running: f.running,
            requests: f.requests,
            figures: Some(proto::Figures {
                transfers_completed: f.transfers_completed,
                transfers_failed: f.transfers_failed,
                writes_posted: stat(|s| &s.writes_posted),
                bytes_pushed: stat(|s| &s.bytes_posted),
                immediates_counted: stat(|s| &s.immediates),
                immediates_stale: stat(|s| &s.immediates_stale),
                fences: f.fences,
                prompt_tokens: f.prompt_tokens,
                generated_tokens: f.generated_tokens,
                compute_us: f.compute_us,
                exposed_us: f.exposed_us,
                cached_tokens: f.cached_tokens,
                proposed_tokens: f.proposed_tokens,
                accepted_tokens: f.accepted_tokens,
                telemetry_dropped: facts.spans.dropped(),
            }),
            stopping: f.stopping,
            prefill_ns_per_token: f.prefill_ns_per_token.0,
            decode_step_us: f.decode_step_us.0,
            certificate_expiry: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measured_time_follows_the_latest_measurements() {
        let mut time = Fading::default();
        time.measure(0);
        assert_eq!(time.0, 0);
        time.measure(800);
        assert_eq!(time.0, 800, "the first one stands alone");
        time.measure(1600);
        assert_eq!(time.0, 900);
        for _ in 0..100 {
            time.measure(100);
        }
        assert!((100..120).contains(&time.0), "{}", time.0);
        time.measure(u64::MAX);
        assert!(time.0 > 500_000_000);
    }
}

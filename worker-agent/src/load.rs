//! What a worker reports of itself.

use std::sync::Mutex;

use tandem_core::lease::PageState;
use tandem_core::pool::PageCounts;
use tandem_core::step_times::Fading;
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
            prefill_ns_per_token: f.prefill_ns_per_token.get(),
            decode_step_us: f.decode_step_us.get(),
            certificate_expiry: 0,
        }
    }
}

//! What a run shows while it goes on, and how it is stopped.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Instant;

use tokio::sync::watch;

use super::recent::{Lately, Recent};
use crate::results::RunEnd;

/// One run's counters.
#[derive(Debug)]
pub struct Live {
    pub(super) counters: Counters,
    started: OnceLock<Instant>,
    stop: watch::Sender<Option<RunEnd>>,
    unconnected: AtomicU32,
    /// Only where somebody follows.
    recent: OnceLock<Mutex<Recent>>,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) sent: AtomicU64,
    pub(super) in_flight: AtomicU64,
    pub(super) peak_in_flight: AtomicU64,
    pub(super) answered: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) events: AtomicU64,
}

/// The counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Glance {
    /// Requests sent.
    pub sent: u64,
    /// Requests (or sessions) under way.
    pub in_flight: u64,
    /// Requests with a whole answer.
    pub answered: u64,
    /// Requests that ended otherwise.
    pub failed: u64,
    /// Events with tokens.
    pub events: u64,
}

/// So many connections failed in a row: nobody is there.
const GONE: u32 = 64;

impl Default for Live {
    fn default() -> Self {
        Self {
            counters: Counters::default(),
            started: OnceLock::new(),
            stop: watch::Sender::new(None),
            unconnected: AtomicU32::new(0),
            recent: OnceLock::new(),
        }
    }
}

impl Live {
    /// Ends the run: nothing more is sent, and what is under way is cut.
    pub fn stop(&self) {
        self.end(RunEnd::Interrupted);
    }

    /// When it started; `None` before.
    #[must_use]
    pub fn started(&self) -> Option<Instant> {
        self.started.get().copied()
    }

    /// The counters now.
    #[must_use]
    pub fn glance(&self) -> Glance {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Glance {
            sent: read(&self.counters.sent),
            in_flight: read(&self.counters.in_flight),
            answered: read(&self.counters.answered),
            failed: read(&self.counters.failed),
            events: read(&self.counters.events),
        }
    }

    /// Keeps what [`Live::lately`] tells from now on; costs a lock for each request and its first token.
    pub fn follow(&self) {
        self.recent.get_or_init(Mutex::default);
    }

    /// What happened in the last ten seconds; `None` before the start, and where nobody follows.
    #[must_use]
    pub fn lately(&self) -> Option<Lately> {
        let now_s = self.started()?.elapsed().as_secs_f64();
        let recent = self.recent.get()?;
        let recent = recent.lock().unwrap_or_else(PoisonError::into_inner);
        Some(recent.until(now_s))
    }

    /// Most requests (or sessions) that were under way at a time.
    #[must_use]
    pub fn peak_in_flight(&self) -> u64 {
        self.counters.peak_in_flight.load(Ordering::Relaxed)
    }

    /// Takes a note for who follows.
    pub(super) fn note(&self, what: impl FnOnce(&mut Lately)) {
        if let (Some(recent), Some(started)) = (self.recent.get(), self.started()) {
            let mut recent = recent.lock().unwrap_or_else(PoisonError::into_inner);
            what(recent.at(started.elapsed().as_secs()));
        }
    }

    pub(super) fn start(&self) -> Instant {
        *self.started.get_or_init(Instant::now)
    }

    pub(super) fn end(&self, why: RunEnd) {
        self.stop.send_if_modified(|end| {
            let first = end.is_none();
            end.get_or_insert(why);
            first
        });
    }

    /// Why it was stopped, where it was.
    pub(super) fn stopped(&self) -> Option<RunEnd> {
        *self.stop.borrow()
    }

    /// Resolves when it is stopped.
    pub(super) async fn until_stopped(&self) {
        // The sender lives as long as this.
        let _ = self.stop.subscribe().wait_for(Option::is_some).await;
    }

    /// Takes note of whether a connection came to be.
    pub(super) fn connected(&self, there: bool) {
        if there {
            self.unconnected.store(0, Ordering::Relaxed);
        } else if self.unconnected.fetch_add(1, Ordering::Relaxed) + 1 >= GONE {
            self.end(RunEnd::ServerGone);
        }
    }

    /// Whether the last connection that was tried did not come to be.
    pub(crate) fn is_unconnected(&self) -> bool {
        self.unconnected.load(Ordering::Relaxed) > 0
    }

    pub(super) fn enter(&self) {
        let now = self.counters.in_flight.fetch_add(1, Ordering::Relaxed) + 1;
        self.counters
            .peak_in_flight
            .fetch_max(now, Ordering::Relaxed);
    }

    pub(super) fn leave(&self) {
        self.counters.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_that_fail_in_a_row_end_the_run_and_one_that_comes_to_be_begins_anew() {
        let live = Live::default();
        for _ in 0..GONE - 1 {
            live.connected(false);
        }
        live.connected(true);
        live.connected(false);
        assert_eq!(live.stopped(), None);
        for _ in 0..GONE {
            live.connected(false);
        }
        assert_eq!(live.stopped(), Some(RunEnd::ServerGone));
        live.stop();
        assert_eq!(
            live.stopped(),
            Some(RunEnd::ServerGone),
            "the first reason stays"
        );
    }
}

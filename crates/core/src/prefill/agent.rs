//! The prefill agent's rules.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::{Input, Output, PrefillLimits, TransferEnd};
use crate::decode::Refusal;
use crate::lease::{Active, Lease, PageState};
use crate::pool::{NoLease, PageCounts, PagePool};
use crate::{Instant, SequenceId, TransferId};

/// Every transfer of one prefill worker.
#[derive(Debug)]
pub struct PrefillAgent {
    limits: PrefillLimits,
    pool: PagePool,
    /// Transfers that wait for source pages, oldest first.
    queue: VecDeque<Waiting>,
    transfers: BTreeMap<TransferId, Transfer>,
    next_sequence: u64,
    stopping: bool,
    outputs: VecDeque<Output>,
}

#[derive(Debug)]
struct Waiting {
    transfer: TransferId,
    tokens: u32,
    deadline: Instant,
}

#[derive(Debug)]
struct Transfer {
    lease: Lease<Active>,
    tokens: u32,
    deadline: Instant,
    sequence: SequenceId,
    stage: Stage,
    /// Whether the engine may still touch the pages.
    engine: bool,
    /// Set once it shall end before its time.
    ending: Option<TransferEnd>,
    /// Whether bytes may be on their way that nobody acknowledged.
    unsettled: bool,
    /// When its endpoint is closed, to end writes that do not complete.
    close_by: Option<Instant>,
}

/// Who may still post or complete writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The way is being opened.
    Opening,
    /// The watcher hands out writes.
    Pushing,
    /// The watcher was asked to stop.
    StoppingWatch,
    /// The fabric was asked to stop.
    StoppingWrites,
    /// Nobody.
    Drained,
}

impl PrefillAgent {
    /// An agent with all its pages free.
    #[must_use]
    pub fn new(limits: PrefillLimits) -> Self {
        Self {
            limits,
            pool: PagePool::new(limits.pages),
            queue: VecDeque::new(),
            transfers: BTreeMap::new(),
            next_sequence: 1,
            stopping: false,
            outputs: VecDeque::new(),
        }
    }

    /// Pages in each state.
    #[must_use]
    pub const fn pages(&self) -> PageCounts {
        self.pool.counts()
    }

    /// Transfers that wait for pages.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Transfers in flight or waiting.
    #[must_use]
    pub fn transfers(&self) -> usize {
        self.queue.len() + self.transfers.len()
    }

    /// Prompt tokens of transfers whose prompt is not computed yet.
    #[must_use]
    pub fn queued_tokens(&self) -> u64 {
        let waiting = self.queue.iter().map(|w| u64::from(w.tokens));
        let running = self
            .transfers
            .values()
            .filter(|t| t.engine)
            .map(|t| u64::from(t.tokens));
        waiting.chain(running).sum()
    }

    /// Takes no new transfers from now on.
    pub fn stop(&mut self) {
        self.stopping = true;
    }

    /// The next thing to do.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When to send [`Input::Tick`] at the latest.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let waiting = self.queue.iter().map(|w| w.deadline);
        let running = self.transfers.values().filter_map(Transfer::wake_at);
        waiting.chain(running).min()
    }

    /// Something happened. What comes late, for a transfer that has ended, is ignored.
    pub fn handle(&mut self, now: Instant, input: Input) {
        match input {
            Input::Dispatch {
                transfer,
                tokens,
                deadline,
            } => {
                self.dispatch(transfer, tokens, deadline);
            }
            Input::Opened { transfer } => self.opened(now, transfer),
            Input::NotOpened { transfer, reason } => {
                if let Some(t) = self.transfers.get_mut(&transfer) {
                    t.stage = Stage::Drained;
                    t.engine = false;
                    t.ending.get_or_insert(TransferEnd::Failed(reason));
                }
                self.settle(transfer);
            }
            Input::SequenceEnded { transfer, how } => self.sequence_ended(now, transfer, how),
            Input::WatchStopped { transfer } => self.watch_stopped(transfer),
            Input::Drained {
                transfer,
                complete,
                settled,
                error,
            } => {
                if !settled && let Some(t) = self.transfers.get_mut(&transfer) {
                    t.unsettled = true;
                }
                self.drained(now, transfer, complete, error);
            }
            Input::Cancel { transfer } => self.end_early(now, transfer, TransferEnd::Drained),
            Input::PeerLost { transfer } => {
                let how = TransferEnd::Failed("the decode worker was lost".into());
                self.end_early(now, transfer, how);
            }
            Input::Tick => self.tick(now),
        }
        self.start_waiting();
    }

    fn dispatch(&mut self, transfer: TransferId, tokens: u32, deadline: Instant) {
        assert!(tokens >= 2, "a prompt of one token needs no prefill");
        let pages = self.limits.geometry.pages_for(tokens as usize - 1) as u32;
        let why = if self.stopping {
            Some(Refusal::Stopping)
        } else if pages > self.pool.total() {
            Some(
                NoLease::NeverFits {
                    asked: pages,
                    total: self.pool.total(),
                }
                .into(),
            )
        } else if self.queue.len() >= self.limits.queue {
            Some(Refusal::Busy(format!(
                "{} prompts are waiting",
                self.queue.len()
            )))
        } else {
            None
        };
        if let Some(why) = why {
            self.outputs.push_back(Output::Refuse { transfer, why });
            return;
        }
        self.queue.push_back(Waiting {
            transfer,
            tokens,
            deadline,
        });
        self.outputs.push_back(Output::Accept { transfer });
    }

    /// Leases pages for waiting transfers, the oldest first.
    fn start_waiting(&mut self) {
        while let Some(next) = self.queue.front() {
            let pages = self.limits.geometry.pages_for(next.tokens as usize - 1) as u32;
            let Ok(lease) = self.pool.lease(pages) else {
                return;
            };
            let Some(Waiting {
                transfer,
                tokens,
                deadline,
            }) = self.queue.pop_front()
            else {
                return self.pool.free_leased(lease);
            };
            let lease = self.pool.activate_unexposed(lease);
            let sequence = SequenceId(self.next_sequence);
            self.next_sequence += 1;
            let pages = Arc::clone(lease.pages());
            self.outputs.push_back(Output::Open {
                transfer,
                sequence,
                pages,
            });
            let entry = Transfer {
                lease,
                tokens,
                deadline,
                sequence,
                stage: Stage::Opening,
                engine: false,
                ending: None,
                unsettled: false,
                close_by: None,
            };
            let old = self.transfers.insert(transfer, entry);
            assert!(old.is_none(), "transfer ids are never used twice");
        }
    }

    fn opened(&mut self, now: Instant, id: TransferId) {
        let Some(t) = self.transfers.get_mut(&id) else {
            return;
        };
        if t.stage != Stage::Opening {
            return;
        }
        if let Some(how) = t.ending.take() {
            t.stage = Stage::Pushing;
            return self.end_early(now, id, how);
        }
        t.stage = Stage::Pushing;
        t.engine = true;
        let pages = Arc::clone(t.lease.pages());
        self.outputs.push_back(Output::Prefill {
            transfer: id,
            sequence: t.sequence,
            pages,
        });
    }

    fn sequence_ended(&mut self, now: Instant, id: TransferId, how: Result<(), String>) {
        let Some(t) = self.transfers.get_mut(&id) else {
            return;
        };
        t.engine = false;
        match how {
            Ok(()) => {}
            Err(why) => {
                let how = TransferEnd::Failed(format!("the engine failed: {why}"));
                self.end_early(now, id, how);
            }
        }
        self.settle(id);
    }

    fn watch_stopped(&mut self, id: TransferId) {
        let Some(t) = self.transfers.get_mut(&id) else {
            return;
        };
        if t.stage == Stage::StoppingWatch {
            t.stage = Stage::StoppingWrites;
            self.outputs.push_back(Output::StopWrites { transfer: id });
        }
    }

    fn drained(&mut self, now: Instant, id: TransferId, complete: bool, error: Option<String>) {
        let Some(t) = self.transfers.get_mut(&id) else {
            return;
        };
        t.stage = Stage::Drained;
        t.close_by = None;
        if !complete {
            let why = error.unwrap_or_else(|| "a write failed".into());
            self.end_early(now, id, TransferEnd::Failed(why));
        }
        self.settle(id);
    }

    /// Ends a transfer before its time: whoever may still touch its pages is asked to let go.
    fn end_early(&mut self, now: Instant, id: TransferId, how: TransferEnd) {
        if let Some(at) = self.queue.iter().position(|w| w.transfer == id) {
            self.queue.remove(at);
            self.outputs.push_back(Output::End { transfer: id, how });
            return;
        }
        let Some(t) = self.transfers.get_mut(&id) else {
            return;
        };
        if t.ending.is_some() {
            return;
        }
        t.ending = Some(how);
        if t.engine {
            self.outputs.push_back(Output::CancelSequence {
                sequence: t.sequence,
            });
        }
        if t.stage == Stage::Pushing {
            t.stage = Stage::StoppingWatch;
            t.close_by = Some(now + self.limits.drain_timeout);
            self.outputs.push_back(Output::StopWatch { transfer: id });
        }
        self.settle(id);
    }

    fn settle(&mut self, id: TransferId) {
        let Some(t) = self.transfers.get(&id) else {
            return;
        };
        if t.engine || t.stage != Stage::Drained {
            return;
        }
        let Some(t) = self.transfers.remove(&id) else {
            return;
        };
        self.pool.free_active(t.lease);
        let how = match t.ending {
            None => TransferEnd::Done,
            Some(TransferEnd::Failed(why)) if t.unsettled => TransferEnd::Unsettled(why),
            Some(_) if t.unsettled => TransferEnd::Unsettled("writes broke off".into()),
            Some(how) => how,
        };
        self.outputs.push_back(Output::End { transfer: id, how });
        if self.transfers.is_empty() {
            assert_eq!(
                self.pages().of(PageState::Free),
                self.pool.total(),
                "no page was lost"
            );
        }
    }

    fn tick(&mut self, now: Instant) {
        let waiting = self
            .queue
            .iter()
            .filter(|w| w.deadline <= now)
            .map(|w| w.transfer);
        let late = |t: &Transfer| t.ending.is_none() && t.deadline <= now;
        let running = self
            .transfers
            .iter()
            .filter(|(_, t)| late(t))
            .map(|(id, _)| *id);
        let late: Vec<TransferId> = waiting.chain(running).collect();
        for id in late {
            let how =
                TransferEnd::Failed("the deadline passed while the prompt was computed".into());
            self.end_early(now, id, how);
        }
        for (id, t) in &mut self.transfers {
            if t.close_by.is_some_and(|at| at <= now) {
                t.close_by = None;
                self.outputs.push_back(Output::Close { transfer: *id });
            }
        }
    }
}

impl Transfer {
    fn wake_at(&self) -> Option<Instant> {
        let deadline = self.ending.is_none().then_some(self.deadline);
        [deadline, self.close_by].into_iter().flatten().min()
    }
}

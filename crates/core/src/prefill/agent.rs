//! The prefill agent's rules: how a prompt gets its pages and comes to be pushed.

mod ending;
mod transfer;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::{Input, Output, PrefillLimits, TransferEnd};
use crate::decode::Refusal;
use crate::pool::{NoLease, PageCounts, PagePool};
use crate::{FlowId, Instant, SequenceId, TransferId};
use transfer::{PeerState, Source, Stage, Transfer, Unsettled, Waiting};

/// Every transfer of one prefill worker.
#[derive(Debug)]
#[cfg_attr(feature = "explore", derive(Clone, PartialEq, Eq, Hash))]
pub struct PrefillAgent {
    limits: PrefillLimits,
    pool: PagePool,
    /// Transfers that wait for source pages, oldest first.
    queue: VecDeque<Waiting>,
    transfers: BTreeMap<TransferId, Transfer>,
    /// Transfers that have ended while a lost reader may still read their pages.
    unsettled: BTreeMap<TransferId, Unsettled>,
    /// Which transfer each open flow is of.
    flows: BTreeMap<FlowId, TransferId>,
    next_sequence: u64,
    next_flow: u64,
    stopping: bool,
    outputs: VecDeque<Output>,
}

impl PrefillAgent {
    /// An agent with all its pages free.
    #[must_use]
    pub fn new(limits: PrefillLimits) -> Self {
        Self {
            pool: PagePool::new(limits.layout.pages()),
            limits,
            queue: VecDeque::new(),
            transfers: BTreeMap::new(),
            unsettled: BTreeMap::new(),
            flows: BTreeMap::new(),
            next_sequence: 1,
            next_flow: 1,
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
        self.queue.len() + self.transfers.len() + self.unsettled.len()
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
                blocks,
                flows,
                deadline,
            } => {
                let waiting = Waiting {
                    transfer,
                    tokens,
                    blocks,
                    flows,
                    deadline,
                };
                self.dispatch(waiting);
            }
            Input::Opened { transfer } => self.opened(now, transfer),
            Input::NotOpened { transfer, reason } => self.not_opened(transfer, reason),
            Input::SequenceEnded { transfer, how } => self.sequence_ended(now, transfer, how),
            Input::WatchStopped { transfer } => self.watch_stopped(transfer),
            Input::Drained {
                flow,
                complete,
                settled,
                error,
            } => self.drained(now, flow, complete, settled, error),
            Input::Cancel { transfer } => self.end_early(now, transfer, TransferEnd::Drained),
            Input::PeerLost { transfer } => self.peer_gone(now, transfer, PeerState::Lost),
            Input::PeerEnded { transfer } => self.peer_gone(now, transfer, PeerState::Ended),
            Input::Fenced { transfer } => self.free_unsettled(transfer),
            Input::Tick => self.tick(now),
        }
        self.start_waiting();
        let changes = self.pool.take_changes().into_iter();
        self.outputs.extend(changes.map(Output::Cache));
    }

    fn dispatch(&mut self, waiting: Waiting) {
        let transfer = waiting.transfer;
        assert!(
            waiting.tokens >= 2,
            "a prompt of one token needs no prefill"
        );
        assert!(waiting.flows >= 1, "a transfer flows somewhere");
        let pages = self.pages_for(&waiting);
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
        self.queue.push_back(waiting);
        self.outputs.push_back(Output::Accept { transfer });
    }

    fn pages_for(&self, waiting: &Waiting) -> u32 {
        let geometry = self.limits.layout.geometry();
        geometry.pages_for(waiting.tokens as usize - 1) as u32
    }

    /// Leases pages for waiting transfers, the oldest first.
    fn start_waiting(&mut self) {
        while let Some(next) = self.queue.front() {
            // A step must run, since its progress is what pushes the pages: at least the last token
            // that is wanted is computed again.
            let page = usize::from(self.limits.layout.geometry().page_tokens);
            let reusable = (next.tokens as usize - 2) / page;
            let blocks = Arc::clone(&next.blocks);
            let pages = self.pages_for(next);
            let prefix = self.pool.hold(&blocks[..reusable.min(blocks.len())]);
            let missing = pages - prefix.pages().len() as u32;
            let lease = match self.pool.lease(missing) {
                Ok(lease) => lease,
                Err(_) => return self.pool.let_go(prefix),
            };
            let Some(Waiting {
                transfer,
                tokens,
                flows,
                deadline,
                ..
            }) = self.queue.pop_front()
            else {
                self.pool.let_go(prefix);
                return self.pool.free_leased(lease);
            };
            let lease = self.pool.activate_unexposed(lease);
            let sequence = SequenceId(self.next_sequence);
            self.next_sequence += 1;
            let source = Source { prefix, lease };
            let pages = source.pages();
            let flows = self.name_flows(transfer, flows);
            self.outputs.push_back(Output::Open {
                transfer,
                sequence,
                pages,
                flows: Arc::clone(&flows),
                cached: (source.prefix.pages().len() * page) as u32,
            });
            let entry = Transfer {
                source,
                blocks,
                tokens,
                deadline,
                sequence,
                stage: Stage::Opening,
                flows: flows.iter().copied().collect(),
                engine: false,
                ending: None,
                unsettled: false,
                peer: PeerState::There,
                close_by: None,
            };
            let old = self.transfers.insert(transfer, entry);
            assert!(old.is_none(), "transfer ids are never used twice");
        }
    }

    fn name_flows(&mut self, transfer: TransferId, count: u16) -> Arc<[FlowId]> {
        let first = self.next_flow;
        self.next_flow += u64::from(count);
        let flows: Arc<[FlowId]> = (first..self.next_flow).map(FlowId).collect();
        self.flows.extend(flows.iter().map(|f| (*f, transfer)));
        flows
    }

    fn not_opened(&mut self, id: TransferId, reason: String) {
        if let Some(t) = self.transfers.get_mut(&id) {
            t.stage = Stage::Drained;
            t.engine = false;
            t.ending.get_or_insert(TransferEnd::Failed(reason));
            for flow in std::mem::take(&mut t.flows) {
                self.flows.remove(&flow);
            }
        }
        self.settle(id);
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
        let page = usize::from(self.limits.layout.geometry().page_tokens);
        self.outputs.push_back(Output::Prefill {
            transfer: id,
            sequence: t.sequence,
            pages: t.source.pages(),
            cached: (t.source.prefix.pages().len() * page) as u32,
        });
    }

    fn sequence_ended(&mut self, now: Instant, id: TransferId, how: Result<(), String>) {
        let Some(t) = self.transfers.get_mut(&id) else {
            return;
        };
        t.engine = false;
        match how {
            Ok(()) => {
                let known = t.source.prefix.pages().len();
                let fresh = t.blocks.get(known..).unwrap_or_default();
                self.pool.publish(&t.source.lease, fresh);
            }
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
            let stop = |flow: &FlowId| Output::StopWrites {
                transfer: id,
                flow: *flow,
            };
            self.outputs.extend(t.flows.iter().map(stop));
            self.all_drained(id);
        }
    }
}

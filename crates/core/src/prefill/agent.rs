//! The prefill agent's rules.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::{Input, Output, PrefillLimits, TransferEnd};
use crate::blocks::BlockHash;
use crate::decode::Refusal;
use crate::lease::{Active, Lease};
use crate::pool::{NoLease, PageCounts, PagePool, Prefix};
use crate::{FlowId, Instant, PageIndex, SequenceId, TransferId};

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

#[derive(Debug)]
#[cfg_attr(feature = "explore", derive(Clone, PartialEq, Eq, Hash))]
struct Waiting {
    transfer: TransferId,
    tokens: u32,
    blocks: Arc<[BlockHash]>,
    flows: u16,
    deadline: Instant,
}

/// The pages that a transfer reads.
#[derive(Debug)]
#[cfg_attr(feature = "explore", derive(Clone, PartialEq, Eq, Hash))]
struct Source {
    prefix: Prefix,
    lease: Lease<Active>,
}

#[derive(Debug)]
#[cfg_attr(feature = "explore", derive(Clone, PartialEq, Eq, Hash))]
struct Transfer {
    source: Source,
    /// Whole blocks of what is computed.
    blocks: Arc<[BlockHash]>,
    tokens: u32,
    deadline: Instant,
    sequence: SequenceId,
    stage: Stage,
    /// Flows that have not drained.
    flows: BTreeSet<FlowId>,
    /// Whether the engine may still touch the pages.
    engine: bool,
    /// Set once it shall end before its time.
    ending: Option<TransferEnd>,
    /// Whether bytes may be on their way that nobody acknowledged.
    unsettled: bool,
    /// What became of the decode worker.
    peer: PeerState,
    /// When its endpoint is closed, to end writes that do not complete.
    close_by: Option<Instant>,
}

/// Pages that a lost reader may still read.
#[derive(Debug)]
#[cfg_attr(feature = "explore", derive(Clone, PartialEq, Eq, Hash))]
struct Unsettled {
    source: Source,
    /// Whether the reader is being fenced.
    fencing: bool,
}

/// What is known of the decode worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "explore", derive(Hash))]
enum PeerState {
    There,
    /// It may still read, and will not say when it has stopped.
    Lost,
    /// It reads nothing any more.
    Ended,
}

/// Who may still post or complete writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "explore", derive(Hash))]
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

    fn drained(
        &mut self,
        now: Instant,
        flow: FlowId,
        complete: bool,
        settled: bool,
        error: Option<String>,
    ) {
        let Some(id) = self.flows.remove(&flow) else {
            return;
        };
        let Some(t) = self.transfers.get_mut(&id) else {
            return;
        };
        t.flows.remove(&flow);
        t.unsettled |= !settled;
        // The first failure stops the watcher and the other flows; the transfer ends when all have
        // drained.
        if !complete {
            let why = error.unwrap_or_else(|| "a write failed".into());
            self.end_early(now, id, TransferEnd::Failed(why));
        }
        self.all_drained(id);
    }

    /// Where no flow is left, nobody can post or complete writes. While the way is being opened the
    /// watcher may be about to hear of the transfer: it is stopped once that is known.
    fn all_drained(&mut self, id: TransferId) {
        if let Some(t) = self.transfers.get_mut(&id)
            && t.flows.is_empty()
            && t.stage != Stage::Opening
        {
            t.stage = Stage::Drained;
            t.close_by = None;
        }
        self.settle(id);
    }

    /// Ends a transfer before its time: whoever may still touch its pages is asked to let go.
    fn end_early(&mut self, now: Instant, id: TransferId, how: TransferEnd) {
        if let Some(at) = self.queue.iter().position(|w| w.transfer == id) {
            self.queue.remove(at);
            self.outputs.push_back(Output::End { transfer: id, how });
            self.outputs.push_back(Output::Gone { transfer: id });
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

    fn peer_gone(&mut self, now: Instant, id: TransferId, peer: PeerState) {
        if let Some(pages) = self.unsettled.get_mut(&id) {
            if peer == PeerState::Ended {
                self.free_unsettled(id);
            } else if !std::mem::replace(&mut pages.fencing, true) {
                self.outputs.push_back(Output::Fence { transfer: id });
            }
            return;
        }
        if let Some(t) = self.transfers.get_mut(&id)
            && t.peer == PeerState::There
        {
            t.peer = peer;
        }
        let how = TransferEnd::Failed("the decode worker was lost".into());
        self.end_early(now, id, how);
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
        let how = match t.ending {
            None => TransferEnd::Done,
            Some(TransferEnd::Failed(why)) if t.unsettled => TransferEnd::Unsettled(why),
            Some(_) if t.unsettled => TransferEnd::Unsettled("writes broke off".into()),
            Some(how) => how,
        };
        self.outputs.push_back(Output::End { transfer: id, how });
        if t.unsettled && t.peer != PeerState::Ended {
            let (source, fencing) = (t.source, t.peer == PeerState::Lost);
            self.unsettled.insert(id, Unsettled { source, fencing });
            if fencing {
                self.outputs.push_back(Output::Fence { transfer: id });
            }
            return;
        }
        self.free(t.source);
        self.gone(id);
    }

    fn free_unsettled(&mut self, id: TransferId) {
        if let Some(pages) = self.unsettled.remove(&id) {
            self.free(pages.source);
            self.gone(id);
        }
    }

    fn free(&mut self, source: Source) {
        self.pool.free_active(source.lease);
        self.pool.let_go(source.prefix);
    }

    fn gone(&mut self, id: TransferId) {
        self.outputs.push_back(Output::Gone { transfer: id });
        if self.transfers.is_empty() && self.unsettled.is_empty() {
            assert_eq!(self.pool.free(), self.pool.total(), "no page was lost");
            assert!(self.flows.is_empty(), "no flow was lost");
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

impl Source {
    /// In the order of their tokens.
    fn pages(&self) -> Arc<[PageIndex]> {
        let (prefix, own) = (self.prefix.pages().iter(), self.lease.pages().iter());
        prefix.chain(own).copied().collect()
    }
}

impl Transfer {
    fn wake_at(&self) -> Option<Instant> {
        let deadline = self.ending.is_none().then_some(self.deadline);
        [deadline, self.close_by].into_iter().flatten().min()
    }
}

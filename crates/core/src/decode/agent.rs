//! The decode agent's rules: how a request gets its pages and comes to decode.

mod ending;
mod writer;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::request::{Idle, Pages, Request};
use super::{DecodeLimits, Failure, Input, Output, Peer, Refusal, Reserve, Writer};
use crate::blocks::BlockHash;
use crate::layout::WorkerLayout;
use crate::lease::{Lease, Leased};
use crate::ledger::Armed;
use crate::plan;
use crate::pool::{PageCounts, PagePool};
use crate::{Instant, PageIndex, RequestId, SequenceId};

/// Every request of one decode worker (or of one that does both).
#[derive(Debug)]
#[cfg_attr(feature = "explore", derive(Clone, PartialEq, Eq, Hash))]
pub struct DecodeAgent {
    limits: DecodeLimits,
    pool: PagePool,
    requests: BTreeMap<RequestId, Request>,
    /// Peers whose endpoint is being closed.
    fencing: BTreeSet<Peer>,
    next_sequence: u64,
    stopping: bool,
    outputs: VecDeque<Output>,
}

impl DecodeAgent {
    /// An agent with all its pages free.
    #[must_use]
    pub fn new(limits: DecodeLimits) -> Self {
        Self {
            pool: PagePool::new(limits.layout.pages()),
            limits,
            requests: BTreeMap::new(),
            fencing: BTreeSet::new(),
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

    /// Requests that hold something.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.requests.len()
    }

    /// Takes no new requests from now on.
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
        self.requests.values().filter_map(Request::wake_at).min()
    }

    /// Something happened. What comes late, for a request that has ended, is ignored.
    pub fn handle(&mut self, now: Instant, input: Input) {
        match input {
            Input::Reserve(reserve) => self.reserve(reserve),
            Input::Armed { request, armed } => self.armed(now, request, armed),
            Input::NotArmed { request, reason } => self.not_armed(now, request, reason),
            Input::Accepted { .. } => {}
            Input::WriterGone { request, how } => self.writer_gone(now, request, how),
            Input::WriterLost { request, why } => self.writer_lost(now, request, &why),
            Input::Full { request, shard } => self.full(request, shard),
            Input::Overfull { request } => {
                let why = Failure::Fabric("more pieces arrived than there are".into());
                self.fail(now, request, why);
            }
            Input::Fenced { peer } => self.fenced(&peer),
            Input::Superseded { peer } => self.fence(now, &peer, "it was restarted"),
            Input::PrefilledHere { request } => self.prefilled_here(request),
            Input::SequenceEnded {
                request,
                which,
                how,
            } => {
                self.sequence_ended(now, request, which, how);
            }
            Input::Cancel { request } => self.fail(now, request, Failure::Cancelled),
            Input::Tick => self.tick(now),
        }
        let changes = self.pool.take_changes().into_iter();
        self.outputs.extend(changes.map(Output::Cache));
    }

    fn reserve(&mut self, reserve: Reserve) {
        let Reserve {
            request,
            tokens,
            blocks,
            new_tokens,
            prefill,
            deadline,
        } = reserve;
        let refuse = |why| Output::Refuse { request, why };
        if let Err(why) = self.may_take(request, tokens, new_tokens, prefill.as_ref()) {
            self.outputs.push_back(refuse(why));
            return;
        }
        let prefilled = tokens - 1;
        let page = u32::from(self.limits.layout.geometry().page_tokens);
        let whole = blocks.len().min((prefilled / page) as usize);
        let blocks: Arc<[BlockHash]> = blocks[..whole].into();
        let prefix = self.pool.hold(&blocks);
        let held = prefix.pages().len() as u32 * page;
        // The last token generated needs no KV entry: nobody reads it.
        let room = self.pages_for(tokens as usize + new_tokens as usize - 1);
        let own = room - prefix.pages().len();
        let lease = match self.pool.lease(own as u32) {
            Ok(lease) => lease,
            Err(why) => {
                self.pool.let_go(prefix);
                return self.outputs.push_back(refuse(why.into()));
            }
        };
        let sequence = self.new_sequence();
        let pages: Arc<[PageIndex]> = prefix
            .pages()
            .iter()
            .chain(lease.pages().iter())
            .copied()
            .collect();
        self.outputs.push_back(Output::Admit {
            request,
            sequence,
            pages: Arc::clone(&pages),
        });
        let entry = Request {
            pages: Pages::Moving,
            prefix,
            blocks,
            peer: None,
            prefilled,
            decode: Some(sequence),
            prefill_here: None,
            armed: Vec::new(),
            deadline,
            over: false,
            drain_by: None,
        };
        self.begin(request, entry, lease, prefill, (pages, held));
    }

    /// Sets a request going that has its pages, of which the first `held` tokens' are complete.
    fn begin(
        &mut self,
        request: RequestId,
        mut entry: Request,
        lease: Lease<Leased>,
        prefill: Option<Writer>,
        (pages, held): (Arc<[PageIndex]>, u32),
    ) {
        let prefilled = entry.prefilled;
        let sequence = entry.decode.expect("a new request has a sequence");
        match prefill {
            Some(Writer { peer, layout }) if prefilled > held => {
                self.outputs.push_back(Output::Arm {
                    request,
                    peer: peer.clone(),
                    pieces: self.pieces(&layout, held, prefilled),
                });
                entry.peer = Some(peer);
                entry.pages = Pages::Arming(lease);
            }
            _ => {
                entry.pages = Pages::Active(self.pool.activate_unexposed(lease));
                self.outputs.push_back(Output::Reserved {
                    request,
                    pages: pages.len() as u32,
                    held,
                });
                if prefilled == held {
                    self.outputs.push_back(Output::MakeReady {
                        request,
                        sequence,
                        context: false,
                    });
                } else {
                    let sequence = self.new_sequence();
                    entry.prefill_here = Some(sequence);
                    self.outputs.push_back(Output::PrefillHere {
                        request,
                        sequence,
                        pages,
                        cached: held,
                    });
                }
            }
        }
        self.requests.insert(request, entry);
    }

    fn may_take(
        &self,
        request: RequestId,
        tokens: u32,
        new_tokens: u32,
        prefill: Option<&Writer>,
    ) -> Result<(), Refusal> {
        if self.stopping {
            return Err(Refusal::Stopping);
        }
        if tokens == 0 || new_tokens == 0 {
            return Err(Refusal::Invalid(
                "a request has a token and generates one".into(),
            ));
        }
        if self.requests.contains_key(&request) {
            return Err(Refusal::Invalid(format!(
                "request {request} is here already"
            )));
        }
        if self.requests.len() >= self.limits.requests {
            return Err(Refusal::Busy(format!(
                "{} requests are in flight",
                self.requests.len()
            )));
        }
        let Some(writer) = prefill else { return Ok(()) };
        if self.fencing.contains(&writer.peer) {
            return Err(Refusal::Busy("the prefill worker is being fenced".into()));
        }
        let matched = self.limits.layout.matches(&writer.layout);
        matched.map_err(|e| Refusal::Mismatch(e.to_string()))
    }

    fn pages_for(&self, tokens: usize) -> usize {
        self.limits.layout.geometry().pages_for(tokens)
    }

    /// What each shard will count.
    fn pieces(&self, source: &WorkerLayout, held: u32, prefilled: u32) -> Arc<[u64]> {
        let target = &self.limits.layout;
        let grain = plan::grain(source.geometry().page_tokens, target.geometry().page_tokens);
        let tokens = plan::travelling(held, prefilled, grain);
        target
            .of_rank(0)
            .map(|(shard, _)| plan::expected(target, shard, &tokens, grain))
            .collect()
    }

    fn new_sequence(&mut self) -> SequenceId {
        let sequence = SequenceId(self.next_sequence);
        self.next_sequence += 1;
        sequence
    }

    fn armed(&mut self, now: Instant, id: RequestId, armed: Arc<[Armed]>) {
        let Some(request) = self.requests.get_mut(&id) else {
            return self.release(&armed);
        };
        match std::mem::replace(&mut request.pages, Pages::Moving) {
            Pages::Arming(lease) => {
                let lease = self.pool.expose(lease);
                let geometry = self.limits.layout.geometry();
                let known = request.prefix.pages().len();
                let held = known as u32 * u32::from(geometry.page_tokens);
                let total = (known + lease.pages().len()) as u32;
                let prompt = geometry.pages_for(request.prefilled as usize) - known;
                let pages = lease.pages()[..prompt].into();
                request.armed = armed.iter().copied().map(Some).collect();
                request.pages = Pages::Exposed { lease, done: false };
                let peer = request
                    .peer
                    .clone()
                    .expect("a request that is armed has a writer");
                self.outputs.push_back(Output::Reserved {
                    request: id,
                    pages: total,
                    held,
                });
                self.outputs.push_back(Output::Dispatch {
                    request: id,
                    peer,
                    armed,
                    pages,
                    held,
                });
            }
            Pages::ArmingInVain(lease) => {
                request.pages = Pages::Idle(Idle::Leased(lease));
                self.release(&armed);
                self.settle(id);
            }
            other => {
                // Armed twice: the shell's fault. The request goes on with its first slots.
                request.pages = other;
                self.release(&armed);
                self.fail(now, id, Failure::Fabric("a slot was armed twice".into()));
            }
        }
    }

    fn release(&mut self, armed: &[Armed]) {
        for (shard, armed) in (0..).zip(armed.iter().copied()) {
            self.outputs.push_back(Output::ReleaseSlot { shard, armed });
        }
    }

    fn not_armed(&mut self, now: Instant, id: RequestId, reason: String) {
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        match std::mem::replace(&mut request.pages, Pages::Moving) {
            Pages::Arming(lease) | Pages::ArmingInVain(lease) => {
                request.pages = Pages::Idle(Idle::Leased(lease));
                self.fail(now, id, Failure::Fabric(reason));
                self.settle(id);
            }
            other => request.pages = other,
        }
    }

    fn full(&mut self, id: RequestId, shard: u16) {
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        if request.over || !matches!(request.pages, Pages::Exposed { .. }) {
            return;
        }
        let Some(armed) = request
            .armed
            .get_mut(usize::from(shard))
            .and_then(Option::take)
        else {
            return;
        };
        self.outputs.push_back(Output::ReleaseSlot { shard, armed });
        if request.armed.iter().any(Option::is_some) {
            return;
        }
        match std::mem::replace(&mut request.pages, Pages::Moving) {
            Pages::Exposed { lease, .. } => {
                // All pieces are in memory and there are no others: nobody writes here any more.
                let lease = self.pool.fill(lease);
                let lease = self.pool.activate(lease);
                let known = request.prefix.pages().len();
                self.pool.publish(&lease, &request.blocks[known..]);
                request.pages = Pages::Active(lease);
                if let Some(sequence) = request.decode {
                    self.outputs.push_back(Output::MakeReady {
                        request: id,
                        sequence,
                        context: true,
                    });
                }
            }
            other => request.pages = other,
        }
    }
}

//! The decode agent's rules.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::request::{Idle, Pages, Request};
use super::{
    DecodeLimits, Failure, Input, Output, Peer, Refusal, Reserve, SequenceEnd, Which, WriterEnd,
};
use crate::lease::PageState;
use crate::plan::expected_pieces;
use crate::pool::{PageCounts, PagePool};
use crate::{Instant, RequestId, SequenceId};

/// Every request of one decode worker (or of one that does both).
#[derive(Debug)]
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
            limits,
            pool: PagePool::new(limits.pages),
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
            Input::Full { request } => self.full(request),
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
    }

    fn reserve(&mut self, reserve: Reserve) {
        let Reserve {
            request,
            tokens,
            new_tokens,
            prefill,
            deadline,
        } = reserve;
        let refuse = |why| Output::Refuse { request, why };
        if let Err(why) = self.may_take(request, tokens, new_tokens, prefill.as_ref()) {
            self.outputs.push_back(refuse(why));
            return;
        }
        // The last token generated needs no KV entry: nobody reads it.
        let room = tokens as usize + new_tokens as usize - 1;
        let lease = match self.pool.lease(self.limits.geometry.pages_for(room) as u32) {
            Ok(lease) => lease,
            Err(why) => return self.outputs.push_back(refuse(why.into())),
        };
        let sequence = self.new_sequence();
        let pages = Arc::clone(lease.pages());
        let count = pages.len() as u32;
        self.outputs.push_back(Output::Admit {
            request,
            sequence,
            pages: Arc::clone(&pages),
        });
        let prefilled = tokens - 1;
        let mut entry = Request {
            pages: Pages::Moving,
            peer: None,
            prefilled,
            decode: Some(sequence),
            prefill_here: None,
            armed: None,
            deadline,
            over: false,
            drain_by: None,
        };
        match prefill {
            Some(peer) if prefilled > 0 => {
                let pieces = expected_pieces(&self.limits.geometry, prefilled as usize);
                self.outputs.push_back(Output::Arm {
                    request,
                    peer: peer.clone(),
                    pieces,
                });
                entry.peer = Some(peer);
                entry.pages = Pages::Arming(lease);
            }
            _ => {
                entry.pages = Pages::Active(self.pool.activate_unexposed(lease));
                self.outputs.push_back(Output::Reserved {
                    request,
                    pages: count,
                });
                if prefilled == 0 {
                    self.outputs
                        .push_back(Output::MakeReady { request, sequence });
                } else {
                    let sequence = self.new_sequence();
                    entry.prefill_here = Some(sequence);
                    self.outputs.push_back(Output::PrefillHere {
                        request,
                        sequence,
                        pages,
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
        prefill: Option<&Peer>,
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
        if prefill.is_some_and(|peer| self.fencing.contains(peer)) {
            return Err(Refusal::Busy("the prefill worker is being fenced".into()));
        }
        Ok(())
    }

    fn new_sequence(&mut self) -> SequenceId {
        let sequence = SequenceId(self.next_sequence);
        self.next_sequence += 1;
        sequence
    }

    fn armed(&mut self, now: Instant, id: RequestId, armed: crate::ledger::Armed) {
        let Some(request) = self.requests.get_mut(&id) else {
            self.outputs.push_back(Output::ReleaseSlot { armed });
            return;
        };
        match std::mem::replace(&mut request.pages, Pages::Moving) {
            Pages::Arming(lease) => {
                let lease = self.pool.expose(lease);
                let total = lease.pages().len() as u32;
                let prompt = self.limits.geometry.pages_for(request.prefilled as usize);
                let pages = lease.pages()[..prompt].into();
                request.armed = Some(armed);
                request.pages = Pages::Exposed { lease, done: false };
                let peer = request
                    .peer
                    .clone()
                    .expect("a request that is armed has a writer");
                self.outputs.push_back(Output::Reserved {
                    request: id,
                    pages: total,
                });
                self.outputs.push_back(Output::Dispatch {
                    request: id,
                    peer,
                    armed,
                    pages,
                });
            }
            Pages::ArmingInVain(lease) => {
                self.outputs.push_back(Output::ReleaseSlot { armed });
                request.pages = Pages::Idle(Idle::Leased(lease));
                self.settle(id);
            }
            other => {
                // Armed twice: the shell's fault. The request goes on with its first slot.
                request.pages = other;
                self.outputs.push_back(Output::ReleaseSlot { armed });
                self.fail(now, id, Failure::Fabric("a slot was armed twice".into()));
            }
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

    fn full(&mut self, id: RequestId) {
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        match std::mem::replace(&mut request.pages, Pages::Moving) {
            Pages::Exposed { lease, .. } if !request.over => {
                // All pieces are in memory and there are no others: nobody writes here any more.
                if let Some(armed) = request.armed.take() {
                    self.outputs.push_back(Output::ReleaseSlot { armed });
                }
                let lease = self.pool.fill(lease);
                request.pages = Pages::Active(self.pool.activate(lease));
                if let Some(sequence) = request.decode {
                    self.outputs.push_back(Output::MakeReady {
                        request: id,
                        sequence,
                    });
                }
            }
            other => request.pages = other,
        }
    }

    fn writer_gone(&mut self, now: Instant, id: RequestId, how: WriterEnd) {
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        match std::mem::replace(&mut request.pages, Pages::Moving) {
            Pages::Exposed { lease, .. } => {
                if how == WriterEnd::Done {
                    // Its writes have completed; the last immediates may still be on their way up.
                    request.pages = Pages::Exposed { lease, done: true };
                    return;
                }
                let lease = self.pool.drain(lease);
                request.pages = Pages::Idle(Idle::Drained(lease));
                let why = match how {
                    WriterEnd::Refused(why) => Failure::PrefillRefused(why),
                    WriterEnd::Failed(why) => Failure::PrefillFailed(why),
                    WriterEnd::Drained | WriterEnd::Done => {
                        Failure::PrefillFailed("it stopped without being asked".into())
                    }
                };
                self.fail(now, id, why);
                self.settle(id);
            }
            Pages::Draining(lease) => {
                request.drain_by = None;
                request.pages = Pages::Idle(Idle::Drained(lease));
                self.settle(id);
            }
            // A quarantined page waits for the fence, whatever a late word says.
            other => request.pages = other,
        }
    }

    fn writer_lost(&mut self, now: Instant, id: RequestId, why: &str) {
        let Some(request) = self.requests.get(&id) else {
            return;
        };
        if !matches!(
            request.pages,
            Pages::Exposed { done: false, .. } | Pages::Draining(_)
        ) {
            return;
        }
        let Some(peer) = request.peer.clone() else {
            return;
        };
        self.fence(now, &peer, why);
    }

    /// Closes a peer's endpoint. Everything that is still being written through it fails.
    fn fence(&mut self, now: Instant, peer: &Peer, why: &str) {
        if self.fencing.insert(peer.clone()) {
            self.outputs.push_back(Output::Fence { peer: peer.clone() });
        }
        let theirs = |r: &Request| r.peer.as_ref() == Some(peer);
        let ids: Vec<RequestId> = self
            .requests
            .iter()
            .filter(|(_, r)| theirs(r))
            .map(|(id, _)| *id)
            .collect();
        for id in ids {
            let Some(request) = self.requests.get_mut(&id) else {
                continue;
            };
            request.drain_by = None;
            let (pages, lost) = match std::mem::replace(&mut request.pages, Pages::Moving) {
                Pages::Exposed { lease, done: false } => {
                    let lease = self.pool.drain(lease);
                    (Pages::Quarantined(self.pool.quarantine(lease)), true)
                }
                Pages::Draining(lease) => (Pages::Quarantined(self.pool.quarantine(lease)), false),
                // Its slot waits at the endpoint that is being closed: it would wait for ever.
                pages @ (Pages::Arming(_) | Pages::Exposed { .. }) => (pages, true),
                other => (other, false),
            };
            request.pages = pages;
            if lost {
                self.fail(now, id, Failure::PrefillLost(why.to_owned()));
            }
        }
    }

    fn fenced(&mut self, peer: &Peer) {
        self.fencing.remove(peer);
        let ids: Vec<RequestId> = self
            .requests
            .iter()
            .filter(|(_, r)| r.peer.as_ref() == Some(peer))
            .map(|(id, _)| *id)
            .collect();
        for id in ids {
            let Some(request) = self.requests.get_mut(&id) else {
                continue;
            };
            match std::mem::replace(&mut request.pages, Pages::Moving) {
                Pages::Quarantined(lease) => {
                    request.pages = Pages::Idle(Idle::Fenced(lease));
                    self.settle(id);
                }
                other => request.pages = other,
            }
        }
    }

    fn prefilled_here(&mut self, id: RequestId) {
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        if request.prefill_here.take().is_none() {
            return;
        }
        match request.decode {
            Some(sequence) if !request.over => {
                self.outputs.push_back(Output::MakeReady {
                    request: id,
                    sequence,
                });
            }
            _ => self.settle(id),
        }
    }

    fn sequence_ended(&mut self, now: Instant, id: RequestId, which: Which, how: SequenceEnd) {
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        match which {
            Which::Decode => request.decode = None,
            Which::Prefill => request.prefill_here = None,
        }
        match how {
            // The shell has told the gateway, with the answer's last words.
            SequenceEnd::Finished => request.over = true,
            SequenceEnd::Cancelled => {}
            SequenceEnd::Failed(why) => self.fail(now, id, Failure::Engine(why)),
        }
        self.settle(id);
    }

    /// Ends a request that has no answer: tells the gateway, and asks everybody who holds something
    /// of it to let go.
    fn fail(&mut self, now: Instant, id: RequestId, why: Failure) {
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        if request.over {
            return;
        }
        request.over = true;
        self.outputs.push_back(Output::Fail { request: id, why });
        for sequence in [request.prefill_here, request.decode].into_iter().flatten() {
            self.outputs.push_back(Output::CancelSequence { sequence });
        }
        request.pages = match std::mem::replace(&mut request.pages, Pages::Moving) {
            Pages::Arming(lease) => Pages::ArmingInVain(lease),
            Pages::Exposed { lease, done: true } => {
                Pages::Idle(Idle::Drained(self.pool.drain(lease)))
            }
            Pages::Exposed { lease, done: false } => {
                request.drain_by = Some(now + self.limits.drain_timeout);
                self.outputs
                    .push_back(Output::CancelPrefill { request: id });
                Pages::Draining(self.pool.drain(lease))
            }
            other => other,
        };
        self.settle(id);
    }

    /// Frees the request if nobody can touch its pages any more.
    fn settle(&mut self, id: RequestId) {
        let Some(request) = self.requests.get(&id) else {
            return;
        };
        let untouched = matches!(request.pages, Pages::Idle(_) | Pages::Active(_));
        if !(request.over && request.engine_gone() && untouched) {
            return;
        }
        let Some(request) = self.requests.remove(&id) else {
            return;
        };
        if let Some(armed) = request.armed {
            self.outputs.push_back(Output::ReleaseSlot { armed });
        }
        match request.pages {
            Pages::Active(lease) => self.pool.free_active(lease),
            Pages::Idle(Idle::Leased(lease)) => self.pool.free_leased(lease),
            Pages::Idle(Idle::Drained(lease)) => self.pool.free_drained(lease),
            Pages::Idle(Idle::Fenced(lease)) => self.pool.free_fenced(lease),
            _ => unreachable!("only untouched pages are freed"),
        }
        self.outputs.push_back(Output::Gone { request: id });
        if self.requests.is_empty() {
            assert_eq!(
                self.pages().of(PageState::Free),
                self.pool.total(),
                "no page was lost"
            );
        }
    }

    fn tick(&mut self, now: Instant) {
        let due: Vec<RequestId> = self
            .requests
            .iter()
            .filter(|(_, r)| r.wake_at().is_some_and(|at| at <= now))
            .map(|(id, _)| *id)
            .collect();
        for id in due {
            let Some(request) = self.requests.get(&id) else {
                continue;
            };
            if request.drain_by.is_some_and(|at| at <= now) {
                if let Some(peer) = request.peer.clone() {
                    self.fence(now, &peer, "it did not confirm that it writes no more");
                }
            } else if !request.over && request.deadline <= now {
                let stage = match request.pages {
                    Pages::Arming(_) | Pages::Exposed { .. } => "before all pages had arrived",
                    _ if request.prefill_here.is_some() => "while the prompt was computed",
                    _ => "while the answer was generated",
                };
                self.fail(now, id, Failure::Deadline(stage));
            }
        }
    }
}

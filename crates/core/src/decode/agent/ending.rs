//! How requests end: by their own course, by a failure, by their deadline; and when their pages return.

use super::super::request::{Idle, Pages};
use super::super::{Failure, Output, SequenceEnd, Which};
use super::DecodeAgent;
use crate::{Instant, RequestId};

impl DecodeAgent {
    pub(super) fn prefilled_here(&mut self, id: RequestId) {
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        if request.prefill_here.take().is_none() {
            return;
        }
        if let Pages::Active(lease) = &request.pages {
            let known = request.prefix.pages().len();
            self.pool.publish(lease, &request.blocks[known..]);
        }
        match request.decode {
            Some(sequence) if !request.over => {
                self.outputs.push_back(Output::MakeReady {
                    request: id,
                    sequence,
                    context: true,
                });
            }
            _ => self.settle(id),
        }
    }

    pub(super) fn sequence_ended(
        &mut self,
        now: Instant,
        id: RequestId,
        which: Which,
        how: SequenceEnd,
    ) {
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        match which {
            Which::Decode => request.decode = None,
            Which::Prefill => request.prefill_here = None,
        }
        match how {
            // The shell has told the gateway, with the answer's last words.
            SequenceEnd::Finished(blocks) => {
                request.over = true;
                if let Pages::Active(lease) = &request.pages {
                    let known = request.prefix.pages().len();
                    let fresh = blocks.get(known..).unwrap_or_default();
                    let most = fresh.len().min(lease.pages().len());
                    self.pool.publish(lease, &fresh[..most]);
                }
            }
            SequenceEnd::Cancelled => {}
            SequenceEnd::Failed(why) => self.fail(now, id, Failure::Engine(why)),
        }
        self.settle(id);
    }

    /// Ends a request that has no answer: tells the gateway, and asks everybody who holds something
    /// of it to let go.
    pub(super) fn fail(&mut self, now: Instant, id: RequestId, why: Failure) {
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
    pub(super) fn settle(&mut self, id: RequestId) {
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
        for (shard, armed) in (0..).zip(request.armed) {
            if let Some(armed) = armed {
                self.outputs.push_back(Output::ReleaseSlot { shard, armed });
            }
        }
        match request.pages {
            Pages::Active(lease) => self.pool.free_active(lease),
            Pages::Idle(Idle::Leased(lease)) => self.pool.free_leased(lease),
            Pages::Idle(Idle::Drained(lease)) => self.pool.free_drained(lease),
            Pages::Idle(Idle::Fenced(lease)) => self.pool.free_fenced(lease),
            _ => unreachable!("only untouched pages are freed"),
        }
        self.pool.let_go(request.prefix);
        self.outputs.push_back(Output::Gone { request: id });
        if self.requests.is_empty() {
            assert_eq!(self.pool.free(), self.pool.total(), "no page was lost");
        }
    }

    pub(super) fn tick(&mut self, now: Instant) {
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

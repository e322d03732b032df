//! What is heard of the prefill worker that writes a request's pages: when nothing more can land.

use super::super::request::{Idle, Pages, Request};
use super::super::{Failure, Output, Peer, WriterEnd};
use super::DecodeAgent;
use crate::{Instant, RequestId};

impl DecodeAgent {
    pub(super) fn writer_gone(&mut self, now: Instant, id: RequestId, how: WriterEnd) {
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

    pub(super) fn writer_lost(&mut self, now: Instant, id: RequestId, why: &str) {
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
    pub(super) fn fence(&mut self, now: Instant, peer: &Peer, why: &str) {
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

    pub(super) fn fenced(&mut self, peer: &Peer) {
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
}

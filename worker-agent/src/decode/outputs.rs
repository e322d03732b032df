//! Carrying out what the decode agent decides.

use std::sync::Arc;
use std::time::Instant;

use tandem_core::decode::{Input, Output, Peer, SequenceEnd, Which};
use tandem_core::ledger::Armed;
use tandem_core::{PageIndex, RequestId, SequenceId};
use tandem_engine::Command;

use super::{DecodeTask, Happened, dispatch, inboxes};

impl DecodeTask {
    pub(super) fn carry_out(&mut self) {
        while let Some(output) = self.agent.poll() {
            self.one(output);
        }
    }

    #[allow(clippy::too_many_lines, reason = "one short arm for each output")]
    fn one(&mut self, output: Output) {
        match output {
            Output::Refuse { request, why } => {
                if let Some(mut held) = self.held.remove(&request) {
                    held.refused(&why);
                }
            }
            Output::Admit {
                request,
                sequence,
                pages,
            } => self.admit(request, sequence, pages),
            Output::Arm {
                request,
                peer,
                pieces,
            } => self.arm(request, &peer, &pieces),
            Output::Reserved {
                request,
                pages,
                held,
            } => {
                self.figures.cached_tokens += u64::from(held);
                if let Some(entry) = self.held.get_mut(&request) {
                    // Where prefill runs elsewhere, it says how much of the prompt it had.
                    entry.cached = held;
                    entry.reserved(pages, held);
                }
            }
            Output::Dispatch {
                request,
                peer,
                armed,
                pages,
                held,
            } => {
                self.dispatch(request, &peer, &armed, (&pages, held));
            }
            Output::PrefillHere {
                request,
                sequence,
                pages,
                cached,
            } => {
                let Some(held) = self.held.get(&request) else {
                    return;
                };
                let tokens = Arc::clone(&held.tokens);
                self.sequences.insert(sequence, (request, Which::Prefill));
                self.commands.send(Command::Prefill {
                    sequence,
                    tokens,
                    pages,
                    cached,
                });
            }
            Output::MakeReady {
                request,
                sequence,
                context,
            } => {
                if let Some(held) = self.held.get_mut(&request) {
                    self.figures.transfers_completed += u64::from(held.dispatched.is_some());
                    held.started();
                }
                self.commands.send(Command::MakeReady { sequence, context });
            }
            Output::CancelPrefill { request } => {
                if let Some(held) = self.held.get(&request) {
                    held.cancel.send_replace(true);
                }
            }
            Output::CancelSequence { sequence } => {
                self.commands.send(Command::Cancel { sequence });
            }
            Output::ReleaseSlot { shard, armed } => {
                self.slots.remove(&(shard, armed.key));
                if let Some(fabrics) = &self.facts.fabrics
                    && let Err(error) = fabrics.shard(shard).release(armed)
                {
                    tracing::error!(%error, "a slot could not be released");
                }
            }
            Output::Fence { peer } => self.fence(peer),
            Output::Fail { request, why } => {
                if let Some(held) = self.held.get_mut(&request) {
                    tracing::debug!(%request, %why, "request failed");
                    held.failed(&why);
                    let in_transfer = held.dispatched.is_some() && !held.has_started();
                    self.figures.transfers_failed += u64::from(in_transfer);
                }
            }
            Output::Gone { request } => {
                self.held.remove(&request);
            }
            Output::Cache(change) => self.cache.add(change),
        }
    }

    fn admit(&mut self, request: RequestId, sequence: SequenceId, pages: Arc<[PageIndex]>) {
        let Some(held) = self.held.get(&request) else {
            let how = SequenceEnd::Cancelled;
            return self.input(Input::SequenceEnded {
                request,
                which: Which::Decode,
                how,
            });
        };
        self.sequences.insert(sequence, (request, Which::Decode));
        self.commands.send(Command::Admit {
            sequence,
            tokens: Arc::clone(&held.tokens),
            generated: held.generated,
            pages,
            sampling: held.sampling.clone(),
            stop: held.stop.clone(),
        });
    }

    fn arm(&mut self, request: RequestId, peer: &Peer, pieces: &Arc<[u64]>) {
        let handle = self.handle.clone();
        let Some(fabrics) = self.facts.fabrics.clone() else {
            let reason = "this worker has no fabric".into();
            return self.input(Input::NotArmed { request, reason });
        };
        for older in self.inboxes.older(peer) {
            self.input(Input::Superseded { peer: older });
        }
        let (slot, pieces) = (self.inboxes.slot(peer), Arc::clone(pieces));
        self.helpers.spawn(async move {
            let happened = match inboxes::arm(&fabrics, &slot, &pieces).await {
                Ok(armed) => Happened::Armed(request, armed),
                Err(reason) => Happened::Input(Input::NotArmed { request, reason }),
            };
            let _ = handle.send(happened).await;
        });
    }

    fn dispatch(
        &mut self,
        request: RequestId,
        peer: &Peer,
        armed: &Arc<[Armed]>,
        (pages, held_tokens): (&[PageIndex], u32),
    ) {
        let Some(inboxes) = self.inboxes.of(peer) else {
            let why = "its inbox was closed".into();
            return self.input(Input::WriterLost { request, why });
        };
        let Some(held) = self.held.get_mut(&request) else {
            return;
        };
        let Some(prefill) = held.prefill.clone() else {
            return;
        };
        let trace = held.dispatched(Instant::now());
        let order = dispatch::Order {
            lease: request,
            request: held.request,
            prefill,
            tokens: Arc::clone(&held.tokens),
            pages: pages.iter().map(|p| p.0).collect(),
            held_tokens,
            salt: Arc::clone(&held.salt),
            armed: Arc::clone(armed),
            inboxes,
            deadline: held.deadline,
            trace,
        };
        let (facts, peers) = (Arc::clone(&self.facts), Arc::clone(&self.peers));
        let (handle, cancel) = (self.handle.clone(), held.cancel.subscribe());
        self.helpers.spawn(async move {
            dispatch::run(&facts, &peers, order, cancel, &handle).await;
        });
    }

    fn fence(&mut self, peer: Peer) {
        self.figures.fences += 1;
        tracing::warn!(worker = %peer.worker, "fencing a prefill worker");
        let handle = self.handle.clone();
        let slot = self.inboxes.take(&peer);
        let fabrics = self.facts.fabrics.clone();
        self.helpers.spawn(async move {
            if let (Some(slot), Some(fabrics)) = (slot, fabrics) {
                inboxes::fence(&fabrics, &slot).await;
            }
            let _ = handle.send(Happened::Input(Input::Fenced { peer })).await;
        });
    }
}

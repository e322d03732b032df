//! Carrying out what the decode agent decides, as the worker's shell does.

use std::sync::Arc;

use tandem_core::decode::{Input, Output, Peer, SequenceEnd, Which};
use tandem_core::ledger::Armed;
use tandem_core::{Instant, PageIndex, RequestId, SequenceId, WorkerRole};

use super::{Arming, Sequence};
use crate::fault::Fault;
use crate::gateway::Told;
use crate::names::Life;
use crate::stream::{Order, Stream};
use crate::violation::Violation;
use crate::world::{Setup, World};

fn short(request: RequestId) -> u16 {
    request.0 as u16
}

impl World {
    pub(super) fn decode_output(&mut self, setup: &Setup, d: usize, output: Output) {
        match output {
            Output::Refuse { request, why } => {
                if let Some(held) = self.decode(d).held.remove(&short(request)) {
                    self.tell(held.attempt, Told::Refused(why));
                }
            }
            Output::Admit {
                request,
                sequence,
                pages,
            } => self.admit(d, request, sequence, pages),
            Output::Arm {
                request,
                peer,
                pieces,
            } => self.start_arming(d, request, &peer, pieces),
            Output::Reserved { request, .. } => {
                if let Some(held) = self.decodes[d].held.get(&short(request)) {
                    self.tell(held.attempt, Told::Reserved);
                }
            }
            Output::Dispatch {
                request,
                peer,
                armed,
                pages,
                held: 0,
            } => self.dispatch(d, request, &peer, &armed, pages),
            Output::Dispatch { .. } | Output::Cache(_) => panic!("no block has a name"),
            Output::PrefillHere { .. } => panic!("every prompt has a prefill worker"),
            Output::MakeReady { sequence, .. } => {
                self.make_ready(setup, d, sequence);
            }
            Output::CancelPrefill { request } => self.cancel_prefill(setup, d, request),
            Output::CancelSequence { sequence } => {
                if let Some(sequence) = self.decode(d).sequences.get_mut(&sequence) {
                    sequence.cancelled = true;
                }
            }
            Output::ReleaseSlot { shard, armed } => self.release_slot(d, shard, armed),
            Output::Fence { peer } => {
                let (worker, peer) = (self.decode(d), Life::of(&peer));
                let inbox = worker.inboxes.remove(&peer);
                worker.fencing.insert((peer, inbox));
            }
            Output::Fail { request, .. } => {
                if let Some(held) = self.decodes[d].held.get(&short(request)) {
                    self.tell(held.attempt, Told::Failed);
                }
            }
            Output::Gone { request } => self.gone(d, request),
        }
    }

    fn admit(
        &mut self,
        d: usize,
        request: RequestId,
        sequence: SequenceId,
        pages: Arc<[PageIndex]>,
    ) {
        let worker = self.decode(d);
        let Some(held) = worker.held.get(&short(request)) else {
            let ended = Input::SequenceEnded {
                request,
                which: Which::Decode,
                how: SequenceEnd::Cancelled,
            };
            return worker.agent.handle(Instant::ZERO, ended);
        };
        let attempt = held.attempt;
        let mut twice = None;
        for page in pages.iter() {
            let runs = worker.sequences.values().find(|s| s.pages.contains(page));
            let owner = &mut worker.owners[page.0 as usize];
            let other = owner.or(runs.map(|s| s.attempt));
            twice = twice.or(other.map(|owner| (*page, owner)));
            *owner = Some(attempt);
        }
        let entry = Sequence {
            request,
            attempt,
            pages,
            ready: false,
            cancelled: false,
        };
        worker.sequences.insert(sequence, entry);
        if let Some((page, owner)) = twice {
            self.wrong = Some(Violation::LeasedTwice {
                attempt,
                page,
                owner,
            });
        }
    }

    fn start_arming(&mut self, d: usize, request: RequestId, peer: &Peer, pieces: Arc<[u64]>) {
        let (worker, life) = (self.decode(d), Life::of(peer));
        let older = |l: &&Life| l.worker == life.worker && l.number != life.number;
        let older: Vec<Life> = worker.inboxes.keys().filter(older).copied().collect();
        for older in older {
            let peer = older.peer(WorkerRole::Prefill);
            worker
                .agent
                .handle(Instant::ZERO, Input::Superseded { peer });
        }
        let endpoint = match worker.inboxes.get(&life) {
            Some(endpoint) => *endpoint,
            None => {
                let endpoint = worker.new_inbox(life);
                worker.inboxes.insert(life, endpoint);
                endpoint
            }
        };
        if let Some(held) = worker.held.get(&short(request)) {
            let arming = Arming {
                attempt: held.attempt,
                endpoint,
                pieces,
                said: None,
            };
            worker.arming.insert(short(request), arming);
        }
    }

    fn dispatch(
        &mut self,
        d: usize,
        request: RequestId,
        peer: &Peer,
        armed: &[Armed],
        pages: Arc<[PageIndex]>,
    ) {
        let (worker, prefill) = (self.decode(d), Life::of(peer));
        let inbox = worker.inboxes.get(&prefill).copied();
        let open = inbox.filter(|i| worker.endpoints.get(i).is_some_and(|i| i.open));
        let Some(inbox) = open else {
            let why = "its inbox was closed".into();
            return worker
                .agent
                .handle(Instant::ZERO, Input::WriterLost { request, why });
        };
        let Some(held) = worker.held.get(&short(request)) else {
            return;
        };
        let attempt = held.attempt;
        let order = Order {
            attempt,
            request,
            decode: worker.life,
            prefill,
            inbox,
            pages,
            keys: armed.iter().map(|a| a.key).collect(),
        };
        self.streams.insert(attempt, Arc::new(Stream::new(order)));
    }

    /// I1: every byte of the prompt's pages and context is there, and is this request's.
    fn make_ready(&mut self, setup: &Setup, d: usize, sequence: SequenceId) {
        let worker = self.decode(d);
        let Some(entry) = worker.sequences.get_mut(&sequence) else {
            return;
        };
        entry.ready = true;
        let attempt = entry.attempt;
        let tokens = setup.config.plan(attempt.request).tokens as usize - 1;
        let prompt = &entry.pages[..setup.pages_for(tokens)];
        let shards = || worker.shards.iter().zip(&setup.decode_places);
        let missing = prompt
            .iter()
            .flat_map(|page| shards().map(move |(shard, places)| (page, shard, places)))
            .find_map(|(page, shard, places)| {
                let found = shard.memory.other(places, *page, attempt)?;
                Some((*page, found))
            });
        let no_context = prompt.last().and_then(|page| {
            let found =
                shards().find_map(|(s, places)| s.memory.other_context(places, *page, attempt));
            Some((*page, found?))
        });
        let missing = missing.or(no_context);
        if let Some((page, found)) = missing {
            self.wrong = Some(Violation::EarlyDecode {
                attempt,
                page,
                found,
            });
        }
    }

    fn cancel_prefill(&mut self, setup: &Setup, d: usize, request: RequestId) {
        let worker = self.decode(d);
        let Some(held) = worker.held.get(&short(request)).cloned() else {
            return;
        };
        match setup.config.fault {
            Some(Fault::FreeOnTimeout) => {
                worker.stopping.insert(short(request));
            }
            Some(Fault::SlotReusedAtOnce) => {
                let theirs = worker.slots.iter().filter(|(_, of)| of.0 == short(request));
                let keys: Vec<_> = theirs.map(|(key, _)| *key).collect();
                for (shard, key) in keys {
                    worker.slots.remove(&(shard, key));
                    worker.shards[usize::from(shard)].release(Armed { key });
                    worker.released.insert((shard, held.attempt));
                }
            }
            _ => {}
        }
        if let Some(stream) = self.streams.get_mut(&held.attempt) {
            Arc::make_mut(stream).cancel();
        }
    }

    fn release_slot(&mut self, d: usize, shard: u16, armed: Armed) {
        let worker = self.decode(d);
        if let Some(early) = worker.released.iter().find(|(s, _)| *s == shard).copied() {
            worker.released.remove(&early);
            return;
        }
        worker.slots.remove(&(shard, armed.key));
        worker.shards[usize::from(shard)].release(armed);
    }

    fn gone(&mut self, d: usize, request: RequestId) {
        let worker = self.decode(d);
        worker.stopping.remove(&short(request));
        let Some(held) = worker.held.remove(&short(request)) else {
            return;
        };
        for owner in &mut worker.owners {
            if *owner == Some(held.attempt) {
                *owner = None;
            }
        }
        if let Some(stream) = self.streams.get_mut(&held.attempt) {
            Arc::make_mut(stream).request_gone();
        }
        self.forget_streams();
    }
}

//! A decode shard's side of the fabric: the core's ledger, the arena, and what was not told yet.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use tandem_core::decode::Input;
use tandem_core::immediate::{Immediate, SlotKey};
use tandem_core::ledger::{Armed, Counted, InboundLedger};
use tandem_core::{EndpointId, Instant, RequestId, WorkerRole};

use crate::fault::Fault;
use crate::memory::{Memory, Places};
use crate::names::{Attempt, Life};
use crate::violation::Violation;
use crate::world::{Setup, World};

/// What the fabric tells the task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Event {
    Full(SlotKey),
    Overfull(SlotKey),
    Failed(EndpointId),
}

/// For whom a slot waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Waits {
    armed: Armed,
    endpoint: EndpointId,
    attempt: Attempt,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Inbound {
    ledger: InboundLedger,
    waits: BTreeMap<u16, Waits>,
    overfull: BTreeSet<SlotKey>,
    pub(crate) events: VecDeque<Event>,
    pub(crate) memory: Memory,
}

impl Inbound {
    pub(crate) fn new(places: &Places, slots: u16) -> Self {
        Self {
            ledger: InboundLedger::new(slots),
            waits: BTreeMap::new(),
            overfull: BTreeSet::new(),
            events: VecDeque::new(),
            memory: Memory::new(places),
        }
    }

    pub(crate) fn in_use(&self) -> usize {
        self.ledger.in_use()
    }

    /// Slots that wait at another endpoint than this one.
    pub(crate) fn elsewhere(&self, endpoint: EndpointId) -> impl Iterator<Item = Attempt> {
        let other = self.waits.values().filter(move |w| w.endpoint != endpoint);
        other.map(|w| w.attempt)
    }

    fn arm(
        &mut self,
        fault: Option<Fault>,
        endpoint: EndpointId,
        pieces: u64,
        attempt: Attempt,
    ) -> Result<Armed, ()> {
        let armed = self.ledger.arm(endpoint, pieces).map_err(drop)?;
        let slot = armed.key.slot();
        let waits = Waits {
            armed,
            endpoint,
            attempt,
        };
        self.waits.insert(slot, waits);
        Ok(match fault {
            Some(Fault::SlotReusedAtOnce) => Armed {
                key: SlotKey::new(slot, 0),
            },
            _ => armed,
        })
    }

    pub(crate) fn release(&mut self, armed: Armed) {
        let waits = self.waits.remove(&armed.key.slot());
        let armed = waits.expect("a slot is released once").armed;
        self.ledger.release(armed);
        self.overfull.remove(&armed.key);
    }

    /// Whom `immediate` counted for.
    pub(crate) fn count(
        &mut self,
        fault: Option<Fault>,
        endpoint: EndpointId,
        immediate: Immediate,
    ) -> Option<Attempt> {
        let (mut key, mut at) = (immediate.key(), endpoint);
        let waits = self.waits.get(&key.slot()).copied();
        if let (Some(waits), Some(fault)) = (waits, fault) {
            match fault {
                Fault::CountWithoutGeneration | Fault::SlotReusedAtOnce => key = waits.armed.key,
                Fault::EndpointNotChecked => at = waits.endpoint,
                _ => {}
            }
        }
        let counted = self
            .ledger
            .count(at, Immediate::new(key, immediate.weight()));
        let shown = immediate.key();
        match counted {
            Counted::Stale(_) => return None,
            Counted::Partial { .. } => {}
            Counted::Full => self.events.push_back(Event::Full(shown)),
            Counted::Overfull { .. } => {
                if self.overfull.insert(key) {
                    self.events.push_back(Event::Overfull(shown));
                }
            }
        }
        waits.map(|w| w.attempt)
    }
}

impl World {
    /// A helper arms a slot in every shard, or in none.
    pub(crate) fn arm(&mut self, setup: &Setup, d: usize, request: u16, works: bool) {
        let worker = self.decode(d);
        let Some(arming) = worker.arming.get(&request).cloned() else {
            return;
        };
        let inbox = worker.endpoints.get_mut(&arming.endpoint);
        let open = works && inbox.map(|inbox| inbox.open = true).is_some();
        let mut armed = Vec::new();
        if open {
            for (shard, pieces) in worker.shards.iter_mut().zip(arming.pieces.iter()) {
                let (at, of) = (arming.endpoint, arming.attempt);
                match shard.arm(setup.config.fault, at, *pieces, of) {
                    Ok(slot) => armed.push(slot),
                    Err(()) => break,
                }
            }
        }
        let said = if armed.len() == worker.shards.len() {
            Ok(armed.into())
        } else {
            for (shard, armed) in worker.shards.iter_mut().zip(armed) {
                shard.release(armed);
            }
            Err(())
        };
        if let Some(arming) = worker.arming.get_mut(&request) {
            arming.said = Some(said);
        }
    }

    /// The task hears what became of it.
    pub(crate) fn armed(&mut self, setup: &Setup, d: usize, request: u16) {
        let worker = self.decode(d);
        let Some(said) = worker.arming.remove(&request).and_then(|a| a.said) else {
            return;
        };
        let id = RequestId(request.into());
        let input = match said {
            Ok(armed) => {
                if let Some(held) = worker.held.get(&request) {
                    let peer = held.prefill;
                    for (shard, armed) in (0..).zip(armed.iter()) {
                        worker.slots.insert((shard, armed.key), (request, peer));
                    }
                }
                Input::Armed { request: id, armed }
            }
            Err(()) => Input::NotArmed {
                request: id,
                reason: String::new(),
            },
        };
        self.decode_hears(setup, d, Instant::ZERO, input);
    }

    /// An inbox is closed in all shards: nothing lands there any more.
    pub(crate) fn fence(&mut self, setup: &Setup, d: usize, peer: Life) {
        let worker = self.decode(d);
        let Some(fence) = worker.fencing.iter().find(|f| f.0 == peer).copied() else {
            return;
        };
        worker.fencing.remove(&fence);
        if let Some(inbox) = fence.1
            && !setup.config.is(Fault::RegionCloseAsFence)
        {
            worker.endpoints.remove(&inbox);
            let life = worker.life;
            self.inbox_closed(life, Some(inbox));
        }
        let peer = peer.peer(WorkerRole::Prefill);
        self.decode_hears(setup, d, Instant::ZERO, Input::Fenced { peer });
    }

    /// The task hears the next event of a shard's fabric.
    pub(crate) fn inbound(&mut self, setup: &Setup, d: usize, shard: u16) {
        let worker = self.decode(d);
        let Some(event) = worker.shards[usize::from(shard)].events.pop_front() else {
            return;
        };
        let of = |key| {
            worker
                .slots
                .get(&(shard, key))
                .map(|(r, _)| RequestId((*r).into()))
        };
        let inputs: Vec<Input> = match event {
            Event::Full(key) => {
                let full = |request| Input::Full { request, shard };
                of(key).map(full).into_iter().collect()
            }
            Event::Overfull(key) => {
                let overfull = |request| Input::Overfull { request };
                of(key).map(overfull).into_iter().collect()
            }
            Event::Failed(endpoint) => {
                let table = worker.inboxes.iter().find(|(_, e)| **e == endpoint);
                let peer = table.map(|(peer, _)| *peer);
                let theirs = worker.slots.values().filter(|(_, p)| Some(*p) == peer);
                let lost = |(request, _): &(u16, Life)| Input::WriterLost {
                    request: RequestId((*request).into()),
                    why: "the inbox failed".into(),
                };
                theirs.map(lost).collect()
            }
        };
        for input in inputs {
            let both = setup.config.is(Fault::ReadyAtFirstShard);
            if let (Input::Full { request, .. }, true) = (&input, both) {
                for shard in 0..self.decodes[d].shards.len() as u16 {
                    let request = *request;
                    self.decode_hears(setup, d, Instant::ZERO, Input::Full { request, shard });
                }
            }
            self.decode_hears(setup, d, Instant::ZERO, input);
        }
    }

    /// A peer gone wrong writes another's immediate into its own inbox.
    pub(crate) fn stray(
        &mut self,
        setup: &Setup,
        d: usize,
        shard: u16,
        at: EndpointId,
        of: Attempt,
    ) {
        let fault = setup.config.fault;
        let inbound = &mut Arc::make_mut(&mut self.decodes[d]).shards[usize::from(shard)];
        let Some(waits) = inbound.waits.values().find(|w| w.attempt == of).copied() else {
            return;
        };
        if inbound
            .count(fault, at, Immediate::new(waits.armed.key, 1))
            .is_some()
        {
            self.wrong = Some(Violation::StaleCount {
                attempt: Attempt {
                    request: 0,
                    number: 0,
                },
                counted_for: of,
            });
        }
    }
}

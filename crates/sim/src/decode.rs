//! A decode worker: the core's agent, and what its shell keeps and does beside it.
//!
//! What takes time in the shell (arming, dialling, closing) is a step of its own here, and everything
//! else may come in between.

mod inbound;
mod outputs;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tandem_core::decode::{DecodeAgent, DecodeLimits, Input, Reserve, Which, Writer};
use tandem_core::immediate::SlotKey;
use tandem_core::ledger::Armed;
use tandem_core::{EndpointId, Instant, PageIndex, RequestId, SequenceId, WorkerRole};

pub(crate) use inbound::{Event, Inbound};

use crate::config::{Config, at};
use crate::fault::Fault;
use crate::gateway::Told;
use crate::names::{Attempt, Life};
use crate::world::{Setup, World};

/// What the task keeps of a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Held {
    pub(crate) attempt: Attempt,
    pub(crate) prefill: Life,
}

/// A request whose slots are being armed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Arming {
    pub(crate) attempt: Attempt,
    pub(crate) endpoint: EndpointId,
    pub(crate) pieces: Arc<[u64]>,
    /// What the fabric said.
    pub(crate) said: Option<Result<Arc<[Armed]>, ()>>,
}

/// An inbox of each shard.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Inbox {
    pub(crate) peer: Life,
    pub(crate) open: bool,
    pub(crate) failed: bool,
}

/// A generating sequence in the engine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Sequence {
    pub(crate) request: RequestId,
    pub(crate) attempt: Attempt,
    pub(crate) pages: Arc<[PageIndex]>,
    pub(crate) ready: bool,
    pub(crate) cancelled: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct DecodeWorker {
    pub(crate) life: Life,
    pub(crate) up: bool,
    pub(crate) agent: DecodeAgent,
    pub(crate) shards: Vec<Inbound>,
    /// The task's table: each peer's inboxes.
    pub(crate) inboxes: BTreeMap<Life, EndpointId>,
    /// Inboxes that are not closed.
    pub(crate) endpoints: BTreeMap<EndpointId, Inbox>,
    next_endpoint: u64,
    pub(crate) arming: BTreeMap<u16, Arming>,
    /// Fences under way, each with the inbox to close.
    pub(crate) fencing: BTreeSet<(Life, Option<EndpointId>)>,
    pub(crate) held: BTreeMap<u16, Held>,
    pub(crate) sequences: BTreeMap<SequenceId, Sequence>,
    /// Armed slots, as the task knows them.
    pub(crate) slots: BTreeMap<(u16, SlotKey), (u16, Life)>,
    /// Whose each page is.
    pub(crate) owners: Vec<Option<Attempt>>,
    /// For [`Fault::SlotReusedAtOnce`]: released already.
    pub(crate) released: BTreeSet<(u16, Attempt)>,
    /// For [`Fault::FreeOnTimeout`]: asked to stop.
    pub(crate) stopping: BTreeSet<u16>,
}

impl DecodeWorker {
    pub(crate) fn new(setup: &Setup, life: Life) -> Self {
        let layout = setup.layout(WorkerRole::Decode);
        let limits = DecodeLimits {
            layout: Arc::clone(&layout),
            requests: 64,
            drain_timeout: Config::drain(),
        };
        let shard = |places| Inbound::new(places, setup.config.slots);
        Self {
            life,
            up: true,
            agent: DecodeAgent::new(limits),
            shards: setup.decode_places.iter().map(shard).collect(),
            inboxes: BTreeMap::new(),
            endpoints: BTreeMap::new(),
            next_endpoint: 1,
            arming: BTreeMap::new(),
            fencing: BTreeSet::new(),
            held: BTreeMap::new(),
            sequences: BTreeMap::new(),
            slots: BTreeMap::new(),
            owners: vec![None; layout.pages() as usize],
            released: BTreeSet::new(),
            stopping: BTreeSet::new(),
        }
    }

    fn new_inbox(&mut self, peer: Life) -> EndpointId {
        let id = EndpointId(self.next_endpoint);
        self.next_endpoint += 1;
        let inbox = Inbox {
            peer,
            open: false,
            failed: false,
        };
        self.endpoints.insert(id, inbox);
        id
    }

    /// Whether writes to this inbox can land.
    pub(crate) fn receives(&self, life: Life, inbox: EndpointId) -> bool {
        self.up && self.life == life && self.endpoints.get(&inbox).is_some_and(|i| i.open)
    }
}

impl World {
    pub(crate) fn decode(&mut self, index: usize) -> &mut DecodeWorker {
        Arc::make_mut(&mut self.decodes[index])
    }

    /// The decode task hears of something and carries out what the agent decides.
    pub(crate) fn decode_hears(&mut self, setup: &Setup, d: usize, now: Instant, input: Input) {
        self.decode(d).agent.handle(now, input);
        while let Some(output) = self.decode(d).agent.poll() {
            self.decode_output(setup, d, output);
        }
    }

    /// A gateway's request arrives.
    pub(crate) fn generate(&mut self, setup: &Setup, attempt: Attempt) {
        let gateway = Arc::make_mut(&mut self.gateway);
        let Some(ask) = gateway.asks.get_mut(&attempt) else {
            return;
        };
        ask.arrived = true;
        let (d, prefill) = (ask.decode.index(), ask.prefill);
        let worker = self.decode(d);
        let lease = setup.lease(attempt);
        if worker.held.contains_key(&lease) {
            let why = tandem_core::decode::Refusal::Invalid("here already".into());
            return self.tell(attempt, Told::Refused(why));
        }
        worker.held.insert(lease, Held { attempt, prefill });
        let plan = setup.config.plan(attempt.request);
        let reserve = Reserve {
            request: RequestId(lease.into()),
            tokens: plan.tokens,
            new_tokens: plan.new_tokens,
            prefill: Some(Writer {
                peer: prefill.peer(WorkerRole::Prefill),
                layout: setup.layout(WorkerRole::Prefill),
            }),
            deadline: at(plan.deadline),
        };
        self.decode_hears(setup, d, Instant::ZERO, Input::Reserve(reserve));
    }

    pub(crate) fn tell(&mut self, attempt: Attempt, told: Told) {
        Arc::make_mut(&mut self.gateway).tell(attempt, told);
    }

    /// The gateway wants no more of a request, or its stream broke.
    pub(crate) fn cancel(&mut self, setup: &Setup, attempt: Attempt) {
        let gateway = Arc::make_mut(&mut self.gateway);
        let Some(ask) = gateway.asks.get_mut(&attempt) else {
            return;
        };
        ask.cancelled = true;
        let (d, request) = (ask.decode.index(), RequestId(setup.lease(attempt).into()));
        if ask.let_go {
            gateway.asks.remove(&attempt);
        }
        self.decode_hears(setup, d, Instant::ZERO, Input::Cancel { request });
    }

    pub(crate) fn decode_tick(&mut self, setup: &Setup, d: usize) {
        let Some(now) = self.decodes[d].agent.deadline() else {
            return;
        };
        let stopping = std::mem::take(&mut self.decode(d).stopping);
        if setup.config.is(Fault::FreeOnTimeout) && now >= at(Config::DRAIN) {
            for request in stopping {
                let input = Input::WriterGone {
                    request: RequestId(request.into()),
                    how: tandem_core::decode::WriterEnd::Drained,
                };
                self.decode_hears(setup, d, now, input);
            }
        } else {
            self.decode(d).stopping = stopping;
        }
        self.decode_hears(setup, d, now, Input::Tick);
    }

    pub(crate) fn sequence_ended(
        &mut self,
        setup: &Setup,
        d: usize,
        sequence: SequenceId,
        how: tandem_core::decode::SequenceEnd,
    ) {
        let Some(ended) = self.decode(d).sequences.remove(&sequence) else {
            return;
        };
        if how == tandem_core::decode::SequenceEnd::Finished {
            self.tell(ended.attempt, Told::Finished);
        }
        let input = Input::SequenceEnded {
            request: ended.request,
            which: Which::Decode,
            how,
        };
        self.decode_hears(setup, d, Instant::ZERO, input);
    }
}

//! A prefill worker: the core's agent, and what its shell, its watcher and its fabric keep and do.

mod outbound;
mod outputs;
mod ways;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use tandem_core::prefill::{Input, PrefillAgent, PrefillLimits};
use tandem_core::push::{Push, PushAction, PushFlow, PushPlanner, StepPart};
use tandem_core::{EndpointId, FlowId, Instant, PageIndex, SequenceId, TransferId, WorkerRole};

pub(crate) use outbound::{Event, Outbound};

use crate::config::{Config, at};
use crate::fault::Fault;
use crate::names::{Attempt, Life};
use crate::stream::{Order, PrefillEnd, Reply};
use crate::world::{Setup, World};

/// From one shard to the inbox of one shard of a decode worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct To {
    pub(crate) source: u16,
    pub(crate) peer: Life,
    pub(crate) target: u16,
    pub(crate) inbox: EndpointId,
}

impl To {
    const fn same_way(&self, other: &Self) -> bool {
        self.source == other.source
            && self.target == other.target
            && self.peer.worker == other.peer.worker
    }
}

/// A transfer in flight.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Held {
    pub(crate) order: Arc<Order>,
    pub(crate) ways: Vec<(FlowId, To)>,
    /// For faults: its end was told already, or is not to be told yet.
    pub(crate) told: bool,
}

/// Ways that are being opened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Opening {
    pub(crate) ways: Vec<(FlowId, To, EndpointId)>,
    pub(crate) writes: VecDeque<PushAction>,
    /// What became of it.
    pub(crate) done: Option<bool>,
}

/// An outbox.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Outbox {
    pub(crate) source: u16,
    pub(crate) open: bool,
    pub(crate) failed: bool,
}

/// What the watcher hands out of a transfer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Watched {
    pub(crate) actions: VecDeque<PushAction>,
    /// Its prompt is being computed.
    pub(crate) started: bool,
    /// The engine gave the prompt up: the rest may never be handed out.
    pub(crate) given_up: bool,
}

/// A prompt in the engine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Prompt {
    pub(crate) transfer: TransferId,
    pub(crate) cancelled: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PrefillWorker {
    pub(crate) life: Life,
    pub(crate) up: bool,
    pub(crate) agent: PrefillAgent,
    pub(crate) shards: Vec<Outbound>,
    /// The task's table.
    pub(crate) outboxes: BTreeMap<To, EndpointId>,
    /// Outboxes that are not closed.
    pub(crate) endpoints: BTreeMap<EndpointId, Outbox>,
    next_endpoint: u64,
    next_transfer: u64,
    pub(crate) held: BTreeMap<TransferId, Held>,
    pub(crate) opening: BTreeMap<TransferId, Opening>,
    pub(crate) watched: BTreeMap<TransferId, Watched>,
    pub(crate) stop_watch: BTreeSet<TransferId>,
    pub(crate) stopping: BTreeSet<FlowId>,
    pub(crate) closing: BTreeSet<EndpointId>,
    /// Fences under way, each with what it closes.
    pub(crate) fencing: Vec<(TransferId, Vec<EndpointId>)>,
    pub(crate) prompts: BTreeMap<SequenceId, Prompt>,
    /// Whose each page is, and whose prompt was computed there last.
    pub(crate) owners: Vec<Option<Attempt>>,
    pub(crate) contents: Vec<Option<Attempt>>,
}

impl PrefillWorker {
    pub(crate) fn new(setup: &Setup, life: Life) -> Self {
        let layout = setup.layout(WorkerRole::Prefill);
        let pages = layout.pages() as usize;
        let limits = PrefillLimits {
            layout,
            queue: 64,
            drain_timeout: Config::drain(),
        };
        Self {
            life,
            up: true,
            agent: PrefillAgent::new(limits),
            shards: vec![Outbound::default(); setup.prefill_places.len()],
            outboxes: BTreeMap::new(),
            endpoints: BTreeMap::new(),
            next_endpoint: 1,
            next_transfer: 1,
            held: BTreeMap::new(),
            opening: BTreeMap::new(),
            watched: BTreeMap::new(),
            stop_watch: BTreeSet::new(),
            stopping: BTreeSet::new(),
            closing: BTreeSet::new(),
            fencing: Vec::new(),
            prompts: BTreeMap::new(),
            owners: vec![None; pages],
            contents: vec![None; pages],
        }
    }

    fn outbox(&mut self, to: To) -> EndpointId {
        if let Some(endpoint) = self.outboxes.get(&to) {
            return *endpoint;
        }
        let endpoint = EndpointId(self.next_endpoint);
        self.next_endpoint += 1;
        self.outboxes.insert(to, endpoint);
        let fresh = Outbox {
            source: to.source,
            open: false,
            failed: false,
        };
        self.endpoints.insert(endpoint, fresh);
        endpoint
    }
}

impl World {
    pub(crate) fn prefill(&mut self, index: usize) -> &mut PrefillWorker {
        Arc::make_mut(&mut self.prefills[index])
    }

    /// The prefill task hears of something and carries out what the agent decides.
    pub(crate) fn prefill_hears(&mut self, setup: &Setup, p: usize, now: Instant, input: Input) {
        self.prefill(p).agent.handle(now, input);
        while let Some(output) = self.prefill(p).agent.poll() {
            self.prefill_output(setup, p, output);
        }
    }

    /// A prompt is handed over.
    pub(crate) fn take_on(&mut self, setup: &Setup, p: usize, order: Arc<Order>) {
        let worker = self.prefill(p);
        let transfer = TransferId(worker.next_transfer);
        worker.next_transfer += 1;
        let attempt = order.attempt;
        let plan = setup.config.plan(attempt.request);
        let held = Held {
            order,
            ways: Vec::new(),
            told: false,
        };
        worker.held.insert(transfer, held);
        if let Some(stream) = self.streams.get_mut(&attempt) {
            Arc::make_mut(stream).prefill_end = PrefillEnd::Serving(transfer);
        }
        let input = Input::Dispatch {
            transfer,
            tokens: plan.tokens,
            blocks: [].into(),
            flows: setup.flows.len() as u16,
            deadline: at(plan.deadline),
        };
        self.prefill_hears(setup, p, Instant::ZERO, input);
    }

    /// The prefill worker answers on a transfer's stream.
    pub(crate) fn answer(&mut self, p: usize, transfer: TransferId, reply: Reply) {
        let Some(held) = self.prefills[p].held.get(&transfer) else {
            return;
        };
        if let Some(stream) = self.streams.get_mut(&held.order.attempt) {
            Arc::make_mut(stream).answer(reply);
        }
    }

    pub(crate) fn prefill_tick(&mut self, setup: &Setup, p: usize) {
        if let Some(now) = self.prefills[p].agent.deadline() {
            self.prefill_hears(setup, p, now, Input::Tick);
        }
    }

    /// The engine has let go of a prompt.
    pub(crate) fn prompt_ended(
        &mut self,
        setup: &Setup,
        p: usize,
        sequence: SequenceId,
        how: Result<(), String>,
    ) {
        let Some(prompt) = self.prefill(p).prompts.remove(&sequence) else {
            return;
        };
        let (transfer, computed) = (prompt.transfer, how.is_ok());
        if let Some(watched) = self.prefill(p).watched.get_mut(&transfer) {
            watched.given_up = !computed;
        }
        let input = Input::SequenceEnded { transfer, how };
        self.prefill_hears(setup, p, Instant::ZERO, input);
        if computed && setup.config.is(Fault::SourceUnpinnedEarly) {
            let worker = self.prefill(p);
            let Some(held) = worker.held.get_mut(&transfer) else {
                return;
            };
            held.told = true;
            let flows: Vec<FlowId> = held.ways.iter().map(|(flow, _)| *flow).collect();
            for flow in flows {
                let drained = Input::Drained {
                    flow,
                    complete: true,
                    settled: true,
                    error: None,
                };
                self.prefill_hears(setup, p, Instant::ZERO, drained);
            }
        }
    }

    /// Stops what the watcher hands out; the task hears of it.
    pub(crate) fn watch_stopped(&mut self, setup: &Setup, p: usize, transfer: TransferId) {
        let worker = self.prefill(p);
        worker.stop_watch.remove(&transfer);
        worker.watched.remove(&transfer);
        self.prefill_hears(setup, p, Instant::ZERO, Input::WatchStopped { transfer });
    }
}

/// Everything that the watcher will hand out of a transfer, by the core's planner.
pub(crate) fn pushes(
    setup: &Setup,
    order: &Order,
    transfer: TransferId,
    pages: &Arc<[PageIndex]>,
    names: &[FlowId],
) -> VecDeque<PushAction> {
    let (source, target) = (
        setup.layout(WorkerRole::Prefill),
        setup.layout(WorkerRole::Decode),
    );
    let sequence = SequenceId(0);
    let tokens = setup.config.plan(order.attempt.request).tokens - 1;
    let grain = tandem_core::plan::grain(setup.config.page_tokens, setup.config.page_tokens);
    let flow = |(id, flow): (&FlowId, &tandem_core::flow::Flow)| PushFlow {
        id: *id,
        flow: flow.clone(),
        target: target.arena(flow.target),
        target_head: target.shards()[usize::from(flow.target)].heads.start,
        key: order.keys[usize::from(flow.target)],
    };
    let push = Push {
        transfer,
        sequence,
        source_pages: Arc::clone(pages),
        target_pages: Arc::clone(&order.pages),
        target_from: 0,
        tokens: tandem_core::plan::travelling(0, tokens, grain),
        flows: names.iter().zip(setup.flows.iter()).map(flow).collect(),
    };
    let mut planner = PushPlanner::new((*source).clone(), u32::MAX, 0);
    planner.start(push);
    let part = StepPart {
        sequence,
        end: tokens,
        last: true,
    };
    planner.step_planned(0, &[part]);
    let mut actions = VecDeque::new();
    planner.progress(source.geometry().bumps(), |action| {
        actions.push_back(action)
    });
    actions
}

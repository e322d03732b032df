//! The decode task: it owns the [`DecodeAgent`] and carries out what the agent decides.
//!
//! Everything that takes time (opening an inbox, talking to a prefill worker, closing an endpoint)
//! runs in tasks of its own that report back as [`Happened`]; this one never waits for any of them.

pub(crate) mod constraint;
mod dispatch;
pub(crate) mod generate;
mod inboxes;
mod outputs;
mod request;
mod traced;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tandem_config::WorkerConfig;
use tandem_core::decode::{DecodeAgent, DecodeLimits, Input, Peer, SequenceEnd, Which};
use tandem_core::immediate::SlotKey;
use tandem_core::ledger::Armed;
use tandem_core::{RequestId, SequenceId};
use tandem_engine::{Engine, Event};
use tandem_fabric::FabricEvent;
use tandem_wire::proto;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::cache::CacheLog;
use crate::clock::Clock;
use crate::deferred::{self, Commands};
use crate::fabrics::ShardEvents;
use crate::load::{Figures, Gauges};
use crate::peers::Peers;
use crate::start::{Facts, StartError};
use inboxes::Inboxes;
use request::Held;

/// What generate streams and this task's own helpers report.
pub(crate) enum Happened {
    /// A gateway asks for an answer.
    Generate(Box<generate::Asked>),
    /// It wants no more of it.
    Cancel(RequestId),
    /// A helper has something for the agent.
    Input(Input),
    /// The prefill worker has begun, and so many tokens need not be computed.
    Began(RequestId, u32),
    /// It has pushed all of it, and told its times.
    Pushed(RequestId, proto::PromptTimes),
    /// A slot is armed.
    Armed(RequestId, Arc<[Armed]>),
}

/// What may wait for the task.
const HAPPENED: usize = 4096;

/// The way to the task.
pub(crate) type Handle = mpsc::Sender<Happened>;

/// The task's state.
pub(crate) struct DecodeTask {
    facts: Arc<Facts>,
    clock: Clock,
    agent: DecodeAgent,
    commands: Commands,
    peers: Arc<Peers>,
    inboxes: Inboxes,
    gauges: Arc<Gauges>,
    cache: Arc<CacheLog>,
    held: HashMap<RequestId, Held>,
    sequences: HashMap<SequenceId, (RequestId, Which)>,
    /// Armed slots, by shard.
    slots: HashMap<(u16, SlotKey), (RequestId, Peer)>,
    handle: Handle,
    happened: mpsc::Receiver<Happened>,
    helpers: JoinSet<()>,
    figures: Figures,
}

impl DecodeTask {
    pub(crate) fn new(
        config: &WorkerConfig,
        facts: Arc<Facts>,
        engine: Arc<dyn Engine>,
        peers: Peers,
        gauges: Arc<Gauges>,
    ) -> Self {
        let (handle, happened) = mpsc::channel(HAPPENED);
        let limits = DecodeLimits {
            layout: Arc::clone(&facts.layout),
            requests: config.queue_limit + facts.layout.pages() as usize,
            drain_timeout: config.drain_timeout,
        };
        Self {
            clock: Clock::start(),
            agent: DecodeAgent::new(limits),
            commands: Commands::new(engine),
            peers: Arc::new(peers),
            inboxes: Inboxes::default(),
            gauges,
            cache: Arc::new(CacheLog::default()),
            held: HashMap::new(),
            sequences: HashMap::new(),
            slots: HashMap::new(),
            handle,
            happened,
            helpers: JoinSet::new(),
            figures: Figures::default(),
            facts,
        }
    }

    pub(crate) fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Runs until `stop` says so and every request has ended, or something underneath has died.
    pub(crate) async fn run(
        mut self,
        mut engine: mpsc::Receiver<Event>,
        mut fabric: Option<ShardEvents>,
        mut stop: oneshot::Receiver<()>,
    ) -> Result<(), StartError> {
        let mut retry = tokio::time::interval(deferred::RETRY);
        retry.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut stopping = false;
        self.publish();
        loop {
            tokio::select! {
                event = engine.recv() => match event {
                    Some(event) => self.engine_said(event),
                    None => return Err(StartError::EngineDied),
                },
                event = next(&mut fabric) => match event {
                    Some((shard, event)) => self.fabric_said(shard, event),
                    None => return Err(StartError::FabricDied),
                },
                Some(happened) = self.happened.recv() => self.happened(happened),
                () = self.clock.sleep_until(self.agent.deadline()) => self.input(Input::Tick),
                _ = retry.tick(), if !self.commands.is_empty() => self.commands.flush(),
                Some(_) = self.helpers.join_next() => {}
                _ = &mut stop, if !stopping => {
                    stopping = true;
                    self.stop();
                }
            }
            self.carry_out();
            self.publish();
            if stopping && self.agent.requests() == 0 {
                break;
            }
        }
        // Fences that are under way must end before the arena goes.
        let _ = tokio::time::timeout(Duration::from_secs(1), self.helpers.join_all()).await;
        Ok(())
    }

    fn stop(&mut self) {
        self.agent.stop();
        self.figures.stopping = true;
        let ids: Vec<RequestId> = self.held.keys().copied().collect();
        for request in ids {
            self.input(Input::Cancel { request });
        }
    }

    fn input(&mut self, input: Input) {
        self.agent.handle(self.clock.now(), input);
    }

    fn happened(&mut self, happened: Happened) {
        match happened {
            Happened::Generate(asked) => self.reserve(*asked),
            Happened::Cancel(request) => self.input(Input::Cancel { request }),
            Happened::Input(input) => self.input(input),
            Happened::Began(request, cached) => {
                if let Some(held) = self.held.get_mut(&request) {
                    held.cached = cached;
                }
            }
            Happened::Pushed(request, times) => {
                if let Some(held) = self.held.get_mut(&request) {
                    held.pushed(times);
                }
            }
            Happened::Armed(request, armed) => {
                if let Some(peer) = self.held.get(&request).and_then(|h| h.peer()) {
                    for (shard, armed) in (0..).zip(armed.iter()) {
                        let key = (shard, armed.key);
                        self.slots.insert(key, (request, peer.clone()));
                    }
                }
                self.input(Input::Armed { request, armed });
            }
        }
    }

    fn reserve(&mut self, asked: generate::Asked) {
        let reserve = asked.reserve(&self.facts, self.clock.now());
        self.held.insert(reserve.request, Held::new(asked));
        self.input(Input::Reserve(reserve));
    }

    fn engine_said(&mut self, event: Event) {
        match event {
            Event::Prefilled { sequence } => {
                if let Some((request, _)) = self.sequences.remove(&sequence) {
                    let tokens = self.held.get(&request).map_or(0, Held::prefilled);
                    self.figures.prompt_tokens += tokens;
                    self.input(Input::PrefilledHere { request });
                }
            }
            Event::Token {
                sequence,
                token,
                text,
                logprobs,
            } => {
                self.figures.generated_tokens += 1;
                if let Some(held) = self.held_of(sequence) {
                    held.token(token, text, logprobs);
                    let gap = held.gap_us();
                    self.figures.decode_step_us.measure(gap);
                }
            }
            Event::Verified {
                proposed, accepted, ..
            } => {
                self.figures.proposed_tokens += proposed.len() as u64;
                self.figures.accepted_tokens += u64::from(accepted);
            }
            Event::Finished {
                sequence,
                text,
                reason,
                stop_text,
            } => {
                let facts = Arc::clone(&self.facts);
                let blocks = self.held_of(sequence).map(|held| {
                    held.finished(text, reason, stop_text);
                    held.blocks(&facts)
                });
                let blocks = blocks.unwrap_or_else(|| [].into());
                self.sequence_ended(sequence, SequenceEnd::Finished(blocks));
            }
            Event::Cancelled { sequence } => {
                self.sequence_ended(sequence, SequenceEnd::Cancelled);
            }
            Event::Failed { sequence, message } => {
                self.sequence_ended(sequence, SequenceEnd::Failed(message));
            }
        }
    }

    fn held_of(&mut self, sequence: SequenceId) -> Option<&mut Held> {
        let (request, _) = self.sequences.get(&sequence)?;
        self.held.get_mut(request)
    }

    fn sequence_ended(&mut self, sequence: SequenceId, how: SequenceEnd) {
        if let Some((request, which)) = self.sequences.remove(&sequence) {
            self.input(Input::SequenceEnded {
                request,
                which,
                how,
            });
        }
    }

    fn fabric_said(&mut self, shard: u16, event: FabricEvent) {
        match event {
            FabricEvent::Full { armed, .. } => {
                if let Some((request, _)) = self.slots.get(&(shard, armed)) {
                    let request = *request;
                    self.input(Input::Full { request, shard });
                }
            }
            FabricEvent::Overfull { armed, .. } => {
                if let Some((request, _)) = self.slots.get(&(shard, armed)) {
                    let request = *request;
                    self.input(Input::Overfull { request });
                }
            }
            FabricEvent::EndpointFailed { endpoint, error } => {
                let Some(peer) = self.inboxes.peer_of(shard, endpoint) else {
                    return;
                };
                tracing::warn!(worker = %peer.worker, error, "an inbox failed");
                let theirs: Vec<RequestId> = self
                    .slots
                    .values()
                    .filter(|(_, p)| *p == peer)
                    .map(|(request, _)| *request)
                    .collect();
                for request in theirs {
                    self.input(Input::WriterLost {
                        request,
                        why: error.clone(),
                    });
                }
            }
            FabricEvent::FlowEnded(_) => {}
        }
    }

    /// For those who report what is held.
    pub(crate) fn cache(&self) -> Arc<CacheLog> {
        Arc::clone(&self.cache)
    }

    fn publish(&mut self) {
        self.figures.pages = self.agent.pages();
        self.figures.requests = self.agent.requests() as u32;
        self.figures.running = self.sequences.len() as u32;
        let waiting = self.held.values().filter(|h| !h.has_started());
        self.figures.queued_requests = waiting.clone().count() as u32;
        // Those that name a prefill worker are computed there.
        let here = waiting.filter(|h| h.prefill.is_none());
        self.figures.queued_prompt_tokens = here.map(Held::prefilled).sum();
        self.gauges.publish(self.figures);
    }
}

async fn next(fabric: &mut Option<ShardEvents>) -> Option<(u16, FabricEvent)> {
    match fabric {
        Some(fabric) => fabric.recv().await,
        None => std::future::pending().await,
    }
}

/// Shorthand for a reply.
pub(crate) const fn reply(kind: proto::generate_reply::Kind) -> proto::GenerateReply {
    proto::GenerateReply { kind: Some(kind) }
}

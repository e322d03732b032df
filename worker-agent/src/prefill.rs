//! The prefill task: it owns the [`PrefillAgent`] and carries out what the agent decides.

pub(crate) mod dispatch;
mod outboxes;
mod outputs;
mod traced;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tandem_config::WorkerConfig;
use tandem_core::prefill::{Input, PrefillAgent, PrefillLimits};
use tandem_core::{FlowId, SequenceId, TransferId};
use tandem_engine::{Engine, Event};
use tandem_fabric::{FabricEvent, FlowEnded};
use tandem_telemetry::Spans;
use tandem_wire::proto;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::cache::CacheLog;
use crate::clock::Clock;
use crate::deferred::{self, Commands};
use crate::fabrics::{Fabrics, ShardEvents};
use crate::load::{Figures, Gauges};
use crate::start::{Facts, StartError};
use crate::watcher::{Orders, Report, Watcher};
use dispatch::Asked;
use outboxes::{Outboxes, To};
use traced::{Computed, Traced};

/// What dispatch streams and this task's own helpers report.
pub(crate) enum Happened {
    /// A decode worker hands a prompt over; the answer is the transfer's name.
    Dispatch(Box<Asked>, oneshot::Sender<TransferId>),
    /// A helper or a stream has something for the agent.
    Input(Input),
    /// The way to a transfer's decode worker is open.
    Opened(TransferId),
    /// An outbox is closed.
    Closed(To),
}

/// What may wait for the task.
const HAPPENED: usize = 4096;

/// The way to the task.
pub(crate) type Handle = mpsc::Sender<Happened>;

/// A transfer in flight.
struct Held {
    asked: Asked,
    sequence: Option<SequenceId>,
    /// Tokens that are not found in the cache.
    to_compute: u64,
    /// From its first step's announcement to its last layer's end.
    computed: Option<(Instant, Instant)>,
    /// The flows, as their source shards' fabrics know them.
    flows: Vec<Way>,
    ended: Totals,
}

/// One flow's way.
#[derive(Clone)]
struct Way {
    flow: FlowId,
    to: To,
}

/// What the ended flows of a transfer did.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    writes: u32,
    bytes: u64,
    last_completion: Option<Instant>,
}

/// The task's state.
pub(crate) struct PrefillTask {
    fabrics: Fabrics,
    clock: Clock,
    agent: PrefillAgent,
    commands: Commands,
    orders: Orders,
    /// Stops that the watcher's full queue did not take.
    unstopped: Vec<TransferId>,
    outboxes: Outboxes,
    gauges: Arc<Gauges>,
    cache: Arc<CacheLog>,
    held: HashMap<TransferId, Held>,
    sequences: HashMap<SequenceId, TransferId>,
    flows: HashMap<FlowId, TransferId>,
    /// Transfers whose trace is recorded, until all is known of them.
    traced: HashMap<TransferId, Traced>,
    spans: Spans,
    next_transfer: u64,
    handle: Handle,
    happened: mpsc::Receiver<Happened>,
    helpers: JoinSet<()>,
    figures: Figures,
}

impl PrefillTask {
    pub(crate) fn new(
        config: &WorkerConfig,
        facts: &Facts,
        fabrics: Fabrics,
        engine: Arc<dyn Engine>,
        orders: Orders,
        gauges: Arc<Gauges>,
    ) -> Self {
        let (handle, happened) = mpsc::channel(HAPPENED);
        let limits = PrefillLimits {
            layout: Arc::clone(&facts.layout),
            queue: config.queue_limit,
            drain_timeout: config.drain_timeout,
        };
        Self {
            clock: Clock::start(),
            agent: PrefillAgent::new(limits),
            commands: Commands::new(engine),
            orders,
            unstopped: Vec::new(),
            outboxes: Outboxes::default(),
            gauges,
            cache: Arc::new(CacheLog::default()),
            held: HashMap::new(),
            sequences: HashMap::new(),
            flows: HashMap::new(),
            traced: HashMap::new(),
            spans: facts.spans.clone(),
            next_transfer: 1,
            handle,
            happened,
            helpers: JoinSet::new(),
            figures: Figures::default(),
            fabrics,
        }
    }

    pub(crate) fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Runs until `stop` says so and every transfer has ended, or something underneath has died.
    pub(crate) async fn run(
        mut self,
        mut engine: mpsc::Receiver<Event>,
        mut fabric: ShardEvents,
        mut watcher: Watcher,
        mut stop: oneshot::Receiver<()>,
    ) -> Result<(), StartError> {
        let mut retry = tokio::time::interval(deferred::RETRY);
        retry.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut stopping = false;
        self.publish();
        loop {
            let behind = !self.commands.is_empty() || !self.unstopped.is_empty();
            tokio::select! {
                event = engine.recv() => match event {
                    Some(event) => self.engine_said(event),
                    None => return Err(StartError::EngineDied),
                },
                event = fabric.recv() => match event {
                    Some((shard, event)) => self.fabric_said(shard, event),
                    None => return Err(StartError::FabricDied),
                },
                report = watcher.reports.recv() => match report {
                    Some(report) => self.watcher_said(report),
                    None => return Err(StartError::WatcherDied),
                },
                Some(happened) = self.happened.recv() => self.happened(happened),
                () = self.clock.sleep_until(self.agent.deadline()) => self.input(Input::Tick),
                _ = retry.tick(), if behind => self.catch_up(),
                Some(_) = self.helpers.join_next() => {}
                _ = &mut stop, if !stopping => {
                    stopping = true;
                    self.stop();
                }
            }
            self.carry_out();
            self.publish();
            if stopping && self.agent.transfers() == 0 {
                break;
            }
        }
        let _ = tokio::time::timeout(Duration::from_secs(1), self.helpers.join_all()).await;
        Ok(())
    }

    fn stop(&mut self) {
        self.agent.stop();
        self.figures.stopping = true;
        let ids: Vec<TransferId> = self.held.keys().copied().collect();
        for transfer in ids {
            self.input(Input::Cancel { transfer });
        }
    }

    fn input(&mut self, input: Input) {
        self.agent.handle(self.clock.now(), input);
    }

    fn catch_up(&mut self) {
        self.commands.flush();
        let orders = &self.orders;
        self.unstopped
            .retain(|transfer| orders.stop(*transfer).is_err());
    }

    fn happened(&mut self, happened: Happened) {
        match happened {
            Happened::Dispatch(asked, name) => {
                let transfer = TransferId(self.next_transfer);
                self.next_transfer += 1;
                let input = Input::Dispatch {
                    transfer,
                    tokens: asked.tokens.len() as u32,
                    blocks: Arc::clone(&asked.blocks),
                    flows: asked.flows.len() as u16,
                    deadline: self.clock.now()
                        + asked.deadline.saturating_duration_since(Instant::now()),
                };
                if let Some(context) = asked.trace.clone() {
                    let traced = Traced::new(context, Instant::now(), asked.tokens.len());
                    self.traced.insert(transfer, traced);
                }
                let held = Held {
                    asked: *asked,
                    sequence: None,
                    to_compute: 0,
                    computed: None,
                    flows: Vec::new(),
                    ended: Totals::default(),
                };
                self.held.insert(transfer, held);
                // A stream that has ended meanwhile cannot be told; its loss is told by the stream.
                let stays = name.send(transfer).is_ok();
                self.input(input);
                if !stays {
                    self.input(Input::PeerLost { transfer });
                }
            }
            Happened::Input(input) => self.input(input),
            Happened::Opened(transfer) => self.opened(transfer),
            Happened::Closed(to) => self.outboxes.closed(&to),
        }
    }

    fn engine_said(&mut self, event: Event) {
        let (sequence, how) = match event {
            Event::Prefilled { sequence } => (sequence, Ok(())),
            Event::Cancelled { sequence } => (sequence, Err("it was cancelled".to_owned())),
            Event::Failed { sequence, message } => (sequence, Err(message)),
            Event::Token { sequence, .. }
            | Event::Verified { sequence, .. }
            | Event::Finished { sequence, .. } => {
                tracing::error!(?sequence, "a prefill engine generated a token");
                return;
            }
        };
        if let Some(transfer) = self.sequences.remove(&sequence) {
            if how.is_ok() {
                let held = self.held.get(&transfer);
                self.figures.prompt_tokens += held.map_or(0, |h| h.asked.tokens.len() as u64 - 1);
            }
            self.input(Input::SequenceEnded { transfer, how });
        }
    }

    fn fabric_said(&mut self, shard: u16, event: FabricEvent) {
        match event {
            FabricEvent::FlowEnded(end) => {
                let flow = end.ended.flow;
                if let Some(transfer) = self.flows.remove(&flow)
                    && let Some(held) = self.held.get_mut(&transfer)
                {
                    held.ended.add(&end);
                }
                self.input(Input::Drained {
                    flow,
                    complete: end.ended.complete,
                    settled: end.settled,
                    error: end.error,
                });
            }
            FabricEvent::EndpointFailed { endpoint, error } => {
                tracing::warn!(error, "an outbox failed");
                if let Some(to) = self.outboxes.with_endpoint(shard, endpoint) {
                    self.close(to);
                }
            }
            FabricEvent::Full { .. } | FabricEvent::Overfull { .. } => {}
        }
    }

    fn watcher_said(&mut self, report: Report) {
        match report {
            Report::Stopped(transfer) => self.input(Input::WatchStopped { transfer }),
            Report::Sealed {
                transfer,
                started,
                computed,
                pushes,
            } => {
                if let Some(traced) = self.traced.get_mut(&transfer) {
                    traced.computed(Computed {
                        started,
                        computed,
                        pushes,
                    });
                    self.tell(transfer);
                }
                if let Some(held) = self.held.get_mut(&transfer) {
                    held.computed = Some((started, computed));
                }
            }
        }
    }

    /// Hands the spans of a transfer over once all is known.
    fn tell(&mut self, transfer: TransferId) {
        if self.traced.get(&transfer).is_some_and(Traced::is_complete)
            && let Some(traced) = self.traced.remove(&transfer)
        {
            traced.record(&self.spans);
        }
    }

    /// For those who report what is held.
    pub(crate) fn cache(&self) -> Arc<CacheLog> {
        Arc::clone(&self.cache)
    }

    fn publish(&mut self) {
        self.figures.pages = self.agent.pages();
        self.figures.requests = self.agent.transfers() as u32;
        self.figures.queued_requests = self.agent.queued() as u32;
        self.figures.queued_prompt_tokens = self.agent.queued_tokens();
        self.figures.running = self.sequences.len() as u32;
        self.gauges.publish(self.figures);
    }
}

impl Totals {
    fn add(&mut self, end: &FlowEnded) {
        self.writes += end.ended.writes;
        self.bytes += end.ended.bytes;
        self.last_completion = self.last_completion.max(end.last_completion);
    }
}

/// Shorthand for a reply.
pub(crate) const fn reply(kind: proto::dispatch_reply::Kind) -> proto::DispatchReply {
    proto::DispatchReply { kind: Some(kind) }
}

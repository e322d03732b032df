//! The watcher thread: it polls the engine's counter and hands out each layer's writes as soon as
//! the layer is complete.
//!
//! It spins for a little while, then sleeps for a part of the time that nothing has moved: on a machine
//! with few cores a watcher that spins, or wakes every 50 µs, would take the engine's. It waits for nobody: what the fabric does not take is kept (at most what
//! the running transfers hold) and offered again.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use tandem_core::layout::WorkerLayout;
use tandem_core::push::{Push, PushAction, PushPlanner, StepPart};
use tandem_core::{FlowId, SequenceId, TransferId};
use tandem_engine::{Progress, StepPlan, StepWatch};
use tandem_fabric::{Fabric, Pusher, Write};
use tokio::sync::mpsc;

use crate::fabrics::Fabrics;

/// Orders that wait for the thread.
const ORDERS: usize = 8192;
/// Reports that wait for the prefill task.
const REPORTS: usize = 8192;
/// Polls without a sleep for so long after something moved.
const SPIN: Duration = Duration::from_micros(20);
/// A sleep between polls is one part in so many of the time that nothing has moved, so that a layer is
/// seen late by at most that part of its own time.
const PART: u32 = 32;
/// The shortest and the longest such sleep.
const NAP: (Duration, Duration) = (Duration::from_micros(20), Duration::from_millis(1));
/// The longest sleep while nothing runs; an order ends it.
const REST: Duration = Duration::from_millis(500);

enum Order {
    Start(Push),
    Stop(TransferId),
    Step(StepPlan, Instant),
    End,
}

/// Where orders go, from the engine's thread and from the prefill task.
#[derive(Clone)]
pub(crate) struct Orders(SyncSender<Order>);

impl StepWatch for Orders {
    fn step_planned(&mut self, plan: StepPlan) {
        // Waits where the watcher is far behind; it never waits for the engine.
        let _ = self.0.send(Order::Step(plan, Instant::now()));
    }
}

impl Orders {
    /// Pushes a transfer from now on. `Err` where the queue is full or the thread has ended.
    pub(crate) fn start(&self, push: Push) -> Result<(), ()> {
        self.0.try_send(Order::Start(push)).map_err(|_| ())
    }

    /// Hands out no more of a transfer, then reports [`Report::Stopped`]. `Err` where it must be
    /// tried again.
    pub(crate) fn stop(&self, transfer: TransferId) -> Result<(), ()> {
        match self.0.try_send(Order::Stop(transfer)) {
            Err(TrySendError::Full(_)) => Err(()),
            Ok(()) | Err(TrySendError::Disconnected(_)) => Ok(()),
        }
    }
}

/// What the thread tells the prefill task.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Report {
    /// Nothing more of the transfer will be handed out.
    Stopped(TransferId),
    /// Everything of it has been handed out.
    Sealed {
        transfer: TransferId,
        /// When its first step was announced.
        started: Instant,
        /// When its last layer was seen to be complete.
        computed: Instant,
    },
}

/// The running thread.
pub(crate) struct Watcher {
    pub(crate) orders: Orders,
    pub(crate) reports: mpsc::Receiver<Report>,
    thread: Option<std::thread::JoinHandle<()>>,
}

pub(crate) struct Queue(Receiver<Order>);

pub(crate) fn orders() -> (Orders, Queue) {
    let (orders, queue) = sync_channel(ORDERS);
    (Orders(orders), Queue(queue))
}

impl Watcher {
    pub(crate) fn start(
        source: WorkerLayout,
        max_write_bytes: u32,
        progress: Arc<Progress>,
        fabrics: &Fabrics,
        (orders, queue): (Orders, Queue),
        cpu: Option<usize>,
    ) -> std::io::Result<Self> {
        let (reporting, reports) = mpsc::channel(REPORTS);
        let watch = Watch {
            planner: PushPlanner::new(source, max_write_bytes, progress.layers()),
            progress,
            pushing: HashMap::new(),
            hands: Hands {
                pushers: fabrics.all().iter().map(Fabric::pusher).collect(),
                kept: BTreeMap::new(),
            },
            reports: reporting,
        };
        let thread = std::thread::Builder::new()
            .name("tandem-watcher".into())
            .spawn(move || {
                if let Err(error) = tandem_fabric::pin(cpu) {
                    tracing::warn!(%error, "the watcher runs on any core");
                }
                watch.run(&queue.0);
            })?;
        Ok(Self {
            orders,
            reports,
            thread: Some(thread),
        })
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // A full queue is being emptied: the thread is alive and the order gets in.
        let _ = self.orders.0.send(Order::End);
        self.reports.close();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Watch {
    planner: PushPlanner,
    progress: Arc<Progress>,
    pushing: HashMap<TransferId, Pushing>,
    hands: Hands,
    reports: mpsc::Sender<Report>,
}

/// A transfer between its start and its stop or seal.
struct Pushing {
    sequence: SequenceId,
    flows: Vec<FlowId>,
    /// When its first step was announced.
    started: Option<Instant>,
    /// Everything of it has been planned; some may still be kept.
    sealed: bool,
}

/// What gives writes and seals to the fabrics' threads.
struct Hands {
    /// One for each shard.
    pushers: Vec<Pusher>,
    /// What a fabric did not take yet, each flow's in order: one that is stuck holds up no other.
    kept: BTreeMap<FlowId, VecDeque<PushAction>>,
}

impl Watch {
    fn run(mut self, orders: &Receiver<Order>) {
        let mut moved_at = Instant::now();
        loop {
            let busy = self.planner.is_busy() || !self.hands.kept.is_empty();
            let still = moved_at.elapsed();
            let order = if !busy {
                orders.recv_timeout(REST)
            } else if still < SPIN {
                std::hint::spin_loop();
                orders.try_recv().map_err(|e| match e {
                    std::sync::mpsc::TryRecvError::Empty => RecvTimeoutError::Timeout,
                    std::sync::mpsc::TryRecvError::Disconnected => RecvTimeoutError::Disconnected,
                })
            } else {
                orders.recv_timeout((still / PART).clamp(NAP.0, NAP.1))
            };
            // Read before the orders: every step that these layers are of has been announced by then.
            let layers = self.progress.layers();
            let mut order = match order {
                Ok(order) => Some(order),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let mut moved = false;
            while let Some(next) = order.take().or_else(|| orders.try_recv().ok()) {
                if matches!(next, Order::End) {
                    return;
                }
                self.order(next);
                moved = true;
            }
            if self.advance(layers) || moved {
                moved_at = Instant::now();
            }
        }
    }

    fn order(&mut self, order: Order) {
        match order {
            Order::Start(push) => {
                let pushing = Pushing {
                    sequence: push.sequence,
                    flows: push.flows.iter().map(|f| f.id).collect(),
                    started: None,
                    sealed: false,
                };
                self.pushing.insert(push.transfer, pushing);
                self.planner.start(push);
            }
            Order::Stop(transfer) => {
                self.planner.stop(transfer);
                for flow in self.pushing.remove(&transfer).iter().flat_map(|p| &p.flows) {
                    self.hands.kept.remove(flow);
                }
                self.report(Report::Stopped(transfer));
            }
            Order::Step(plan, at) => {
                for item in &plan.items {
                    let theirs = |p: &&mut Pushing| p.sequence == item.sequence;
                    for pushing in self.pushing.values_mut().filter(theirs) {
                        pushing.started.get_or_insert(at);
                    }
                }
                let part = |i: &tandem_engine::StepItem| StepPart {
                    sequence: i.sequence,
                    end: i.end,
                    last: i.last,
                };
                let parts: Vec<StepPart> = plan.items.iter().map(part).collect();
                self.planner.step_planned(plan.first_layer, &parts);
            }
            Order::End => {}
        }
    }

    /// Hands out what is complete. Whether anything was.
    fn advance(&mut self, layers: u64) -> bool {
        let mut moved = self.hands.retry();
        if moved {
            let kept = &self.hands.kept;
            let keep = |p: &Pushing| p.flows.iter().any(|f| kept.contains_key(f));
            self.pushing.retain(|_, p| !p.sealed || keep(p));
        }
        if !self.planner.is_busy() {
            return moved;
        }
        let hands = &mut self.hands;
        let mut sealed = Vec::new();
        self.planner.progress(layers, |action| {
            moved = true;
            match action {
                PushAction::Sealed { transfer } => sealed.push(transfer),
                PushAction::Write { flow, .. } | PushAction::Seal { flow, .. } => {
                    hands.give(flow, action);
                }
            }
        });
        for transfer in sealed {
            self.sealed(transfer);
        }
        moved
    }

    /// All of a transfer is known to be computed. What the fabrics did not take yet stays kept.
    fn sealed(&mut self, transfer: TransferId) {
        let computed = Instant::now();
        let pushing = self.pushing.get_mut(&transfer);
        let started = pushing.and_then(|p| {
            p.sealed = true;
            p.started
        });
        let kept = &self.hands.kept;
        if let Some(p) = self.pushing.get(&transfer)
            && !p.flows.iter().any(|f| kept.contains_key(f))
        {
            self.pushing.remove(&transfer);
        }
        self.report(Report::Sealed {
            transfer,
            started: started.unwrap_or(computed),
            computed,
        });
    }

    fn report(&self, report: Report) {
        // The task reads reports whatever else it does; it never waits for this thread.
        let _ = self.reports.blocking_send(report);
    }
}

impl Hands {
    /// Gives an action to its fabric, behind what is kept of its flow.
    fn give(&mut self, flow: FlowId, action: PushAction) {
        if self.kept.contains_key(&flow) || !self.hand_out(action) {
            self.kept.entry(flow).or_default().push_back(action);
        }
    }

    /// Tries again with what is kept. Whether any of it was taken.
    fn retry(&mut self) -> bool {
        let mut moved = false;
        let mut kept = std::mem::take(&mut self.kept);
        kept.retain(|_, actions| {
            while let Some(action) = actions.front() {
                if !self.hand_out(*action) {
                    return true;
                }
                actions.pop_front();
                moved = true;
            }
            false
        });
        self.kept = kept;
        moved
    }

    fn hand_out(&self, action: PushAction) -> bool {
        match action {
            PushAction::Write {
                flow,
                source,
                write,
                immediate,
            } => {
                let pusher = &self.pushers[usize::from(source)];
                let write = Write {
                    flow,
                    local_offset: write.source,
                    remote_offset: write.target,
                    len: write.bytes,
                    immediate,
                };
                pusher.post(write).is_ok() || pusher.is_closed()
            }
            PushAction::Seal { flow, source } => {
                let pusher = &self.pushers[usize::from(source)];
                pusher.seal(flow).is_ok() || pusher.is_closed()
            }
            PushAction::Sealed { .. } => true,
        }
    }
}

//! The watcher thread: it polls the engine's counter and hands out each layer's writes as soon as
//! the layer is complete.
//!
//! How it waits for the counter is [`pace`]'s business. It waits for nobody else: what the fabric does
//! not take is kept (at most what the running transfers hold) and offered again.

mod hands;
mod layers;
mod pace;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, SyncSender, TryRecvError, TrySendError, sync_channel,
};
use std::time::Instant;

use tandem_core::layout::WorkerLayout;
use tandem_core::push::{Push, PushAction, PushPlanner, StepPart};
use tandem_core::{FlowId, SequenceId, TransferId};
use tandem_engine::{Progress, StepPlan, StepWatch};
use tandem_fabric::{Pusher, Write};
use tokio::sync::mpsc;

use hands::Hands;
pub(crate) use layers::LayerPush;
use layers::Layers;
pub(crate) use pace::Pace;
use pace::{Look, Waiting};

/// Orders that wait for the thread.
const ORDERS: usize = 8192;
/// Reports that wait for the prefill task.
const REPORTS: usize = 8192;

enum Order {
    /// Whether its layers are timed.
    Start(Push, bool),
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
    /// Pushes a transfer from now on, and tells when each layer went out where it is `timed`. `Err`
    /// where the queue is full or the thread has ended.
    pub(crate) fn start(&self, push: Push, timed: bool) -> Result<(), ()> {
        self.0.try_send(Order::Start(push, timed)).map_err(|_| ())
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
#[derive(Clone, Debug)]
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
        /// Empty where it was not timed.
        pushes: Vec<LayerPush>,
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
    /// Starts the thread, on this cpu where one is named. `pushers`: one for each of the source's shards.
    pub(crate) fn start(
        source: WorkerLayout,
        max_write_bytes: u32,
        progress: Arc<Progress>,
        pushers: Vec<Pusher>,
        (orders, queue): (Orders, Queue),
        (pace, cpu): (Pace, Option<usize>),
    ) -> std::io::Result<Self> {
        let (reporting, reports) = mpsc::channel(REPORTS);
        let watch = Watch {
            planner: PushPlanner::new(source.clone(), max_write_bytes, progress.layers()),
            layers: Layers::default(),
            source,
            progress,
            pushing: HashMap::new(),
            hands: Hands::new(pushers),
            reports: reporting,
            pace,
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
    layers: Layers,
    source: WorkerLayout,
    progress: Arc<Progress>,
    pushing: HashMap<TransferId, Pushing>,
    hands: Hands,
    reports: mpsc::Sender<Report>,
    pace: Pace,
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

impl Watch {
    fn run(mut self, orders: &Receiver<Order>) {
        let mut moved_at = Instant::now();
        loop {
            let waiting = Waiting {
                step: self.planner.is_busy(),
                kept: !self.hands.is_empty(),
            };
            let order = match self.pace.look(waiting, moved_at.elapsed()) {
                Look::Within(time) => orders.recv_timeout(time),
                Look::Now => {
                    self.pace.spin();
                    orders.try_recv().map_err(|e| match e {
                        TryRecvError::Empty => RecvTimeoutError::Timeout,
                        TryRecvError::Disconnected => RecvTimeoutError::Disconnected,
                    })
                }
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
            Order::Start(push, timed) => {
                if timed {
                    self.layers.start(&self.source, &push);
                }
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
                self.layers.take(transfer);
                for flow in self.pushing.remove(&transfer).iter().flat_map(|p| &p.flows) {
                    self.hands.forget(*flow);
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
            let hands = &self.hands;
            let keep = |p: &Pushing| p.flows.iter().any(|flow| hands.keeps(*flow));
            self.pushing.retain(|_, p| !p.sealed || keep(p));
        }
        if !self.planner.is_busy() {
            return moved;
        }
        let (hands, timed) = (&mut self.hands, &mut self.layers);
        let seen = (!timed.is_empty()).then(Instant::now);
        let mut sealed = Vec::new();
        self.planner.progress(layers, |action| {
            moved = true;
            match action {
                PushAction::Write {
                    flow,
                    source,
                    write,
                    immediate,
                } => {
                    let write = Write {
                        flow,
                        local_offset: write.source,
                        remote_offset: write.target,
                        len: write.bytes,
                        immediate,
                    };
                    if let Some(seen) = seen {
                        timed.write(&write, seen);
                    }
                    hands.write(source, write);
                }
                PushAction::Seal { flow, source } => hands.seal(source, flow),
                PushAction::Sealed { transfer } => sealed.push(transfer),
            }
        });
        hands.flush();
        if seen.is_some() {
            timed.posted(Instant::now());
        }
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
        if let Some(p) = self.pushing.get(&transfer)
            && !p.flows.iter().any(|flow| self.hands.keeps(*flow))
        {
            self.pushing.remove(&transfer);
        }
        let pushes = self.layers.take(transfer);
        self.report(Report::Sealed {
            transfer,
            started: started.unwrap_or(computed),
            computed,
            pushes,
        });
    }

    fn report(&self, report: Report) {
        // The task reads reports whatever else it does; it never waits for this thread.
        let _ = self.reports.blocking_send(report);
    }
}

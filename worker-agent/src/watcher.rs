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

use tandem_core::TransferId;
use tandem_core::arena::ArenaLayout;
use tandem_core::push::{Push, PushAction, PushPlanner, StepPart};
use tandem_engine::{Progress, StepPlan, StepWatch};
use tandem_fabric::{Pusher, Write};
use tokio::sync::mpsc;

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
        source: ArenaLayout,
        max_write_bytes: u32,
        progress: Arc<Progress>,
        pusher: Pusher,
        orders: Orders,
        queue: Queue,
    ) -> std::io::Result<Self> {
        let (reporting, reports) = mpsc::channel(REPORTS);
        let watch = Watch {
            planner: PushPlanner::new(source, max_write_bytes),
            progress,
            pusher,
            reports: reporting,
            started: HashMap::new(),
            actions: Vec::new(),
            kept: BTreeMap::new(),
        };
        let thread = std::thread::Builder::new()
            .name("tandem-watcher".into())
            .spawn(move || watch.run(&queue.0))?;
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
    pusher: Pusher,
    reports: mpsc::Sender<Report>,
    /// When each transfer's first step was announced.
    started: HashMap<TransferId, (tandem_core::SequenceId, Option<Instant>)>,
    actions: Vec<PushAction>,
    /// What the fabric did not take yet, each transfer's in order: one that is stuck holds up no
    /// other.
    kept: BTreeMap<TransferId, VecDeque<(PushAction, Instant)>>,
}

impl Watch {
    fn run(mut self, orders: &Receiver<Order>) {
        let mut moved_at = Instant::now();
        loop {
            let busy = self.planner.is_busy() || !self.kept.is_empty();
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
            let moved = match order {
                Ok(Order::End) | Err(RecvTimeoutError::Disconnected) => return,
                Ok(order) => {
                    self.order(order);
                    true
                }
                Err(RecvTimeoutError::Timeout) => false,
            };
            if self.advance() || moved {
                moved_at = Instant::now();
            }
        }
    }

    fn order(&mut self, order: Order) {
        match order {
            Order::Start(push) => {
                self.started.insert(push.transfer, (push.sequence, None));
                self.planner.start(push);
            }
            Order::Stop(transfer) => {
                self.planner.stop(transfer);
                self.started.remove(&transfer);
                self.kept.remove(&transfer);
                self.report(Report::Stopped(transfer));
            }
            Order::Step(plan, at) => {
                for item in &plan.items {
                    for (sequence, started) in self.started.values_mut() {
                        if *sequence == item.sequence {
                            started.get_or_insert(at);
                        }
                    }
                }
                let part = |i: &tandem_engine::StepItem| StepPart {
                    sequence: i.sequence,
                    start: i.start,
                    end: i.end,
                    last: i.last,
                };
                self.planner
                    .step_planned(plan.first_layer, plan.items.iter().map(part).collect());
            }
            Order::End => {}
        }
    }

    /// Hands out what is complete. Whether anything was.
    fn advance(&mut self) -> bool {
        if self.planner.is_busy() {
            self.planner
                .progress(self.progress.layers(), &mut self.actions);
        }
        let seen = Instant::now();
        for action in self.actions.drain(..) {
            self.kept
                .entry(transfer_of(&action))
                .or_default()
                .push_back((action, seen));
        }
        let mut moved = false;
        let mut kept = std::mem::take(&mut self.kept);
        kept.retain(|_, actions| {
            while let Some((action, seen)) = actions.pop_front() {
                if !self.hand_out(action, seen) {
                    actions.push_front((action, seen));
                    return true;
                }
                moved = true;
            }
            false
        });
        self.kept = kept;
        moved
    }

    fn hand_out(&mut self, action: PushAction, seen: Instant) -> bool {
        match action {
            PushAction::Write {
                transfer,
                write,
                immediate,
            } => {
                let write = Write {
                    transfer,
                    local_offset: write.source,
                    remote_offset: write.target,
                    len: write.bytes,
                    immediate,
                };
                self.pusher.post(write).is_ok() || self.pusher.is_closed()
            }
            PushAction::Seal { transfer } => {
                if self.pusher.seal(transfer).is_err() && !self.pusher.is_closed() {
                    return false;
                }
                let (_, started) = self.started.remove(&transfer).unzip();
                let started = started.flatten().unwrap_or(seen);
                self.report(Report::Sealed {
                    transfer,
                    started,
                    computed: seen,
                });
                true
            }
        }
    }

    fn report(&self, report: Report) {
        // The task reads reports whatever else it does; it never waits for this thread.
        let _ = self.reports.blocking_send(report);
    }
}

const fn transfer_of(action: &PushAction) -> TransferId {
    match action {
        PushAction::Write { transfer, .. } | PushAction::Seal { transfer } => *transfer,
    }
}

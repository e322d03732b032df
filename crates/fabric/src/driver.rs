//! The one thread that owns everything of libfabric: it posts, polls and counts, without locks.
//!
//! It never waits for another thread: commands are taken from bounded queues, answers go into
//! one-shot slots, events into a bounded queue with a stash ([`outlet`]). What must hold: nothing
//! of libfabric is touched by any other thread; no context that comes back is followed
//! ([`contexts`]); a flow ends only with its last completion or its endpoint
//! ([`flows`]).

mod by_flow;
pub(crate) mod command;
pub(crate) mod contexts;
pub(crate) mod disorder;
mod flows;
pub(crate) mod idle;
mod inbox;
mod obey;
mod outbox;
pub(crate) mod outlet;
pub(crate) mod port;
pub(crate) mod room;

use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use libfabric_sys as sys;
use tandem_core::ledger::Armed;
use tokio::sync::mpsc::Receiver;
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::oneshot::Sender;

use crate::options::FabricOptions;
use crate::provider::is_software;
use crate::safe::domain::Domain;
use crate::safe::endpoint::BATCH;
use crate::safe::hints::Limits;
use crate::shared::Shared;
use command::{Control, Push};
use flows::{Bounds, Flows};
use idle::{Idle, Outstanding, Rest};
use inbox::{InboxState, Slots};
use outbox::{Books, OutboxState};
use outlet::Outlet;
use room::QueueSize;

/// Commands taken from one queue before endpoints are polled again.
const COMMANDS_PER_TURN: usize = 64;
/// Turns between looks at the event queue while busy.
const TURNS_PER_EVENT_CHECK: u32 = 256;

/// The thread's receiving ends.
pub(crate) struct Queues {
    pub(crate) control: Receiver<Control>,
    pub(crate) releases: Receiver<Armed>,
    pub(crate) pushes: Receiver<Push>,
}

/// The thread's state.
pub(crate) struct Driver {
    // Endpoints are closed before the domain: fields drop in this order.
    inboxes: Vec<InboxState>,
    outboxes: Vec<OutboxState>,
    /// One for each NIC.
    domains: Vec<Rc<Domain>>,
    queues: Queues,
    slots: Slots,
    flows: Flows,
    outlet: Outlet,
    shared: Arc<Shared>,
    options: FabricOptions,
    window: usize,
    /// Of each inbox.
    queue: QueueSize,
    next_endpoint: u64,
    entries: Box<[sys::fi_cq_data_entry; BATCH]>,
    /// Taken from the queue together, which costs one visit to it.
    taken: Vec<Push>,
    idle: Idle,
    turns: u32,
}

/// Why the thread ends.
enum Exit {
    /// It was told to; say when all is closed.
    Told(Sender<()>),
    /// All handles are gone.
    Unused,
}

impl Driver {
    pub(crate) fn new(
        domains: Vec<Domain>,
        queues: Queues,
        outlet: Outlet,
        shared: Arc<Shared>,
        options: FabricOptions,
    ) -> Self {
        let limits = domains.iter().map(|d| d.limits);
        let least = |of: fn(Limits) -> usize| limits.clone().map(of).min().unwrap_or(0);
        let bounds = Bounds {
            local: domains.first().map_or(0, |d| d.memory().len() as u64),
            longest: least(|l| l.max_write) as u64,
            key_size: least(|l| l.mr_key_size),
        };
        let window = (options.in_flight_writes as usize)
            .min(least(|l| l.tx_size))
            .max(1);
        let software = domains.iter().all(|d| is_software(&d.info.provider()));
        Self {
            inboxes: Vec::new(),
            outboxes: Vec::new(),
            domains: domains.into_iter().map(Rc::new).collect(),
            queues,
            slots: Slots::new(options.slots),
            flows: Flows::new(bounds),
            outlet,
            shared,
            window,
            queue: QueueSize::of(options.completion_entries, software),
            idle: Idle::new(options.idle),
            options,
            next_endpoint: 0,
            // SAFETY: numbers and pointers, all of which may be zero.
            entries: Box::new(unsafe { std::mem::zeroed() }),
            taken: Vec::with_capacity(COMMANDS_PER_TURN),
            turns: 0,
        }
    }

    /// Runs until told to end, or until nobody has a handle any more. Closes everything.
    pub(crate) fn run(mut self) {
        let exit = loop {
            let (mut busy, exit) = self.take_control();
            if let Some(exit) = exit {
                break exit;
            }
            busy |= self.take_releases();
            busy |= self.take_pushes();
            busy |= self.poll_endpoints();
            self.outlet.flush();
            self.turns = self.turns.wrapping_add(1);
            if self.turns.is_multiple_of(TURNS_PER_EVENT_CHECK) {
                self.shared.pulse.beat();
                self.read_events();
            }
            if busy {
                self.idle.active()
            } else {
                self.rest()
            }
        };
        drop(self);
        if let Exit::Told(reply) = exit {
            let _ = reply.send(());
        }
    }

    fn take_control(&mut self) -> (bool, Option<Exit>) {
        for taken in 0..COMMANDS_PER_TURN {
            match self.queues.control.try_recv() {
                Ok(Control::Shutdown(reply)) => return (true, Some(Exit::Told(reply))),
                Ok(command) => self.obey(command),
                Err(TryRecvError::Empty) => return (taken > 0, None),
                Err(TryRecvError::Disconnected) => return (true, Some(Exit::Unused)),
            }
        }
        (true, None)
    }

    fn take_releases(&mut self) -> bool {
        let mut any = false;
        while let Ok(armed) = self.queues.releases.try_recv() {
            self.release(armed);
            any = true;
        }
        any
    }

    fn take_pushes(&mut self) -> bool {
        // Whatever the state of its outbox: a queue left full would hold up flows whose
        // outboxes have room. The credits bound what gathers.
        if self.queues.pushes.is_empty() {
            return false;
        }
        let mut taken = std::mem::take(&mut self.taken);
        // Nobody is to be woken: `Wake` does that.
        let mut nobody = Context::from_waker(Waker::noop());
        let pushes = &mut self.queues.pushes;
        let polled = pushes.poll_recv_many(&mut nobody, &mut taken, COMMANDS_PER_TURN);
        for push in taken.drain(..) {
            self.accept(push);
        }
        self.taken = taken;
        // Before any queue is read: with many peers that takes longer than all else on a write's way.
        let (outboxes, _, mut books) = self.outboxes();
        for outbox in outboxes {
            outbox.post_fresh(&mut books);
        }
        matches!(polled, Poll::Ready(1..))
    }

    fn accept(&mut self, push: Push) {
        let flow = match &push {
            Push::Write(write) => write.flow,
            Push::Seal(flow) => *flow,
        };
        let id = self.flows.outbox(flow);
        let (outboxes, _, mut books) = self.outboxes();
        if let Some(outbox) = outboxes.iter_mut().find(|o| Some(o.id) == id) {
            outbox.accept(push, &mut books);
        } else if let Push::Write(write) = push {
            // Ended since it was pushed, as by a stop.
            books.credits.give_back(write.flow);
            books.stats.writes_refused.add(1);
        }
    }

    /// The outboxes, room for completions, and what outboxes share.
    fn outboxes(
        &mut self,
    ) -> (
        &mut Vec<OutboxState>,
        &mut [sys::fi_cq_data_entry; BATCH],
        Books<'_>,
    ) {
        let books = Books {
            flows: &mut self.flows,
            outlet: &mut self.outlet,
            stats: &self.shared.stats,
            nics: &self.shared.nics,
            credits: &self.shared.credits,
        };
        (&mut self.outboxes, &mut self.entries, books)
    }

    fn poll_endpoints(&mut self) -> bool {
        let mut busy = false;
        for inbox in &mut self.inboxes {
            let stats = &self.shared.stats;
            busy |= inbox.turn(&mut self.entries, &mut self.slots, &mut self.outlet, stats);
        }
        let (outboxes, entries, mut books) = self.outboxes();
        for outbox in outboxes {
            busy |= outbox.turn(entries, &mut books);
        }
        busy
    }

    /// Reads the event queue: errors that belong to no operation end up there.
    fn read_events(&mut self) {
        let next = |domains: &[Rc<Domain>]| domains.iter().find_map(|d| d.next_event());
        while let Some(event) = next(&self.domains) {
            self.shared.stats.queue_events.add(1);
            let Some(errno) = event.error else { continue };
            let error = format!("reported by the event queue: {errno}");
            if let Some(inbox) = self.inboxes.iter_mut().find(|i| i.has(event.about)) {
                inbox.fail(error, &mut self.outlet);
                continue;
            }
            let (outboxes, _, mut books) = self.outboxes();
            match outboxes.iter_mut().find(|o| o.has(event.about)) {
                Some(outbox) => outbox.fail(&error, &mut books),
                None => tracing::warn!(%error, "an error of no endpoint"),
            }
        }
    }

    fn rest(&mut self) {
        let armed = self.slots.any_armed();
        let outstanding = Outstanding {
            retry: self.outlet.is_behind()
                || self.outboxes.iter().any(OutboxState::is_blocked)
                || self.inboxes.iter().any(InboxState::holds_back),
            flows: armed || self.outboxes.iter().any(OutboxState::is_busy),
            open: armed || self.flows.any_open(),
            descriptors: self.domains.iter().all(|d| d.waits_on_descriptors),
        };
        let now = std::time::Instant::now();
        let (timeout, watch) = match self.idle.rest(now, outstanding) {
            Rest::Spin => return std::thread::yield_now(),
            Rest::Watch(timeout) => (timeout, true),
            Rest::Sleep(timeout) => (timeout, false),
        };
        self.shared.pulse.beat();
        self.read_events();
        let called = self.wait(timeout, watch);
        if watch && !called && now.elapsed() < timeout {
            self.idle.ended_early();
        }
    }

    /// Waits for a caller and, with `watch`, for endpoints. Whether somebody called.
    fn wait(&mut self, timeout: std::time::Duration, watch: bool) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec};
        let wake = &self.shared.wake;
        wake.prepare();
        let queues = &self.queues;
        let empty = queues.control.is_empty()
            && !queues.control.is_closed()
            && queues.releases.is_empty()
            && queues.pushes.is_empty();
        if empty && (!watch || self.may_wait()) {
            let mut polled = vec![PollFd::from_borrowed_fd(wake.descriptor(), PollFlags::IN)];
            let endpoints = self.inboxes.iter().flat_map(InboxState::endpoints);
            let endpoints = endpoints.chain(self.outboxes.iter().flat_map(OutboxState::endpoints));
            let descriptors = endpoints.filter(|_| watch).filter_map(|e| e.descriptor());
            polled.extend(descriptors.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
            self.shared.stats.waits.add(1);
            let timeout = Timespec {
                tv_sec: timeout.as_secs() as i64,
                tv_nsec: i64::from(timeout.subsec_nanos()),
            };
            // An interrupted wait is a short wait.
            let _ = rustix::event::poll(&mut polled, Some(&timeout));
        }
        wake.awake() || !empty
    }

    fn may_wait(&self) -> bool {
        let inboxes = self.inboxes.iter().flat_map(InboxState::endpoints);
        let outboxes = self.outboxes.iter().flat_map(OutboxState::endpoints);
        let endpoints: Vec<_> = inboxes.chain(outboxes).collect();
        self.domains.iter().all(|domain| {
            let of = endpoints.iter().filter(|e| e.is_of(domain));
            let mut queues: Vec<_> = of.map(|e| e.queue()).collect();
            queues.is_empty() || domain.may_wait(&mut queues)
        })
    }
}

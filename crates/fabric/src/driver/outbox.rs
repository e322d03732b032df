//! The sending side of one peer session: a queue in order, spread over the NICs of both sides, and a
//! window of writes in flight for each of ours.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};

use libfabric_sys as sys;
use tandem_core::spread::{Spread, lanes};
use tandem_core::{EndpointId, FlowId};

use super::command::{Push, Write};
use super::disorder::Disorder;
use super::flows::Flows;
use super::outlet::Outlet;
use super::port::{Completion, Lane, Port};
use crate::credit::Credits;
use crate::error::{CallError, Errno};
use crate::event::{FabricEvent, FlowEnded};
use crate::options::FabricOptions;
use crate::safe::domain::Domain;
use crate::safe::endpoint::{BATCH, Endpoint, Read};
use crate::stats::{FabricStats, NicStats};

/// What outboxes share.
pub(crate) struct Books<'a> {
    pub(crate) flows: &'a mut Flows,
    pub(crate) outlet: &'a mut Outlet,
    pub(crate) stats: &'a FabricStats,
    pub(crate) nics: &'a [NicStats],
    pub(crate) credits: &'a Credits,
}

impl Books<'_> {
    fn ended(&mut self, ended: Option<FlowEnded>) {
        if let Some(ended) = ended {
            self.outlet.push(FabricEvent::FlowEnded(ended));
        }
    }
}

/// One peer's way out.
pub(crate) struct OutboxState {
    pub(crate) id: EndpointId,
    ports: Vec<Port>,
    lanes: Vec<Lane>,
    spread: Spread,
    remote_nics: usize,
    queue: VecDeque<Push>,
    /// The ledger has counted the write at the head of the queue; the provider has not taken it.
    head_begun: bool,
    /// For tests: shuffles writes that wait.
    shuffle: Disorder<()>,
    blocked_since: Option<Instant>,
    post_timeout: Duration,
    failed: Option<String>,
}

impl OutboxState {
    pub(crate) fn open(
        id: EndpointId,
        domains: &[Rc<Domain>],
        addresses: &[Vec<u8>],
        window: usize,
        options: &FabricOptions,
    ) -> Result<Self, CallError> {
        let disorder = options.disorder;
        let ports = domains.iter().map(|d| Port::open(d, window, disorder));
        let ports: Vec<Port> = ports.collect::<Result<_, _>>()?;
        let lane = |(port, nic): (usize, usize)| {
            let peer = ports[port].endpoint.insert(&addresses[nic])?;
            Ok(Lane { port, peer, nic })
        };
        let pairs = lanes(ports.len(), addresses.len()).into_iter();
        let lanes: Vec<Lane> = pairs.map(lane).collect::<Result<_, CallError>>()?;
        Ok(Self {
            id,
            spread: Spread::new(lanes.len()),
            ports,
            lanes,
            remote_nics: addresses.len(),
            queue: VecDeque::new(),
            head_begun: false,
            shuffle: Disorder::new(disorder),
            blocked_since: None,
            post_timeout: options.post_timeout,
            failed: None,
        })
    }

    pub(crate) fn endpoints(&self) -> impl Iterator<Item = &Endpoint> {
        self.ports.iter().map(|p| &p.endpoint)
    }

    /// Whether an event is about one of its endpoints.
    pub(crate) fn has(&self, about: *const std::ffi::c_void) -> bool {
        self.endpoints().any(|e| e.is(about))
    }

    /// NICs of the peer.
    pub(crate) const fn remote_nics(&self) -> usize {
        self.remote_nics
    }

    /// Why it is of no more use, if so.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failed.as_deref()
    }

    /// Whether a write waits that the provider refuses for now, or a completion is held back.
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked_since.is_some() || self.ports.iter().any(|p| !p.completions.is_empty())
    }

    /// Whether anything is in flight.
    pub(crate) fn is_busy(&self) -> bool {
        !self.queue.is_empty() || self.ports.iter().any(|p| p.contexts.in_flight() > 0)
    }

    /// Takes a write or a seal into the queue. A bad write fails its flow instead.
    pub(crate) fn accept(&mut self, push: Push, books: &mut Books<'_>) {
        match push {
            Push::Seal(flow) => books.flows.seal_queued(flow),
            Push::Write(write) => {
                let fault = self.failed.clone().or_else(|| books.flows.fault(&write));
                if let Some(fault) = fault {
                    books.credits.give_back(write.flow);
                    books.stats.writes_refused.add(1);
                    self.stop(write.flow, Some(&fault), books);
                    return;
                }
            }
        }
        if self.shuffle.is_on() && matches!(push, Push::Write(_)) {
            let place = self.shuffled_place();
            self.queue.insert(place, push);
        } else {
            self.queue.push_back(push);
        }
    }

    /// Behind every seal, and behind a head that the ledger has counted.
    fn shuffled_place(&mut self) -> usize {
        let sealed = self.queue.iter().rposition(|p| matches!(p, Push::Seal(_)));
        let least = sealed.map_or(usize::from(self.head_begun), |at| at + 1);
        self.shuffle.place(least, self.queue.len())
    }

    /// Posts no more of a flow. It ends when what is in flight has completed.
    pub(crate) fn stop(&mut self, flow: FlowId, error: Option<&str>, books: &mut Books<'_>) {
        if self.drop_queued(flow, books) {
            let ended = books.flows.unpost(flow);
            books.ended(ended);
        }
        let ended = books.flows.stop(flow, error);
        books.ended(ended);
    }

    /// Takes a flow's writes and seal out of the queue. Returns whether its write at the head
    /// had been counted.
    fn drop_queued(&mut self, flow: FlowId, books: &Books<'_>) -> bool {
        let head = self.queue.front().is_some_and(|push| owner(push) == flow);
        let begun = self.head_begun && head;
        if begun {
            self.head_begun = false;
            self.blocked_since = None;
        }
        self.queue.retain(|push| {
            let keep = owner(push) != flow;
            if !keep && matches!(push, Push::Write(_)) {
                books.credits.give_back(flow);
            }
            keep
        });
        begun
    }

    /// Posts what has just come, unless something older waits for the provider.
    pub(crate) fn post_fresh(&mut self, books: &mut Books<'_>) {
        if !self.queue.is_empty() && !self.is_blocked() {
            self.post(books);
        }
    }

    /// Reads completions, then posts. Returns whether anything happened.
    pub(crate) fn turn(
        &mut self,
        entries: &mut [sys::fi_cq_data_entry; BATCH],
        books: &mut Books<'_>,
    ) -> bool {
        let completed = self.complete(entries, books);
        self.post(books) || completed
    }

    fn complete(
        &mut self,
        entries: &mut [sys::fi_cq_data_entry; BATCH],
        books: &mut Books<'_>,
    ) -> bool {
        let mut any = false;
        for port in 0..self.ports.len() {
            self.read(port, entries, books);
            self.ports[port].completions.turn();
            let mut now = None;
            while let Some(Completion { context, error }) = self.ports[port].completions.pop() {
                let now = *now.get_or_insert_with(Instant::now);
                self.completed(port, context, now, error, books);
                any = true;
            }
        }
        if any {
            self.blocked_since = None;
        }
        any
    }

    /// Takes what one port's queue has.
    fn read(
        &mut self,
        port: usize,
        entries: &mut [sys::fi_cq_data_entry; BATCH],
        books: &mut Books<'_>,
    ) {
        let port = &mut self.ports[port];
        match port.endpoint.read(entries) {
            Read::Empty => {}
            Read::Entries(n) => {
                port.refused = false;
                for entry in &entries[..n] {
                    if entry.flags & u64::from(sys::FI_REMOTE_WRITE) != 0 {
                        // Somebody writes to an outbox: nothing is awaited here.
                        books.stats.immediates_stale.add(1);
                        continue;
                    }
                    port.completions.push(Completion {
                        context: entry.op_context,
                        error: None,
                    });
                }
            }
            Read::Error(error) => {
                port.refused = false;
                if error.flags & u64::from(sys::FI_REMOTE_WRITE) != 0 {
                    books.stats.foreign_errors.add(1);
                    return;
                }
                port.completions.push(Completion {
                    context: error.context,
                    error: Some(error.text),
                });
            }
            Read::Broken(errno) => {
                self.fail(&format!("its completion queue is broken: {errno}"), books);
            }
        }
    }

    fn completed(
        &mut self,
        port: usize,
        context: *mut std::ffi::c_void,
        now: Instant,
        error: Option<String>,
        books: &mut Books<'_>,
    ) {
        let Some(flow) = self.ports[port].contexts.give_back(context) else {
            let stats = books.stats;
            let counter = if error.is_some() {
                &stats.foreign_errors
            } else {
                &stats.unknown_contexts
            };
            counter.add(1);
            return;
        };
        if error.is_some() {
            books.stats.writes_failed.add(1);
            if self.drop_queued(flow, books) {
                let ended = books.flows.unpost(flow);
                books.ended(ended);
            }
        } else {
            books.stats.writes_completed.add(1);
        }
        let ended = books.flows.completed(flow, now, error);
        books.ended(ended);
    }

    fn post(&mut self, books: &mut Books<'_>) -> bool {
        let mut any = false;
        for port in &mut self.ports {
            port.refused = false;
        }
        while let Some(push) = self.queue.front().copied() {
            match push {
                Push::Seal(flow) => {
                    self.queue.pop_front();
                    let ended = books.flows.seal(flow);
                    books.ended(ended);
                }
                Push::Write(write) => {
                    if !self.post_head(write, books) {
                        break;
                    }
                }
            }
            any = true;
        }
        any
    }

    /// Posts the write at the head of the queue. Returns false where it has to wait.
    fn post_head(&mut self, write: Write, books: &mut Books<'_>) -> bool {
        if !self.head_begun && books.flows.begin(&write).is_err() {
            // Stopped since it was queued.
            self.queue.pop_front();
            books.credits.give_back(write.flow);
            books.stats.writes_refused.add(1);
            return true;
        }
        self.head_begun = true;
        loop {
            let has_room = |lane: usize| self.ports[self.lanes[lane].port].has_room();
            let Some(chosen) = self.spread.choose(has_room) else {
                let refused = self.ports.iter().any(|p| p.refused);
                return refused && self.blocked(books);
            };
            let lane = self.lanes[chosen];
            let Some(place) = books.flows.place(write.flow, lane.nic) else {
                let error = "a flow lost its region";
                self.stop(write.flow, Some(error), books);
                return true;
            };
            let port = &mut self.ports[lane.port];
            // SAFETY: `accept` checked both ranges (`Flows::fault`).
            match unsafe { port.post(lane, &write, place) } {
                Ok(()) => {
                    self.spread.gave(chosen, write.len);
                    books.nics[lane.port].writes.add(1);
                    books.nics[lane.port].bytes.add(u64::from(write.len));
                    self.head_posted(&write, books);
                    return true;
                }
                Err(Errno::AGAIN) => port.refused = true,
                Err(errno) => {
                    let error = format!("fi_writemsg: {errno}");
                    self.stop(write.flow, Some(&error), books);
                    return true;
                }
            }
        }
    }

    fn head_posted(&mut self, write: &Write, books: &mut Books<'_>) {
        self.queue.pop_front();
        self.head_begun = false;
        self.blocked_since = None;
        books.credits.give_back(write.flow);
        books.flows.posted(write.flow, write.len);
        books.stats.writes_posted.add(1);
        books.stats.bytes_posted.add(u64::from(write.len));
    }

    fn blocked(&mut self, books: &mut Books<'_>) -> bool {
        books.stats.posts_again.add(1);
        let since = *self.blocked_since.get_or_insert_with(Instant::now);
        if since.elapsed() >= self.post_timeout {
            self.fail(
                &format!("writes were refused for {:?}", self.post_timeout),
                books,
            );
        }
        false
    }

    /// Of no more use: queued writes are dropped and their flows stopped.
    pub(crate) fn fail(&mut self, error: &str, books: &mut Books<'_>) {
        if self.failed.is_some() {
            return;
        }
        self.failed = Some(error.to_owned());
        let event = FabricEvent::EndpointFailed {
            endpoint: self.id,
            error: error.to_owned(),
        };
        books.outlet.push(event);
        while let Some(flow) = self.queue.front().map(owner) {
            self.stop(flow, Some(error), books);
        }
    }

    /// Closes the endpoint; ends its flows.
    pub(crate) fn close(
        mut self,
        entries: &mut [sys::fi_cq_data_entry; BATCH],
        books: &mut Books<'_>,
    ) -> Result<(), CallError> {
        // What completed before the close completed well.
        while self.complete(entries, books) {}
        for port in 0..self.ports.len() {
            let held: Vec<Completion> = self.ports[port].completions.drain().collect();
            for Completion { context, error } in held {
                self.completed(port, context, Instant::now(), error, books);
            }
        }
        for push in self.queue.drain(..) {
            if let Push::Write(write) = push {
                books.credits.give_back(write.flow);
            }
        }
        let closed: Vec<_> = self.ports.drain(..).map(Port::close).collect();
        for ended in books.flows.endpoint_closed(self.id) {
            books.ended(Some(ended));
        }
        closed.into_iter().collect()
    }
}

fn owner(push: &Push) -> FlowId {
    match push {
        Push::Write(write) => write.flow,
        Push::Seal(flow) => *flow,
    }
}

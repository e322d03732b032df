//! The sending side of one peer session: a queue in order, a window of writes in flight.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};

use libfabric_sys as sys;
use tandem_core::{EndpointId, TransferId};

use super::command::{Push, Write};
use super::contexts::Contexts;
use super::outlet::Outlet;
use super::transfers::Transfers;
use crate::credit::Credits;
use crate::error::{CallError, Errno};
use crate::event::{FabricEvent, TransferEnded};
use crate::safe::domain::Domain;
use crate::safe::endpoint::{BATCH, Endpoint, RawWrite, Read};
use crate::stats::FabricStats;

/// What outboxes share.
pub(crate) struct Books<'a> {
    pub(crate) transfers: &'a mut Transfers,
    pub(crate) outlet: &'a mut Outlet,
    pub(crate) stats: &'a FabricStats,
    pub(crate) credits: &'a Credits,
}

impl Books<'_> {
    fn ended(&mut self, ended: Option<TransferEnded>) {
        if let Some(ended) = ended {
            self.outlet.push(FabricEvent::TransferEnded(ended));
        }
    }
}

/// One peer's way out.
pub(crate) struct OutboxState {
    pub(crate) id: EndpointId,
    endpoint: Endpoint,
    peer: u64,
    queue: VecDeque<Push>,
    /// The ledger has counted the write at the head of the queue; the provider has not taken it.
    head_begun: bool,
    contexts: Contexts<TransferId>,
    blocked_since: Option<Instant>,
    post_timeout: Duration,
    failed: Option<String>,
}

impl OutboxState {
    pub(crate) fn open(
        id: EndpointId,
        domain: &Rc<Domain>,
        address: &[u8],
        window: usize,
        entries: usize,
        post_timeout: Duration,
    ) -> Result<Self, CallError> {
        let endpoint = Endpoint::open(Rc::clone(domain), entries)?;
        let peer = endpoint.insert(address)?;
        Ok(Self {
            id,
            endpoint,
            peer,
            queue: VecDeque::new(),
            head_begun: false,
            contexts: Contexts::new(window),
            blocked_since: None,
            post_timeout,
            failed: None,
        })
    }

    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Why it is of no more use, if so.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failed.as_deref()
    }

    /// Whether a write waits that the provider refuses for now.
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked_since.is_some()
    }

    /// Whether anything is in flight.
    pub(crate) fn is_busy(&self) -> bool {
        self.contexts.in_flight() > 0 || !self.queue.is_empty()
    }

    /// Takes a write or a seal into the queue. A bad write fails its transfer instead.
    pub(crate) fn accept(&mut self, push: Push, books: &mut Books<'_>) {
        match push {
            Push::Seal(transfer) => books.transfers.seal_queued(transfer),
            Push::Write(write) => {
                let fault = self
                    .failed
                    .clone()
                    .or_else(|| books.transfers.fault(&write));
                if let Some(fault) = fault {
                    books.credits.give_back(write.transfer);
                    books.stats.writes_refused.add(1);
                    self.stop(write.transfer, Some(&fault), books);
                    return;
                }
            }
        }
        self.queue.push_back(push);
    }

    /// Posts no more of a transfer. It ends when what is in flight has completed.
    pub(crate) fn stop(
        &mut self,
        transfer: TransferId,
        error: Option<&str>,
        books: &mut Books<'_>,
    ) {
        if self.drop_queued(transfer, books) {
            let ended = books.transfers.unpost(transfer);
            books.ended(ended);
        }
        let ended = books.transfers.stop(transfer, error);
        books.ended(ended);
    }

    /// Takes a transfer's writes and seal out of the queue. Returns whether its write at the head
    /// had been counted.
    fn drop_queued(&mut self, transfer: TransferId, books: &Books<'_>) -> bool {
        let head = self
            .queue
            .front()
            .is_some_and(|push| owner(push) == transfer);
        let begun = self.head_begun && head;
        if begun {
            self.head_begun = false;
            self.blocked_since = None;
        }
        self.queue.retain(|push| {
            let keep = owner(push) != transfer;
            if !keep && matches!(push, Push::Write(_)) {
                books.credits.give_back(transfer);
            }
            keep
        });
        begun
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
        match self.endpoint.read(entries) {
            Read::Empty => return false,
            Read::Entries(n) => {
                let now = Instant::now();
                for entry in &entries[..n] {
                    if entry.flags & u64::from(sys::FI_REMOTE_WRITE) != 0 {
                        // Somebody writes to an outbox: nothing is awaited here.
                        books.stats.immediates_stale.add(1);
                        continue;
                    }
                    self.completed(entry.op_context, now, None, books);
                }
            }
            Read::Error(error) => {
                if error.flags & u64::from(sys::FI_REMOTE_WRITE) != 0 {
                    books.stats.foreign_errors.add(1);
                } else {
                    self.completed(error.context, Instant::now(), Some(error.text), books);
                }
            }
            Read::Broken(errno) => {
                self.fail(&format!("its completion queue is broken: {errno}"), books);
                return false;
            }
        }
        self.blocked_since = None;
        true
    }

    fn completed(
        &mut self,
        context: *mut std::ffi::c_void,
        now: Instant,
        error: Option<String>,
        books: &mut Books<'_>,
    ) {
        let Some(transfer) = self.contexts.give_back(context) else {
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
            if self.drop_queued(transfer, books) {
                let ended = books.transfers.unpost(transfer);
                books.ended(ended);
            }
        } else {
            books.stats.writes_completed.add(1);
        }
        let ended = books.transfers.completed(transfer, now, error);
        books.ended(ended);
    }

    fn post(&mut self, books: &mut Books<'_>) -> bool {
        let mut any = false;
        while let Some(push) = self.queue.front().copied() {
            match push {
                Push::Seal(transfer) => {
                    self.queue.pop_front();
                    let ended = books.transfers.seal(transfer);
                    books.ended(ended);
                }
                Push::Write(write) => {
                    if self.contexts.is_full() || !self.post_head(write, books) {
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
        let region = if self.head_begun {
            books.transfers.region(write.transfer)
        } else {
            books.transfers.begin(&write).ok()
        };
        let Some(region) = region else {
            // Stopped since it was queued.
            self.queue.pop_front();
            books.credits.give_back(write.transfer);
            books.stats.writes_refused.add(1);
            return true;
        };
        self.head_begun = true;
        let Some(context) = self.contexts.take(write.transfer) else {
            return false;
        };
        let raw = RawWrite {
            local_offset: write.local_offset as usize,
            len: write.len as usize,
            peer: self.peer,
            address: region.base + write.remote_offset,
            key: region.key,
            immediate: write.immediate.to_bits(),
            context,
        };
        // SAFETY: `accept` checked both ranges (`Transfers::fault`); the context is a cell of this
        // outbox, which outlives the endpoint.
        let posted = unsafe { self.endpoint.write(&raw) };
        if posted.is_err() {
            self.contexts.give_back(context);
        }
        match posted {
            Ok(()) => self.head_posted(&write, books),
            Err(Errno::AGAIN) => return self.blocked(books),
            Err(errno) => {
                let error = format!("fi_writemsg: {errno}");
                self.stop(write.transfer, Some(&error), books);
            }
        }
        true
    }

    fn head_posted(&mut self, write: &Write, books: &mut Books<'_>) {
        self.queue.pop_front();
        self.head_begun = false;
        self.blocked_since = None;
        books.credits.give_back(write.transfer);
        books.transfers.posted(write.transfer, write.len);
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

    /// Of no more use: queued writes are dropped and their transfers stopped.
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
        while let Some(transfer) = self.queue.front().map(owner) {
            self.stop(transfer, Some(error), books);
        }
    }

    /// Closes the endpoint; ends its transfers.
    pub(crate) fn close(
        mut self,
        entries: &mut [sys::fi_cq_data_entry; BATCH],
        books: &mut Books<'_>,
    ) -> Result<(), CallError> {
        // What completed before the close completed well.
        while self.complete(entries, books) {}
        for push in self.queue.drain(..) {
            if let Push::Write(write) = push {
                books.credits.give_back(write.transfer);
            }
        }
        let closed = self.endpoint.close();
        if closed.is_err() {
            // The provider may still write into the cells.
            std::mem::forget(self.contexts);
        }
        for ended in books.transfers.endpoint_closed(self.id) {
            books.ended(Some(ended));
        }
        closed
    }
}

fn owner(push: &Push) -> TransferId {
    match push {
        Push::Write(write) => write.transfer,
        Push::Seal(transfer) => *transfer,
    }
}

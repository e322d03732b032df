//! The receiving side of one peer session.

use std::collections::HashSet;
use std::rc::Rc;

use libfabric_sys as sys;
use tandem_core::EndpointId;
use tandem_core::immediate::{Immediate, SlotKey};
use tandem_core::ledger::{Armed, Counted, InboundLedger};

use super::disorder::Disorder;
use super::outlet::Outlet;
use super::room::{QueueSize, Room};
use crate::error::CallError;
use crate::event::FabricEvent;
use crate::safe::domain::Domain;
use crate::safe::endpoint::{BATCH, Endpoint, Read};
use crate::stats::FabricStats;

/// One peer's way in.
pub(crate) struct InboxState {
    pub(crate) id: EndpointId,
    /// One for each NIC.
    endpoints: Vec<Endpoint>,
    immediates: Disorder<Immediate>,
    pub(crate) room: Room,
    failed: bool,
}

/// Slots of all inboxes, and which of them already told of an overflow.
pub(crate) struct Slots {
    ledger: InboundLedger,
    /// Whose an armed slot is, by its number.
    inboxes: Vec<EndpointId>,
    overfull: HashSet<SlotKey>,
}

/// A slot that was given back.
pub(crate) struct Released {
    pub(crate) inbox: EndpointId,
    /// That it was armed for.
    pub(crate) pieces: u64,
    /// Whether all of them have come.
    pub(crate) all_read: bool,
}

impl Slots {
    pub(crate) fn new(slots: u16) -> Self {
        Self {
            ledger: InboundLedger::new(slots),
            inboxes: vec![EndpointId(0); usize::from(slots)],
            overfull: HashSet::new(),
        }
    }

    pub(crate) fn arm(
        &mut self,
        inbox: EndpointId,
        expected: u64,
    ) -> Result<Armed, tandem_core::ledger::NoSlot> {
        let armed = self.ledger.arm(inbox, expected)?;
        self.inboxes[usize::from(armed.key.slot())] = inbox;
        Ok(armed)
    }

    /// Frees a slot; `None` where it is not armed, or not there.
    pub(crate) fn release(&mut self, armed: Armed, slots: u16) -> Option<Released> {
        if armed.key.slot() >= slots {
            return None;
        }
        let (received, pieces) = self.ledger.progress(armed)?;
        self.ledger.release(armed);
        self.overfull.remove(&armed.key);
        Some(Released {
            inbox: self.inboxes[usize::from(armed.key.slot())],
            pieces,
            all_read: received >= pieces,
        })
    }

    /// Whether any transfer is awaited.
    pub(crate) fn any_armed(&self) -> bool {
        self.ledger.in_use() > 0
    }

    fn count(
        &mut self,
        endpoint: EndpointId,
        immediate: Immediate,
        stats: &FabricStats,
    ) -> Option<FabricEvent> {
        let armed = immediate.key();
        match self.ledger.count(endpoint, immediate) {
            Counted::Stale(_) => {
                stats.immediates_stale.add(1);
                return None;
            }
            Counted::Partial { .. } => stats.immediates.add(1),
            Counted::Full => {
                stats.immediates.add(1);
                // A piece of no weight behind the last one is full again: tell once.
                if immediate.weight() > 0 {
                    return Some(FabricEvent::Full { armed, endpoint });
                }
            }
            Counted::Overfull { received, expected } => {
                stats.immediates.add(1);
                if self.overfull.insert(armed) {
                    return Some(FabricEvent::Overfull {
                        armed,
                        endpoint,
                        received,
                        expected,
                    });
                }
            }
        }
        None
    }
}

impl InboxState {
    pub(crate) fn open(
        id: EndpointId,
        domains: &[Rc<Domain>],
        queue: QueueSize,
        disorder: Option<u64>,
    ) -> Result<Self, CallError> {
        let endpoints = domains
            .iter()
            .map(|d| Endpoint::open(Rc::clone(d), queue.entries));
        Ok(Self {
            id,
            endpoints: endpoints.collect::<Result<_, _>>()?,
            immediates: Disorder::new(disorder),
            room: Room::new(queue),
            failed: false,
        })
    }

    pub(crate) fn endpoints(&self) -> impl Iterator<Item = &Endpoint> {
        self.endpoints.iter()
    }

    /// Whether an event is about one of its endpoints.
    pub(crate) fn has(&self, about: *const std::ffi::c_void) -> bool {
        self.endpoints.iter().any(|e| e.is(about))
    }

    /// Whether immediates are held back, for a test.
    pub(crate) fn holds_back(&self) -> bool {
        !self.immediates.is_empty()
    }

    /// Closes all endpoints; an error where one of them did not close.
    pub(crate) fn close(self) -> Result<(), CallError> {
        let closed = self.endpoints.into_iter().map(Endpoint::close);
        // All of them, whatever the first one says.
        closed.collect::<Vec<_>>().into_iter().collect()
    }

    /// Reads what has come. Returns whether anything had.
    pub(crate) fn turn(
        &mut self,
        entries: &mut [sys::fi_cq_data_entry; BATCH],
        slots: &mut Slots,
        outlet: &mut Outlet,
        stats: &FabricStats,
    ) -> bool {
        let mut any = false;
        for nic in 0..self.endpoints.len() {
            any |= self.read(nic, entries, outlet, stats);
        }
        if !any && !self.failed {
            self.room.seen_empty();
        }
        self.immediates.turn();
        while let Some(immediate) = self.immediates.pop() {
            any = true;
            if let Some(event) = slots.count(self.id, immediate, stats) {
                outlet.push(event);
            }
        }
        any
    }

    fn read(
        &mut self,
        nic: usize,
        entries: &mut [sys::fi_cq_data_entry; BATCH],
        outlet: &mut Outlet,
        stats: &FabricStats,
    ) -> bool {
        match self.endpoints[nic].read(entries) {
            Read::Empty => false,
            Read::Entries(n) => {
                // Of an entry only the flags and the data are used: `len` is 0 on some providers.
                for entry in &entries[..n] {
                    if entry.flags & u64::from(sys::FI_REMOTE_CQ_DATA) == 0 {
                        stats.unknown_contexts.add(1);
                        continue;
                    }
                    self.immediates
                        .push(Immediate::from_bits(entry.data as u32));
                }
                true
            }
            Read::Error(error) => {
                // Whatever its flags say, an error entry counts for nothing.
                stats.foreign_errors.add(1);
                let error = format!("an inbound write broke off: {}", error.text);
                self.fail(error, outlet);
                true
            }
            Read::Broken(errno) => {
                self.fail(format!("its completion queue is broken: {errno}"), outlet);
                false
            }
        }
    }

    /// Says once that this inbox is of no more use.
    pub(crate) fn fail(&mut self, error: String, outlet: &mut Outlet) {
        if !std::mem::replace(&mut self.failed, true) {
            outlet.push(FabricEvent::EndpointFailed {
                endpoint: self.id,
                error,
            });
        }
    }
}

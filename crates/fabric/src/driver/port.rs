//! One local NIC's part of an outbox: an endpoint and its window of writes in flight.

use std::ffi::c_void;
use std::rc::Rc;

use tandem_core::FlowId;

use super::command::Write;
use super::contexts::Contexts;
use super::disorder::Disorder;
use crate::error::{CallError, Errno};
use crate::safe::domain::Domain;
use crate::safe::endpoint::{Endpoint, RawWrite};

/// A completion that was read and is not yet dealt with.
pub(crate) struct Completion {
    pub(crate) context: *mut c_void,
    pub(crate) error: Option<String>,
}

pub(crate) struct Port {
    pub(crate) endpoint: Endpoint,
    pub(crate) contexts: Contexts<FlowId>,
    /// The provider takes nothing until something completes, or the next turn.
    pub(crate) refused: bool,
    pub(crate) completions: Disorder<Completion>,
}

/// Where a lane's writes go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lane {
    /// Which port.
    pub(crate) port: usize,
    /// The remote NIC's address, as this port's endpoint knows it.
    pub(crate) peer: u64,
    /// Which of the remote NICs.
    pub(crate) nic: usize,
}

/// Entries of an outbox's completion queue. Each write that is posted gets one of them, and holds one
/// of `window` contexts until that entry has been read: so no more than `window` are ever taken. As
/// many again for what does not belong there.
pub(crate) const fn outbox_entries(window: usize) -> usize {
    2 * window
}

impl Port {
    pub(crate) fn open(
        domain: &Rc<Domain>,
        window: usize,
        disorder: Option<u64>,
    ) -> Result<Self, CallError> {
        Ok(Self {
            endpoint: Endpoint::open(Rc::clone(domain), outbox_entries(window))?,
            contexts: Contexts::new(window),
            refused: false,
            completions: Disorder::new(disorder),
        })
    }

    /// Whether a write may be tried now.
    pub(crate) fn has_room(&self) -> bool {
        !self.refused && !self.contexts.is_full()
    }

    /// Posts a write to the memory that begins at `base` and has this `key`.
    ///
    /// # Safety
    /// The write's local range lies in the arena.
    pub(crate) unsafe fn post(
        &mut self,
        lane: Lane,
        write: &Write,
        (base, key): (u64, u64),
    ) -> Result<(), Errno> {
        let Some(context) = self.contexts.take(write.flow) else {
            return Err(Errno::AGAIN);
        };
        let raw = RawWrite {
            local_offset: write.local_offset as usize,
            len: write.len as usize,
            peer: lane.peer,
            address: base + write.remote_offset,
            key,
            immediate: write.immediate.to_bits(),
            context,
        };
        // SAFETY: the range is the caller's; the context is a cell of this port, which outlives its
        // endpoint.
        let posted = unsafe { self.endpoint.write(&raw) };
        if posted.is_err() {
            self.contexts.give_back(context);
        }
        posted
    }

    /// Closes the endpoint.
    pub(crate) fn close(self) -> Result<(), CallError> {
        let closed = self.endpoint.close();
        if closed.is_err() {
            // The provider may still write into the cells.
            std::mem::forget(self.contexts);
        }
        closed
    }
}

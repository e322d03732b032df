//! Posting writes from a plain thread.

use std::sync::Arc;

use tandem_core::FlowId;
use tokio::sync::mpsc;

use crate::driver::command::{Push, Write};
use crate::shared::Shared;

/// Hands writes to the fabric's thread, without ever waiting. For the thread that watches the
/// engines' counters.
#[derive(Clone, Debug)]
pub struct Pusher {
    pushes: mpsc::Sender<Push>,
    shared: Arc<Shared>,
}

impl Pusher {
    pub(crate) fn new(pushes: mpsc::Sender<Push>, shared: Arc<Shared>) -> Self {
        Self { pushes, shared }
    }

    /// Queues a write. Gives it back where the flow has [`crate::QUEUED_WRITES`] queued
    /// already or the thread is behind: try again later, other flows meanwhile. Also where
    /// the fabric is closed ([`Pusher::is_closed`]).
    ///
    /// A write of a flow that has ended or was stopped is dropped. One that reaches outside
    /// the arena or the remote region is never posted and fails its flow.
    pub fn post(&self, write: Write) -> Result<(), Write> {
        if !self.shared.credits.take(write.flow) {
            return Err(write);
        }
        if self.pushes.try_send(Push::Write(write)).is_err() {
            self.shared.credits.give_back(write.flow);
            return Err(write);
        }
        self.shared.wake.wake();
        Ok(())
    }

    /// Queues writes in their order, as many as there is room for, and wakes the thread at most once.
    /// Returns how many of them, from the first on: the others are to be tried again later. Otherwise
    /// as [`Pusher::post`].
    #[must_use]
    pub fn post_many(&self, writes: &[Write]) -> usize {
        let mut posted = 0;
        while let Some(first) = writes.get(posted) {
            let of = writes[posted..].iter().take_while(|w| w.flow == first.flow);
            let run = &writes[posted..posted + of.count()];
            let queued = self.queue(first.flow, run);
            posted += queued;
            if queued < run.len() {
                break;
            }
        }
        if posted > 0 {
            self.shared.wake.wake();
        }
        posted
    }

    /// Queues writes of one flow; returns how many.
    fn queue(&self, flow: FlowId, writes: &[Write]) -> usize {
        let wanted = u32::try_from(writes.len()).unwrap_or(u32::MAX);
        let room = self.shared.credits.take_some(flow, wanted) as usize;
        let queued = match self.pushes.try_reserve_many(room) {
            Ok(places) => {
                for (place, write) in places.zip(writes) {
                    place.send(Push::Write(*write));
                }
                room
            }
            // Nearly full, with writes of others.
            Err(_) => {
                let one = |write: &&Write| self.pushes.try_send(Push::Write(**write)).is_ok();
                writes[..room].iter().take_while(one).count()
            }
        };
        self.shared.credits.give_back_some(flow, room - queued);
        queued
    }

    /// Queues the seal behind all writes pushed before: no more will follow. Gives the id back
    /// where the queue is full.
    pub fn seal(&self, flow: FlowId) -> Result<(), FlowId> {
        self.pushes.try_send(Push::Seal(flow)).map_err(|_| flow)?;
        self.shared.wake.wake();
        Ok(())
    }

    /// Whether the fabric has ended, so that nothing will ever be taken again.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.pushes.is_closed()
    }
}

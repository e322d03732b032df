//! Waiting that ends: with the other process, or when nothing has moved for too long.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use super::BenchError;
use super::meeting::Meeting;
use crate::event::FabricEvent;
use crate::handle::FabricEvents;

/// Without any progress for so long, a run has failed.
pub(super) const STUCK: Duration = Duration::from_secs(30);
/// Between two looks at the other process.
const LOOK: Duration = Duration::from_millis(50);

/// How long there has been no progress.
pub(super) struct Patience {
    moved: Instant,
    looked: Instant,
}

impl Patience {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self {
            moved: now,
            looked: now,
        }
    }

    /// There is progress.
    pub(super) fn moved(&mut self) {
        self.moved = Instant::now();
    }

    /// Nothing moves at the moment: fails where that is for good.
    pub(super) fn check(&mut self, meeting: &mut Meeting) -> Result<(), BenchError> {
        let now = Instant::now();
        if now.duration_since(self.looked) < LOOK {
            return Ok(());
        }
        self.looked = now;
        if now.duration_since(self.moved) > STUCK {
            return Err(BenchError::Stuck(STUCK));
        }
        meeting.look()
    }
}

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls until it is ready; the fabric's futures need no runtime.
fn wait<T>(
    meeting: &mut Meeting,
    mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
) -> Result<T, BenchError> {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut patience = Patience::new();
    loop {
        if let Poll::Ready(value) = poll(&mut context) {
            return Ok(value);
        }
        std::thread::park_timeout(LOOK);
        patience.check(meeting)?;
    }
}

/// Runs a future on this thread.
pub(super) fn block_on<T>(
    meeting: &mut Meeting,
    future: impl Future<Output = T>,
) -> Result<T, BenchError> {
    let mut future = pin!(future);
    wait(meeting, |context| future.as_mut().poll(context))
}

/// The fabric's next event; a failed endpoint is an error.
pub(super) fn event(
    meeting: &mut Meeting,
    events: &mut FabricEvents,
) -> Result<FabricEvent, BenchError> {
    match wait(meeting, |context| events.poll_recv(context))? {
        Some(FabricEvent::EndpointFailed { error, .. }) => Err(BenchError::Write(error)),
        Some(event) => Ok(event),
        None => Err(crate::error::FabricError::Closed.into()),
    }
}

//! Events on their way out. The thread never waits for whoever reads them.

use std::collections::VecDeque;

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use crate::event::FabricEvent;

/// A bounded queue with a stash behind it. Each live object makes at most a fixed number of events
/// (two per armed slot, one per flow, one per endpoint), which bounds the stash.
pub(crate) struct Outlet {
    queue: mpsc::Sender<FabricEvent>,
    stash: VecDeque<FabricEvent>,
}

impl Outlet {
    pub(crate) fn new(queue: mpsc::Sender<FabricEvent>) -> Self {
        Self {
            queue,
            stash: VecDeque::new(),
        }
    }

    pub(crate) fn push(&mut self, event: FabricEvent) {
        self.stash.push_back(event);
        self.flush();
    }

    /// Sends what fits. Where nobody reads any more, events are dropped.
    pub(crate) fn flush(&mut self) {
        while let Some(event) = self.stash.pop_front() {
            match self.queue.try_send(event) {
                Ok(()) | Err(TrySendError::Closed(_)) => {}
                Err(TrySendError::Full(event)) => {
                    self.stash.push_front(event);
                    return;
                }
            }
        }
    }

    /// Whether the reader is behind.
    pub(crate) fn is_behind(&self) -> bool {
        !self.stash.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tandem_core::EndpointId;

    #[test]
    fn a_slow_reader_gets_every_event_in_order_and_holds_up_nobody() {
        let (sender, mut receiver) = mpsc::channel(1);
        let mut outlet = Outlet::new(sender);
        for i in 0..5 {
            let endpoint = EndpointId(i);
            outlet.push(FabricEvent::EndpointFailed {
                endpoint,
                error: String::new(),
            });
        }
        for i in 0..5 {
            let Ok(FabricEvent::EndpointFailed { endpoint, .. }) = receiver.try_recv() else {
                panic!("event {i} is lost");
            };
            assert_eq!(endpoint, EndpointId(i));
            outlet.flush();
        }
        assert!(!outlet.is_behind());
    }
}

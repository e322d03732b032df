//! Commands for an engine whose queue may be full for a moment.
//!
//! Bounded by what the agents have in flight: each sequence has at most a start, a go and a cancel.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tandem_engine::{Command, Engine};

/// How long a full queue is left alone.
pub(crate) const RETRY: Duration = Duration::from_millis(2);

/// Hands commands over in order.
pub(crate) struct Commands {
    engine: Arc<dyn Engine>,
    waiting: VecDeque<Command>,
}

impl Commands {
    pub(crate) fn new(engine: Arc<dyn Engine>) -> Self {
        Self {
            engine,
            waiting: VecDeque::new(),
        }
    }

    pub(crate) fn send(&mut self, command: Command) {
        self.waiting.push_back(command);
        self.flush();
    }

    /// Tries again. An engine that has died takes nothing: its closed event channel says so.
    pub(crate) fn flush(&mut self) {
        while let Some(command) = self.waiting.pop_front() {
            if let Err(command) = self.engine.submit(command) {
                self.waiting.push_front(command);
                return;
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

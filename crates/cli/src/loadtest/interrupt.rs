//! Ctrl-C: the first ends the test and keeps what there is, the second ends the process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use tandem_loadtest::Live;

use crate::failure::Failure;
use crate::lifetime::StopSignals;

/// Whether somebody asked for the end.
#[derive(Clone, Default)]
pub(super) struct Stop {
    asked: Arc<AtomicBool>,
    current: Arc<Mutex<Option<Arc<Live>>>>,
}

impl Stop {
    /// Listens from now on.
    pub(super) fn listen() -> Result<Self, Failure> {
        let stop = Self::default();
        let (asked, runtime) = (stop.clone(), tokio::runtime::Builder::new_current_thread());
        let runtime = { runtime }.enable_all().build().map_err(Failure::fault)?;
        let mut signals = {
            let _within = runtime.enter();
            StopSignals::listen()?
        };
        let wait = move || {
            runtime.block_on(async {
                signals.next().await;
                asked.ask();
                signals.exit_at_next().await;
            });
        };
        let thread = thread::Builder::new().name("signals".to_owned());
        thread.spawn(wait).map_err(Failure::fault)?;
        Ok(stop)
    }

    /// The run that is to be stopped.
    pub(super) fn watch(&self, live: &Arc<Live>) {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(live));
        if self.is_asked() {
            live.stop();
        }
    }

    pub(super) fn is_asked(&self) -> bool {
        self.asked.load(Ordering::SeqCst)
    }

    fn ask(&self) {
        self.asked.store(true, Ordering::SeqCst);
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(live) = &*current {
            live.stop();
        }
    }
}

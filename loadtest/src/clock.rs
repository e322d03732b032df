//! Waiting to the tenth of a millisecond. The runtime's timers go by milliseconds, which would show in every
//! time that is measured from a scheduled moment; a thread of its own does not.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

/// Wakes tasks at their times. Ends with its last handle.
#[derive(Clone)]
pub(crate) struct Clock {
    thread: Arc<Running>,
}

struct Running {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: BinaryHeap<Reverse<Waiting>>,
    count: u64,
    over: bool,
}

struct Waiting {
    at: Instant,
    /// Those of the same moment go in their order.
    number: u64,
    wake: oneshot::Sender<()>,
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut state = self.state();
        while !state.over {
            let now = Instant::now();
            let next = state.waiting.peek().map(|Reverse(first)| first.at);
            state = match next {
                Some(at) if at <= now => {
                    if let Some(Reverse(due)) = state.waiting.pop() {
                        // Whoever waited may have gone.
                        let _ = due.wake.send(());
                    }
                    state
                }
                Some(at) => {
                    let waited = self.changed.wait_timeout(state, at - now);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => {
                    let waited = self.changed.wait(state);
                    waited.unwrap_or_else(PoisonError::into_inner)
                }
            };
        }
    }
}

impl Clock {
    /// Starts its thread.
    pub(crate) fn start() -> std::io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let run = Arc::clone(&shared);
        thread::Builder::new()
            .name("loadtest-clock".to_owned())
            .spawn(move || run.run())?;
        Ok(Self {
            thread: Arc::new(Running { shared }),
        })
    }

    /// Waits until a moment; not at all where it is past.
    pub(crate) async fn sleep_until(&self, at: Instant) {
        if at <= Instant::now() {
            return;
        }
        let (wake, woken) = oneshot::channel();
        {
            let mut state = self.thread.shared.state();
            let number = state.count;
            state.count += 1;
            state.waiting.push(Reverse(Waiting { at, number, wake }));
        }
        self.thread.shared.changed.notify_one();
        let _ = woken.await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shared.state().over = true;
        self.shared.changed.notify_one();
    }
}

/// Longest sleep without a look at `stopped`.
const LOOK: Duration = Duration::from_millis(20);

/// Blocks this thread until a moment; `false` where it was stopped before.
pub(crate) fn block_until(at: Instant, stopped: impl Fn() -> bool) -> bool {
    loop {
        if stopped() {
            return false;
        }
        let Some(left) = at
            .checked_duration_since(Instant::now())
            .filter(|l| !l.is_zero())
        else {
            return true;
        };
        thread::sleep(left.min(LOOK));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn moments_come_in_their_order_and_never_early() {
        let clock = Clock::start().unwrap();
        let start = Instant::now();
        let wait = async |ms: u64| {
            let at = start + Duration::from_millis(ms);
            clock.sleep_until(at).await;
            assert!(Instant::now() >= at);
            ms
        };
        let order = Mutex::new(Vec::new());
        let noted = async |ms| {
            let ms = wait(ms).await;
            order.lock().unwrap().push(ms);
        };
        tokio::join!(noted(30), noted(10), noted(0), noted(20));
        assert_eq!(*order.lock().unwrap(), [0, 10, 20, 30]);
    }

    #[test]
    fn a_stop_ends_the_wait() {
        assert!(!block_until(
            Instant::now() + Duration::from_secs(3600),
            || true
        ));
        assert!(block_until(Instant::now(), || false));
    }
}

//! The threads that read requests: how many work at once, and for whom.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::api::error::ApiError;

/// Bytes from which a body is a large one: reading it takes tens of milliseconds, or more.
const LARGE: usize = 256 << 10;

/// Turns on them. Where there are two or more, one is left for small bodies, whatever large ones come.
#[derive(Clone)]
pub(super) struct Threads {
    all: Arc<Semaphore>,
    /// Those that large bodies may take.
    large: Arc<Semaphore>,
}

impl Threads {
    pub(super) fn new(threads: usize) -> Self {
        let threads = threads.max(1);
        Self {
            all: Arc::new(Semaphore::new(threads)),
            large: Arc::new(Semaphore::new((threads - 1).max(1))),
        }
    }

    /// Runs `work`, which reads so many bytes, when it is its turn.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let among_large = match bytes < LARGE {
            true => None,
            false => Some(turn(&self.large).await?),
        };
        let turn = turn(&self.all).await?;
        let working = tokio::task::spawn_blocking(move || {
            // Held until the thread is free again, also where the client has left.
            let _turns = (turn, among_large);
            work()
        });
        working
            .await
            .map_err(|_| ApiError::internal("The request could not be read."))?
    }
}

async fn turn(threads: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, ApiError> {
    let turn = Arc::clone(threads).acquire_owned().await;
    turn.map_err(|_| ApiError::internal("The threads that read are gone."))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use tandem_wire::task::spawn;

    use super::*;

    #[tokio::test]
    async fn large_bodies_leave_a_thread_for_small_ones() {
        let threads = Threads::new(2);
        let (begun, begins) = mpsc::channel();
        let mut gates = Vec::new();
        let mut large = Vec::new();
        for _ in 0..4 {
            let (gate, opened) = mpsc::channel::<()>();
            let (threads, begun) = (threads.clone(), begun.clone());
            gates.push(gate);
            large.push(spawn("large", async move {
                let work = move || {
                    let _ = begun.send(());
                    // Until the gate is gone.
                    let _ = opened.recv();
                    Ok(())
                };
                threads.run(LARGE, work).await.is_ok()
            }));
        }
        // One of them works, and will not end.
        while begins.try_recv().is_err() {
            tokio::task::yield_now().await;
        }
        assert_eq!(threads.run(LARGE - 1, || Ok(7)).await.ok(), Some(7));
        assert!(begins.try_recv().is_err());
        drop(gates);
        for large in large {
            assert_eq!(large.join().await, Some(true));
        }
    }

    #[tokio::test]
    async fn a_single_thread_reads_large_bodies_too() {
        let read = Threads::new(1).run(LARGE, || Ok(1)).await;
        assert_eq!(read.ok(), Some(1));
    }
}

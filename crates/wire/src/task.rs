//! Background tasks with a name, ended when their handle is dropped.

use std::future::Future;

/// A running task. Dropping the handle aborts it.
#[derive(Debug)]
#[must_use = "dropping the handle ends the task"]
pub struct Task<T> {
    handle: tokio::task::JoinHandle<T>,
}

impl<T> Task<T> {
    /// Waits for the end. `None` where the task panicked or was aborted.
    pub async fn join(mut self) -> Option<T> {
        (&mut self.handle).await.ok()
    }

    /// Whether it has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.handle.is_finished()
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.handle.abort();
    }
}

/// Starts a task. Its name stands in every log line that it writes.
pub fn spawn<F>(name: &'static str, future: F) -> Task<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    use tracing::Instrument;
    let span = tracing::info_span!("tandem", task = name);
    #[allow(
        clippy::disallowed_methods,
        reason = "this is the place that gives tasks names"
    )]
    let handle = tokio::spawn(future.instrument(span));
    Task { handle }
}

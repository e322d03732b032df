//! What the bytes of a connection and the replies on it have to know of each other.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::watch;
use tokio::time::timeout;

use super::http1::Refusal;

/// Of one connection.
#[derive(Debug)]
pub(crate) struct Link {
    asked: AtomicU64,
    answered: AtomicU64,
    /// Requests that are open.
    open: watch::Sender<u64>,
    /// Which request, from 1, stands in for bytes that are none.
    refused: OnceLock<(u64, Refusal)>,
    /// Of who waits for a reply to be out.
    reader: AtomicWaker,
}

/// A request that is open until this is dropped.
#[derive(Debug)]
pub(crate) struct Open {
    link: Arc<Link>,
}

impl Link {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            asked: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            open: watch::Sender::new(0),
            refused: OnceLock::new(),
            reader: AtomicWaker::new(),
        })
    }

    /// Another request has come; with its refusal where it stands in for bytes that are none.
    pub(crate) fn ask(self: &Arc<Self>) -> (Open, Option<Refusal>) {
        let number = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        self.open.send_modify(|open| *open += 1);
        let open = Open {
            link: Arc::clone(self),
        };
        let refused = self.refused.get().filter(|(at, _)| *at == number);
        (open, refused.map(|(_, refusal)| *refusal))
    }

    /// Request `number`, from 1, will stand in for bytes that are none.
    pub(crate) fn refuse(&self, number: u64, refusal: Refusal) {
        // A connection has one refusal: nothing is read behind it.
        let _ = self.refused.set((number, refusal));
    }

    /// Wakes `reader` when the next reply is out.
    pub(crate) fn notify(&self, reader: &Waker) {
        self.reader.register(reader);
    }

    /// Requests whose replies are out.
    pub(crate) fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Resolves when no request has been open for `idle`; `first` for the first one.
    pub(crate) async fn idle(&self, first: Duration, idle: Duration) {
        let mut open = self.open.subscribe();
        loop {
            // Neither fails: the sender is `self`'s.
            let _ = open.wait_for(|open| *open == 0).await;
            let asked = self.asked.load(Ordering::Relaxed) > 0;
            let patience = if asked { idle } else { first };
            if timeout(patience, open.wait_for(|open| *open > 0))
                .await
                .is_err()
            {
                return;
            }
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.link.answered.fetch_add(1, Ordering::Relaxed);
        self.link.open.send_modify(|open| *open -= 1);
        self.link.reader.wake();
    }
}

/// A reply's body that keeps its request open until it is dropped.
#[derive(Debug)]
pub(crate) struct OpenBody<B> {
    body: B,
    _open: Open,
}

impl<B> OpenBody<B> {
    pub(crate) const fn new(body: B, open: Open) -> Self {
        Self { body, _open: open }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for OpenBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_idle_after_a_while_without_a_request() {
        let link = Link::new();
        let started = Instant::now();
        link.idle(SECOND, 5 * SECOND).await;
        assert_eq!(started.elapsed().as_secs(), 1);

        let (open, _) = link.ask();
        let closing = async {
            tokio::time::sleep(60 * SECOND).await;
            drop(open);
        };
        let started = Instant::now();
        tokio::join!(link.idle(SECOND, 5 * SECOND), closing);
        assert_eq!(started.elapsed().as_secs(), 65);
        assert_eq!(link.answered(), 1);
    }

    #[test]
    fn only_the_request_that_stands_in_is_refused() {
        let link = Link::new();
        link.refuse(2, Refusal::Host);
        assert_eq!(link.ask().1, None);
        assert_eq!(link.ask().1, Some(Refusal::Host));
        assert_eq!(link.ask().1, None);
    }
}

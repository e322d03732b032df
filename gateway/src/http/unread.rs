//! What of a request's body nobody read, read for the client's sake.
//!
//! Over HTTP/2 a reply that is complete before its request is followed by a reset. That is in order, but
//! curl before 8 takes it for a failure and forgets the reply. So a small body is read to its end before
//! a refusal goes out: it is on its way already. A large one, or one that does not come, is not waited for.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::time::timeout;

use super::body::RequestBody;

/// Read at most.
const MOST: u64 = 1 << 20;
/// And for at most so long.
const PATIENCE: Duration = Duration::from_secs(1);

type Shared = Arc<Mutex<RequestBody>>;

/// A body that its lender takes back.
struct Lent(Shared);

/// What the lender keeps.
pub(crate) struct Unread(Shared);

/// Lends a body to whoever answers the request.
pub(crate) fn lend(body: RequestBody) -> (RequestBody, Unread) {
    let shared = Arc::new(Mutex::new(body));
    let lent = Lent(Arc::clone(&shared)).boxed_unsync();
    (lent, Unread(shared))
}

impl Lent {
    fn with<R>(shared: &Shared, with: impl FnOnce(&mut RequestBody) -> R) -> R {
        with(&mut shared.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Body for Lent {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        Self::with(&self.0, |body| Pin::new(body).poll_frame(context))
    }

    fn is_end_stream(&self) -> bool {
        Self::with(&self.0, |body| body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        Self::with(&self.0, |body| body.size_hint())
    }
}

impl Unread {
    /// Reads what is left, where nobody has the body any more.
    pub(crate) async fn read_out(self) {
        if Arc::strong_count(&self.0) > 1 || self.is_too_much() {
            return;
        }
        let rest = async {
            let mut read = 0;
            while let Some(Ok(frame)) = self.frame().await {
                read += frame.data_ref().map_or(0, |data| data.len() as u64);
                if read > MOST {
                    return;
                }
            }
        };
        let _ = timeout(PATIENCE, rest).await;
    }

    fn is_too_much(&self) -> bool {
        Lent::with(&self.0, |body| {
            body.is_end_stream() || body.size_hint().lower() > MOST
        })
    }

    async fn frame(&self) -> Option<Result<Frame<Bytes>, io::Error>> {
        poll_fn(|context| Lent::with(&self.0, |body| Pin::new(body).poll_frame(context))).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::{Full, StreamBody};
    use tokio::sync::mpsc;
    use tokio::time::Instant;

    fn coming() -> (mpsc::Sender<Bytes>, RequestBody) {
        let (sender, mut pieces) = mpsc::channel::<Bytes>(1);
        let pieces = futures_util::stream::poll_fn(move |context| {
            let piece = std::task::ready!(pieces.poll_recv(context));
            Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
        });
        (sender, StreamBody::new(pieces).boxed_unsync())
    }

    #[tokio::test]
    async fn what_nobody_read_is_read_to_its_end() {
        let (sender, body) = coming();
        let (lent, unread) = lend(body);
        drop(lent);
        let sent = async {
            for _ in 0..3 {
                sender.send(Bytes::from_static(b"piece")).await.unwrap();
            }
            drop(sender);
        };
        tokio::join!(unread.read_out(), sent);
    }

    #[tokio::test]
    async fn a_body_that_somebody_has_is_not_touched() {
        let body = Full::new(Bytes::from_static(b"all")).map_err(|never| match never {});
        let (lent, unread) = lend(body.boxed_unsync());
        unread.read_out().await;
        assert_eq!(lent.collect().await.unwrap().to_bytes(), "all");
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_large_or_does_not_come_is_not_waited_for() {
        let began = Instant::now();
        let (sender, body) = coming();
        let (lent, unread) = lend(body);
        drop(lent);
        unread.read_out().await;
        assert_eq!(began.elapsed(), PATIENCE);
        drop(sender);

        let began = Instant::now();
        let (sender, body) = coming();
        let (lent, unread) = lend(body);
        drop(lent);
        let piece = Bytes::from(vec![0; MOST as usize]);
        let endless = async { while sender.send(piece.clone()).await.is_ok() {} };
        tokio::select! {
            () = unread.read_out() => {}
            () = endless => panic!("the body is gone first"),
        }
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
}

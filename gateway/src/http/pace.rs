//! A request's body that has to come at some pace.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};

/// How fast a body has to come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// May pass before the rate counts.
    pub(crate) grace: Duration,
    /// Bytes a second, at least 1.
    pub(crate) rate: u64,
}

impl Pace {
    /// How long a body may be waited for in all, of which so many bytes have come.
    fn allowed(self, bytes: u64) -> Duration {
        let millis = u128::from(bytes) * 1000 / u128::from(self.rate.max(1));
        let earned = Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX));
        self.grace.saturating_add(earned)
    }
}

/// Fails where the client is waited for longer than [`Pace`] allows. Time in which nobody wants the
/// body does not count.
#[derive(Debug)]
pub(crate) struct Paced<B> {
    body: B,
    pace: Pace,
    bytes: u64,
    /// Time that was spent in waiting before the wait that goes on.
    waited: Duration,
    wait: Option<Wait>,
}

#[derive(Debug)]
struct Wait {
    since: Instant,
    until: Pin<Box<Sleep>>,
}

impl<B> Paced<B> {
    pub(crate) const fn new(body: B, pace: Pace) -> Self {
        Self {
            body,
            pace,
            bytes: 0,
            waited: Duration::ZERO,
            wait: None,
        }
    }

    fn poll_wait(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let left = self.pace.allowed(self.bytes).saturating_sub(self.waited);
        let wait = self.wait.get_or_insert_with(|| {
            let since = Instant::now();
            Wait {
                since,
                until: Box::pin(sleep_until(since + left)),
            }
        });
        wait.until.as_mut().poll(context)
    }
}

impl<B: Body<Data = Bytes, Error = io::Error> + Unpin> Body for Paced<B> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let this = &mut *self;
        let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(context) else {
            ready!(this.poll_wait(context));
            let message = format!("fewer than {} bytes a second", this.pace.rate);
            return Poll::Ready(Some(Err(io::Error::new(io::ErrorKind::TimedOut, message))));
        };
        if let Some(wait) = this.wait.take() {
            this.waited += wait.since.elapsed();
        }
        if let Some(Ok(frame)) = &frame {
            this.bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
        }
        Poll::Ready(frame)
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
    use http_body_util::{BodyExt, StreamBody};
    use tokio::sync::mpsc;

    const SECOND: Duration = Duration::from_secs(1);
    const PACE: Pace = Pace {
        grace: Duration::from_secs(5),
        rate: 10,
    };

    /// What is sent comes as a body.
    fn body(
        mut pieces: mpsc::Receiver<Bytes>,
    ) -> impl Body<Data = Bytes, Error = io::Error> + Unpin {
        StreamBody::new(futures_util::stream::poll_fn(move |context| {
            let piece = ready!(pieces.poll_recv(context));
            Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
        }))
    }

    /// Seconds until the body ends where a client sends `bytes` each second for so long, and whether
    /// it was let end.
    async fn take(bytes: usize, seconds: u64) -> (u64, bool) {
        let (sender, pieces) = mpsc::channel(1);
        let started = Instant::now();
        let sending = async move {
            for _ in 0..seconds {
                tokio::time::sleep(SECOND).await;
                if sender.send(vec![0; bytes].into()).await.is_err() {
                    return;
                }
            }
        };
        let reading = async move {
            let whole = Paced::new(body(pieces), PACE).collect().await;
            (started.elapsed().as_secs(), whole.is_ok())
        };
        tokio::join!(sending, reading).1
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_may_be_slow_but_not_for_ever() {
        assert_eq!(take(10, 100).await, (100, true));
        assert_eq!(take(0, 100).await, (5, false));
        // After 9 seconds it has earned 4.5 more than the first 5.
        assert_eq!(take(5, 100).await, (9, false));
    }

    #[tokio::test(start_paused = true)]
    async fn time_in_which_nobody_reads_is_not_the_clients() {
        let (sender, pieces) = mpsc::channel(1);
        let mut paced = Paced::new(body(pieces), PACE);
        tokio::time::sleep(60 * SECOND).await;
        sender.send(Bytes::from_static(b"x")).await.unwrap();
        drop(sender);
        assert_eq!(
            paced
                .frame()
                .await
                .unwrap()
                .unwrap()
                .into_data()
                .unwrap()
                .len(),
            1
        );
        assert!(paced.frame().await.is_none());
    }
}

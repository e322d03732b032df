//! One HTTP/1.1 connection. It has no task of its own: the request that uses it drives it, so that what
//! comes wakes one task and not two, and its time is taken where it is read.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;

use super::HttpError;
use super::connect::Stream;
use super::reply::{Carrier, Reply};

/// A connection between two requests.
pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    driver: Driver,
}

/// What reads and writes the connection; `None` when it has ended.
pub(super) struct Driver(Option<Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>>);

impl Driver {
    /// Drives the connection while something is waited for.
    pub(super) async fn during<F: Future>(&mut self, work: F) -> F::Output {
        let mut work = pin!(work);
        poll_fn(|cx| {
            self.step(cx);
            work.as_mut().poll(cx)
        })
        .await
    }

    fn step(&mut self, cx: &mut Context<'_>) {
        if let Some(driver) = &mut self.0
            && driver.as_mut().poll(cx).is_ready()
        {
            // What broke it shows in the request.
            self.0 = None;
        }
    }
}

impl Connection {
    pub(super) async fn over(stream: TokioIo<Stream>) -> Result<Self, HttpError> {
        let (sender, connection) = http1::handshake(stream).await?;
        Ok(Self {
            sender,
            driver: Driver(Some(Box::pin(connection))),
        })
    }

    /// Asks, and waits for the answer's head.
    pub(super) async fn ask(mut self, request: Request<Full<Bytes>>) -> Result<Reply, HttpError> {
        let connected = std::time::Instant::now();
        let answered = self.sender.send_request(request);
        let response = self.driver.during(answered).await?;
        Ok(Reply::new(response, connected, Carrier::Own(self)))
    }

    pub(super) const fn driver(&mut self) -> &mut Driver {
        &mut self.driver
    }

    /// Takes note of what has happened to it in the meantime; `None` where it has ended.
    pub(super) fn still_open(mut self) -> Option<Self> {
        let mut nobody = Context::from_waker(Waker::noop());
        self.driver.step(&mut nobody);
        let open = self.driver.0.is_some();
        let ready = matches!(self.sender.poll_ready(&mut nobody), Poll::Ready(Ok(())));
        (open && ready).then_some(self)
    }
}

//! HTTP/2: connections that carry many requests at a time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::TokioExecutor;
use tandem_wire::task::{self, Task};

use super::reply::{Carrier, Reply};
use super::{Endpoint, HttpError, connect};

/// Requests at a time on one connection: what servers usually allow.
const SEATS: usize = 100;

/// The connections.
#[derive(Default)]
pub(super) struct Shared {
    open: Mutex<Vec<Line>>,
}

struct Line {
    sender: SendRequest<Full<Bytes>>,
    taken: Arc<AtomicUsize>,
    _driver: Task<()>,
}

/// A request's place on a connection; it is free again when this is dropped.
pub(crate) struct Seat(Arc<AtomicUsize>);

impl Seat {
    fn on(taken: &Arc<AtomicUsize>) -> Self {
        taken.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(taken))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Shared {
    pub(super) async fn ask(
        &self,
        endpoint: &Endpoint,
        request: Request<Full<Bytes>>,
    ) -> Result<Reply, HttpError> {
        let (mut sender, seat) = match self.free_seat() {
            Some(free) => free,
            None => self.connect(endpoint).await?,
        };
        let connected = Instant::now();
        let response = sender.send_request(request).await?;
        Ok(Reply::new(response, connected, Carrier::Shared(seat)))
    }

    fn free_seat(&self) -> Option<(SendRequest<Full<Bytes>>, Seat)> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|line| !line.sender.is_closed());
        let free = |line: &&Line| line.taken.load(Ordering::Relaxed) < SEATS;
        let line = open.iter().find(free)?;
        Some((line.sender.clone(), Seat::on(&line.taken)))
    }

    async fn connect(
        &self,
        endpoint: &Endpoint,
    ) -> Result<(SendRequest<Full<Bytes>>, Seat), HttpError> {
        let stream = connect::connect(endpoint).await?;
        let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await?;
        let driver = task::spawn("http2 connection", async move {
            // What breaks it shows in its requests.
            let _ = connection.await;
        });
        let taken = Arc::new(AtomicUsize::new(0));
        let seat = Seat::on(&taken);
        let line = Line {
            sender: sender.clone(),
            taken,
            _driver: driver,
        };
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.push(line);
        Ok((sender, seat))
    }
}

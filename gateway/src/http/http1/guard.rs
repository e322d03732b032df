//! A socket through which only well-framed requests of HTTP/1 come, each in its time.
//!
//! What is refused in a head reaches hyper as a request of its own that stands in for it, so that the
//! reply comes behind those to the requests before it and through all layers; nothing is read after
//! it. What is refused in a body breaks the body off.
//!
//! A request is handed on when the one before it is answered, so that a client that leaves is noticed
//! meanwhile, whatever it had sent ahead.
//!
//! What must hold: every wait for bytes that a client owes has an end, and little is kept meanwhile:
//! one head, and what was sent ahead up to a few reads' worth.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use super::framing::{Framing, Place};
use super::head::HeadLimits;
use super::refusal::Refusal;
use crate::http::link::Link;

/// Stands in for a head that was refused.
const STAND_IN: &[u8] = b"GET / HTTP/1.1\r\nhost: refused\r\nconnection: close\r\n\r\n";
/// Looked at in one go.
const READ: usize = 4096;
/// Read of a body in one go.
const BODY_READ: usize = 64 << 10;
/// Most that is read ahead of a client's next request.
const AHEAD: usize = 16 << 10;
/// A client that still writes when the connection ends may be read so long and so far, so that it
/// sees the reply: the system throws a reply away where bytes come that nobody reads.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 1 << 20;

/// How long is waited for a client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// For a whole head from its first byte on, and for the first byte of all.
    pub(crate) head: Duration,
    /// For the next request.
    pub(crate) idle: Duration,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Guard<S> {
    socket: S,
    framing: Framing,
    link: Arc<Link>,
    patience: Patience,
    /// Read, and not yet handed on.
    out: Vec<u8>,
    handed: usize,
    /// Of the next request, while this one is being answered.
    ahead: Vec<u8>,
    mode: Mode,
    /// What is waited for, and until when.
    wait: Wait,
    timer: Option<Pin<Box<Sleep>>>,
    lingered: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Reading,
    /// The body is broken off once all before it was handed on.
    Broken(Refusal),
    /// A head was refused: nothing more is handed on.
    Refused,
    /// The client has ended its side, or let its time pass.
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    Nothing,
    /// For a request, after so many.
    Request(u64),
    /// For the rest of a head, after so many.
    Head(u64),
}

impl<S> Guard<S> {
    pub(crate) fn new(socket: S, limits: HeadLimits, patience: Patience, link: Arc<Link>) -> Self {
        Self {
            socket,
            framing: Framing::new(limits),
            link,
            patience,
            out: Vec::new(),
            handed: 0,
            ahead: Vec::new(),
            mode: Mode::Reading,
            wait: Wait::Nothing,
            timer: None,
            lingered: None,
        }
    }

    fn hand_on(&mut self, buffer: &mut ReadBuf<'_>) {
        let rest = &self.out[self.handed..];
        let length = rest.len().min(buffer.remaining());
        buffer.put_slice(&rest[..length]);
        self.handed += length;
        if self.handed == self.out.len() {
            // Idle connections keep nothing.
            self.out = Vec::new();
            self.handed = 0;
        }
    }

    /// Whether what comes next may be looked at.
    fn has_its_turn(&self) -> bool {
        self.framing.place() != Place::Between || self.link.answered() >= self.framing.heads()
    }

    fn look_at(&mut self, bytes: &[u8]) {
        match self.framing.read(bytes, &mut self.out) {
            Ok(taken) => self.ahead.extend_from_slice(&bytes[taken..]),
            Err(refusal) => self.refuse(refusal),
        }
    }

    fn refuse(&mut self, refusal: Refusal) {
        if matches!(self.framing.place(), Place::Body(_)) {
            self.mode = Mode::Broken(refusal);
        } else {
            self.link.refuse(self.framing.heads() + 1, refusal);
            self.out.extend_from_slice(STAND_IN);
            self.mode = Mode::Refused;
        }
    }

    /// Called while nothing comes. Ready when the time is up.
    fn lose_patience(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let heads = self.framing.heads();
        let wait = match self.framing.place() {
            Place::Head => Wait::Head(heads),
            Place::Between if self.link.answered() >= heads => Wait::Request(heads),
            Place::Between | Place::Body(_) => Wait::Nothing,
        };
        if wait != self.wait {
            self.wait = wait;
            let patience = match wait {
                Wait::Nothing => None,
                Wait::Request(1..) => Some(self.patience.idle),
                Wait::Request(0) | Wait::Head(_) => Some(self.patience.head),
            };
            self.timer = patience.map(|time| Box::pin(sleep_until(Instant::now() + time)));
        }
        let Some(timer) = &mut self.timer else {
            return Poll::Pending;
        };
        ready!(timer.as_mut().poll(context));
        self.timer = None;
        if matches!(wait, Wait::Head(_)) {
            self.refuse(Refusal::Slow);
        } else {
            self.mode = Mode::Ended;
        }
        Poll::Ready(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guard<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buffer.filled().len();
        // hyper asks again only when it is woken.
        this.link.notify(context.waker());
        while buffer.remaining() > 0 {
            if !this.out.is_empty() {
                this.hand_on(buffer);
                return Poll::Ready(Ok(()));
            }
            match this.mode {
                Mode::Reading => {}
                Mode::Broken(refusal) => {
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, refusal)));
                }
                Mode::Ended => return Poll::Ready(Ok(())),
                // The end of the client's side would take its reply away. What it still sends is read
                // when the connection closes.
                Mode::Refused => return Poll::Pending,
            }
            if !this.ahead.is_empty() && this.has_its_turn() {
                let ahead = std::mem::take(&mut this.ahead);
                this.look_at(&ahead);
                continue;
            }
            let read = match this.framing.place() {
                Place::Body(left @ 1..) => this.poll_body(context, buffer, left),
                _ => this.poll_other(context),
            };
            match read {
                Poll::Ready(Ok(0)) => this.mode = Mode::Ended,
                Poll::Ready(result) => {
                    result?;
                }
                Poll::Pending => ready!(this.lose_patience(context)),
            }
            if buffer.filled().len() > before {
                break;
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> Guard<S> {
    /// Reads a body of which `left` bytes are left, right into `buffer`.
    fn poll_body(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
        left: u64,
    ) -> Poll<io::Result<usize>> {
        let most = usize::try_from(left).unwrap_or(usize::MAX);
        let most = buffer.remaining().min(most).min(BODY_READ);
        let mut part = ReadBuf::new(buffer.initialize_unfilled_to(most));
        ready!(Pin::new(&mut self.socket).poll_read(context, &mut part))?;
        let length = part.filled().len();
        buffer.advance(length);
        self.framing.passed(length as u64);
        Poll::Ready(Ok(length))
    }

    /// Reads a head, a chunked body, or ahead.
    fn poll_other(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.ahead.len() >= AHEAD {
            // Called again when the request that is being answered has been.
            return Poll::Pending;
        }
        let mut scratch = [0; READ];
        let mut part = ReadBuf::new(&mut scratch);
        ready!(Pin::new(&mut self.socket).poll_read(context, &mut part))?;
        let bytes = part.filled();
        if self.has_its_turn() {
            self.look_at(bytes);
        } else {
            self.ahead.extend_from_slice(bytes);
        }
        Poll::Ready(Ok(bytes.len()))
    }

    /// Reads and throws away until the client ends its side, or for a while.
    fn poll_linger(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(lingered) = &mut self.lingered else {
            return Poll::Ready(());
        };
        loop {
            let mut scratch = [0; READ];
            let mut part = ReadBuf::new(&mut scratch);
            match Pin::new(&mut self.socket).poll_read(context, &mut part) {
                Poll::Ready(Ok(())) if !part.filled().is_empty() && *lingered < LINGER_BYTES => {
                    *lingered += part.filled().len();
                }
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => break,
            }
        }
        match &mut self.timer {
            Some(timer) => timer.as_mut().poll(context),
            None => Poll::Ready(()),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Guard<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.lingered.is_none() {
            ready!(Pin::new(&mut self.socket).poll_shutdown(context))?;
            let done = match self.mode {
                Mode::Ended => true,
                Mode::Refused | Mode::Broken(_) => false,
                Mode::Reading => self.framing.place() == Place::Between && self.ahead.is_empty(),
            };
            if done {
                return Poll::Ready(Ok(()));
            }
            self.lingered = Some(0);
            self.timer = Some(Box::pin(sleep_until(Instant::now() + LINGER)));
        }
        self.poll_linger(context).map(Ok)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }
}

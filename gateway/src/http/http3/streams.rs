//! h3's view of a QUIC connection.
//!
//! In the place of `h3-quinn`, which cannot say that a client has cancelled a request before something
//! is sent to it, lets h3 keep as much as a client sends, and panics where a stream is stopped while
//! it is read.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use h3::quic::{
    self, ConnectionErrorIncoming, OpenStreams, StreamErrorIncoming, StreamId, WriteBuf,
};
use quinn::{ConnectionError, ReadError, VarInt, WriteError};

/// Read of a stream in one go.
const READ: usize = 4096;
/// What a frame may have beside what a head may be long.
const BESIDE_THE_HEAD: u64 = 2 * READ as u64;
/// Of a stream that is no request. They say little, for as long as the connection lives.
const CONTROL_BYTES: u64 = 256 << 10;
/// RFC 9114, section 8.1.
const INTERNAL_ERROR: VarInt = VarInt::from_u32(0x102);
const EXCESSIVE_LOAD: u64 = 0x107;

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send + Sync>>;

/// Resolves when a client wants no more of an answer, has all of it, or is lost.
pub(super) type Stopped = Boxed<()>;

/// The requests of a connection that nobody has looked at yet.
pub(super) struct Streams {
    /// Of one frame that is kept whole.
    longest_frame: u64,
    new: Mutex<HashMap<u64, (Stopped, Arc<Valve>)>>,
}

/// How much h3 may read of a stream. It keeps what it reads until it is asked for, so it may read
/// only when it has nothing left to give.
#[derive(Debug)]
pub(super) struct Valve {
    open: AtomicBool,
    /// Read since something was given.
    kept: AtomicU64,
    most: u64,
}

impl Streams {
    pub(super) fn new(longest_head: u64) -> Arc<Self> {
        Arc::new(Self {
            longest_frame: longest_head + BESIDE_THE_HEAD,
            new: Mutex::default(),
        })
    }

    /// What belongs to a request's stream, once.
    pub(super) fn take(&self, stream: u64) -> Option<(Stopped, Arc<Valve>)> {
        let mut new = self.new.lock().unwrap_or_else(PoisonError::into_inner);
        new.remove(&stream)
    }

    fn add(&self, send: &quinn::SendStream, valve: &Arc<Valve>) {
        let stopped = send.stopped();
        let stopped: Stopped = Box::pin(async move {
            // An error means that the connection is lost.
            let _ = stopped.await;
        });
        let mut new = self.new.lock().unwrap_or_else(PoisonError::into_inner);
        new.insert(send.id().into(), (stopped, Arc::clone(valve)));
    }
}

impl Valve {
    fn new(most: u64) -> Arc<Self> {
        Arc::new(Self {
            open: AtomicBool::new(true),
            kept: AtomicU64::new(0),
            most,
        })
    }

    /// h3 may read, or may give only what it has.
    pub(super) fn set(&self, open: bool) {
        self.open.store(open, Ordering::Relaxed);
    }

    /// h3 gave something.
    pub(super) fn given(&self) {
        self.kept.store(0, Ordering::Relaxed);
    }
}

/// Accepts what a client opens.
pub(super) struct Connection {
    quinn: quinn::Connection,
    streams: Arc<Streams>,
    requests: Option<Boxed<Result<(quinn::SendStream, quinn::RecvStream), ConnectionError>>>,
    others: Option<Boxed<Result<quinn::RecvStream, ConnectionError>>>,
    opener: Opener,
}

impl Connection {
    pub(super) fn new(quinn: quinn::Connection, streams: Arc<Streams>) -> Self {
        Self {
            opener: Opener::new(quinn.clone()),
            quinn,
            streams,
            requests: None,
            others: None,
        }
    }
}

impl<B: Buf> quic::Connection<B> for Connection {
    type RecvStream = Recv;
    type OpenStreams = Opener;

    fn poll_accept_recv(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Recv, ConnectionErrorIncoming>> {
        let accepting = self.others.get_or_insert_with(|| {
            let quinn = self.quinn.clone();
            Box::pin(async move { quinn.accept_uni().await })
        });
        let accepted = ready!(accepting.as_mut().poll(context));
        self.others = None;
        let stream = accepted.map_err(lost)?;
        Poll::Ready(Ok(Recv {
            stream,
            valve: Valve::new(CONTROL_BYTES),
        }))
    }

    fn poll_accept_bidi(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Request<B>, ConnectionErrorIncoming>> {
        let accepting = self.requests.get_or_insert_with(|| {
            let quinn = self.quinn.clone();
            Box::pin(async move { quinn.accept_bi().await })
        });
        let accepted = ready!(accepting.as_mut().poll(context));
        self.requests = None;
        let (send, recv) = accepted.map_err(lost)?;
        let valve = Valve::new(self.streams.longest_frame);
        self.streams.add(&send, &valve);
        Poll::Ready(Ok(Request {
            send: Answer::new(send, Some(Arc::clone(&self.streams))),
            recv: Recv {
                stream: recv,
                valve,
            },
        }))
    }

    fn opener(&self) -> Opener {
        Opener::new(self.quinn.clone())
    }
}

impl<B: Buf> OpenStreams<B> for Connection {
    type BidiStream = Request<B>;
    type SendStream = Answer<B>;

    fn poll_open_bidi(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Request<B>, StreamErrorIncoming>> {
        self.opener.poll_open_bidi(context)
    }

    fn poll_open_send(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Answer<B>, StreamErrorIncoming>> {
        self.opener.poll_open_send(context)
    }

    fn close(&mut self, code: h3::error::Code, reason: &[u8]) {
        OpenStreams::<B>::close(&mut self.opener, code, reason);
    }
}

/// Opens what a server has to: control and QPACK.
pub(super) struct Opener {
    quinn: quinn::Connection,
    opening: Option<Boxed<Result<quinn::SendStream, ConnectionError>>>,
}

impl Opener {
    const fn new(quinn: quinn::Connection) -> Self {
        Self {
            quinn,
            opening: None,
        }
    }
}

impl<B: Buf> OpenStreams<B> for Opener {
    type BidiStream = Request<B>;
    type SendStream = Answer<B>;

    fn poll_open_bidi(
        &mut self,
        _: &mut Context<'_>,
    ) -> Poll<Result<Request<B>, StreamErrorIncoming>> {
        let connection_error =
            ConnectionErrorIncoming::InternalError("a server asks for nothing".to_owned());
        Poll::Ready(Err(StreamErrorIncoming::ConnectionErrorIncoming {
            connection_error,
        }))
    }

    fn poll_open_send(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Answer<B>, StreamErrorIncoming>> {
        let opening = self.opening.get_or_insert_with(|| {
            let quinn = self.quinn.clone();
            Box::pin(async move { quinn.open_uni().await })
        });
        let opened = ready!(opening.as_mut().poll(context));
        self.opening = None;
        Poll::Ready(
            opened
                .map_err(lost_with_stream)
                .map(|stream| Answer::new(stream, None)),
        )
    }

    fn close(&mut self, code: h3::error::Code, reason: &[u8]) {
        self.quinn.close(error_code(code.value()), reason);
    }
}

/// Both directions of a request.
pub(super) struct Request<B: Buf> {
    send: Answer<B>,
    recv: Recv,
}

/// What a client sends.
pub(super) struct Recv {
    stream: quinn::RecvStream,
    valve: Arc<Valve>,
}

/// What it is sent.
pub(super) struct Answer<B: Buf> {
    stream: quinn::SendStream,
    writing: Option<WriteBuf<B>>,
    /// Of a request's answer that has not ended. Quinn ends a stream cleanly when it is dropped, and an
    /// answer that broke off must not look whole.
    open: Option<Arc<Streams>>,
}

impl<B: Buf> quic::BidiStream<B> for Request<B> {
    type SendStream = Answer<B>;
    type RecvStream = Recv;

    fn split(self) -> (Answer<B>, Recv) {
        (self.send, self.recv)
    }
}

impl quic::RecvStream for Recv {
    type Buf = Bytes;

    fn poll_data(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        if !self.valve.open.load(Ordering::Relaxed) {
            // Its owner opens it and asks again where h3 has nothing left.
            return Poll::Pending;
        }
        let mut bytes = [0; READ];
        let read =
            ready!(self.stream.poll_read(context, &mut bytes)).map_err(|error| match error {
                ReadError::Reset(code) => StreamErrorIncoming::StreamTerminated {
                    error_code: code.into_inner(),
                },
                ReadError::ConnectionLost(error) => lost_with_stream(error),
                error => StreamErrorIncoming::Unknown(Box::new(error)),
            })?;
        let kept = self.valve.kept.fetch_add(read as u64, Ordering::Relaxed);
        if kept + read as u64 > self.valve.most {
            return Poll::Ready(Err(StreamErrorIncoming::StreamTerminated {
                error_code: EXCESSIVE_LOAD,
            }));
        }
        Poll::Ready(Ok(
            (read > 0).then(|| Bytes::copy_from_slice(&bytes[..read]))
        ))
    }

    fn stop_sending(&mut self, code: u64) {
        // Fails where it has ended already.
        let _ = self.stream.stop(error_code(code));
    }

    fn recv_id(&self) -> StreamId {
        stream_id(self.stream.id())
    }
}

impl<B: Buf> Answer<B> {
    const fn new(stream: quinn::SendStream, open: Option<Arc<Streams>>) -> Self {
        Self {
            stream,
            writing: None,
            open,
        }
    }

    /// Whether it was a request's, and had not ended.
    fn end(&mut self) -> bool {
        // Nobody looks at a request whose head never came whole.
        let taken = self
            .open
            .take()
            .map(|streams| streams.take(self.stream.id().into()));
        taken.is_some()
    }
}

impl<B: Buf> quic::SendStream<B> for Answer<B> {
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        while let Some(data) = self.writing.as_mut().filter(|data| data.has_remaining()) {
            let stream = Pin::new(&mut self.stream);
            let written =
                ready!(stream.poll_write(context, data.chunk())).map_err(|error| match error {
                    WriteError::Stopped(code) => StreamErrorIncoming::StreamTerminated {
                        error_code: code.into_inner(),
                    },
                    WriteError::ConnectionLost(error) => lost_with_stream(error),
                    error => StreamErrorIncoming::Unknown(Box::new(error)),
                })?;
            data.advance(written);
        }
        self.writing = None;
        Poll::Ready(Ok(()))
    }

    fn send_data<T: Into<WriteBuf<B>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        assert!(self.writing.is_none(), "h3 waits until the stream is ready");
        self.writing = Some(data.into());
        Ok(())
    }

    fn poll_finish(&mut self, _: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.end();
        let finished = self.stream.finish();
        Poll::Ready(finished.map_err(|error| StreamErrorIncoming::Unknown(Box::new(error))))
    }

    fn reset(&mut self, code: u64) {
        self.end();
        // Fails where it has ended already.
        let _ = self.stream.reset(error_code(code));
    }

    fn send_id(&self) -> StreamId {
        stream_id(self.stream.id())
    }
}

impl<B: Buf> Drop for Answer<B> {
    fn drop(&mut self) {
        if self.end() {
            let _ = self.stream.reset(INTERNAL_ERROR);
        }
    }
}

impl<B: Buf> quic::RecvStream for Request<B> {
    type Buf = Bytes;

    fn poll_data(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        self.recv.poll_data(context)
    }

    fn stop_sending(&mut self, code: u64) {
        self.recv.stop_sending(code);
    }

    fn recv_id(&self) -> StreamId {
        self.recv.recv_id()
    }
}

impl<B: Buf> quic::SendStream<B> for Request<B> {
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.send.poll_ready(context)
    }

    fn send_data<T: Into<WriteBuf<B>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        self.send.send_data(data)
    }

    fn poll_finish(&mut self, context: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.send.poll_finish(context)
    }

    fn reset(&mut self, code: u64) {
        self.send.reset(code);
    }

    fn send_id(&self) -> StreamId {
        self.send.send_id()
    }
}

fn stream_id(id: quinn::StreamId) -> StreamId {
    StreamId::try_from(u64::from(id)).expect("QUIC's stream ids have 62 bits")
}

fn error_code(code: u64) -> VarInt {
    VarInt::from_u64(code).unwrap_or(INTERNAL_ERROR)
}

fn lost(error: ConnectionError) -> ConnectionErrorIncoming {
    match error {
        ConnectionError::ApplicationClosed(close) => ConnectionErrorIncoming::ApplicationClose {
            error_code: close.error_code.into(),
        },
        ConnectionError::TimedOut => ConnectionErrorIncoming::Timeout,
        error => ConnectionErrorIncoming::Undefined(Arc::new(error)),
    }
}

fn lost_with_stream(error: ConnectionError) -> StreamErrorIncoming {
    StreamErrorIncoming::ConnectionErrorIncoming {
        connection_error: lost(error),
    }
}

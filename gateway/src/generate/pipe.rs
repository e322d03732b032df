//! A stream's bytes on their way from the task that writes events to the connection.
//!
//! What is written while the connection is busy goes out in one piece when it is not; nothing waits
//! for more to come. A connection that takes nothing lets the writer run on for so many bytes.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};

/// Above this the writer waits for the connection.
const FULL: usize = 32 << 10;
/// Room at first: some events.
const SMALL: usize = 512;

/// The writing end. Dropped before [`Pen::end`], it breaks the stream off.
#[derive(Debug)]
pub(crate) struct Pen(Arc<Shared>);

/// The reading end.
#[derive(Debug)]
pub(crate) struct Pieces(Arc<Shared>);

#[derive(Debug)]
struct Shared(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    bytes: BytesMut,
    /// Bytes that were ever written.
    written: u64,
    end: Option<End>,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Clean,
    Broken,
}

/// What the reader finds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Whole events.
    Data(Bytes),
    /// Nothing follows, as it should be.
    End,
    /// Nothing follows, and something is missing.
    Broken,
}

/// Both ends of a new stream.
pub(crate) fn pipe() -> (Pen, Pieces) {
    let shared = Arc::new(Shared(Mutex::default()));
    (Pen(Arc::clone(&shared)), Pieces(shared))
}

impl Shared {
    /// No code panics while it holds the lock.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, end: End) {
        let mut state = self.lock();
        state.end.get_or_insert(end);
        let reader = state.reader.take();
        drop(state);
        wake(reader);
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl Pen {
    /// Appends what `write` does, whole events, at once.
    pub(crate) fn write(&self, write: impl FnOnce(&mut BytesMut)) {
        let mut state = self.0.lock();
        let before = state.bytes.len();
        if state.bytes.capacity() == 0 {
            state.bytes.reserve(SMALL);
        }
        write(&mut state.bytes);
        let new = state.bytes.len() - before;
        if new == 0 {
            return;
        }
        state.written += new as u64;
        let reader = state.reader.take();
        drop(state);
        wake(reader);
    }

    /// Bytes that were ever written.
    pub(crate) fn written(&self) -> u64 {
        self.0.lock().written
    }

    /// Waits until the connection has taken enough.
    pub(crate) async fn room(&self) {
        poll_fn(|context| {
            let mut state = self.0.lock();
            if state.bytes.len() <= FULL {
                return Poll::Ready(());
            }
            remember(&mut state.writer, context);
            Poll::Pending
        })
        .await;
    }

    /// Nothing follows, as it should be.
    pub(crate) fn end(self) {
        self.0.end(End::Clean);
    }
}

impl Drop for Pen {
    fn drop(&mut self) {
        self.0.end(End::Broken);
    }
}

impl Pieces {
    /// All that there is.
    pub(crate) fn poll(&self, context: &mut Context<'_>) -> Poll<Piece> {
        let mut state = self.0.lock();
        if !state.bytes.is_empty() {
            let bytes = state.bytes.split().freeze();
            let writer = state.writer.take();
            drop(state);
            wake(writer);
            return Poll::Ready(Piece::Data(bytes));
        }
        match state.end {
            Some(End::Clean) => Poll::Ready(Piece::End),
            Some(End::Broken) => Poll::Ready(Piece::Broken),
            None => {
                remember(&mut state.reader, context);
                Poll::Pending
            }
        }
    }
}

fn remember(waker: &mut Option<Waker>, context: &Context<'_>) {
    match waker {
        Some(waker) => waker.clone_from(context.waker()),
        None => *waker = Some(context.waker().clone()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use bytes::BufMut;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn data(text: &'static str) -> Poll<Piece> {
        Poll::Ready(Piece::Data(Bytes::from_static(text.as_bytes())))
    }

    #[test]
    fn what_is_written_between_two_looks_comes_in_one_piece() {
        let woken = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut context = Context::from_waker(&waker);
        let (pen, pieces) = pipe();
        assert_eq!(pieces.poll(&mut context), Poll::Pending);
        pen.write(|out| out.put_slice(b"a"));
        pen.write(|out| out.put_slice(b"b"));
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        assert_eq!(pieces.poll(&mut context), data("ab"));
        pen.write(|out| out.put_slice(b"c"));
        pen.end();
        assert_eq!(pieces.poll(&mut context), data("c"));
        assert_eq!(pieces.poll(&mut context), Poll::Ready(Piece::End));
    }

    #[test]
    fn a_pen_that_is_dropped_breaks_the_stream_off() {
        let mut context = Context::from_waker(Waker::noop());
        let (pen, pieces) = pipe();
        pen.write(|out| out.put_slice(b"a"));
        drop(pen);
        assert_eq!(pieces.poll(&mut context), data("a"));
        assert_eq!(pieces.poll(&mut context), Poll::Ready(Piece::Broken));
    }

    #[tokio::test]
    async fn a_writer_waits_for_a_reader_that_is_far_behind() {
        let (pen, pieces) = pipe();
        pen.write(|out| out.put_bytes(b'x', FULL));
        pen.room().await;
        pen.write(|out| out.put_slice(b"x"));
        let writing = async {
            pen.room().await;
            pen.end();
        };
        let reading = poll_fn(|context| pieces.poll(context));
        let (piece, ()) = tokio::join!(biased; reading, writing);
        assert!(matches!(piece, Piece::Data(bytes) if bytes.len() == FULL + 1));
    }
}

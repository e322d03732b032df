//! A stream of events as a reply's body.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame};

use crate::generate::{Events, Piece};

/// Hands on what the relay's task writes. Dropped by hyper when the client is gone, and the task
/// with it.
#[derive(Debug)]
pub(crate) struct EventBody {
    events: Events,
    ended: bool,
}

impl EventBody {
    pub(crate) const fn new(events: Events) -> Self {
        Self {
            events,
            ended: false,
        }
    }
}

impl Body for EventBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        match ready!(self.events.pieces.poll(context)) {
            Piece::Data(bytes) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
            Piece::End => {
                self.ended = true;
                Poll::Ready(None)
            }
            // The task is gone: no clean end.
            Piece::Broken => {
                self.ended = true;
                Poll::Ready(Some(Err(io::Error::other("the answer broke off"))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }
}

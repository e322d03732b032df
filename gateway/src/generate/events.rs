//! The task that writes an answer's events.
//!
//! It goes at the workers' pace up to a bounded queue, and never past the request's deadline: a
//! client that reads slowly, or not at all, holds no ticket for longer.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use tandem_wire::task::{Task, spawn};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout_at};

use super::{Begun, nothing, reason};
use crate::api::error::ApiError;
use crate::api::logprobs::Offset;
use crate::journal::Journal;
use crate::relay::Event;

/// Events that wait for the client.
const QUEUE: usize = 256;
/// A stream says something at least this often, so that nobody takes it for dead.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// A part of a stream's body.
#[derive(Debug)]
pub(crate) enum Piece {
    /// Whole events.
    Data(Bytes),
    /// Nothing follows, as it should be.
    End,
}

/// A running stream. Dropping it cancels the request.
#[derive(Debug)]
pub(crate) struct Events {
    pub(crate) pieces: mpsc::Receiver<Piece>,
    _task: Task<()>,
}

/// Starts the task. `halted` says when the stream must end, and with which error.
pub(super) fn start(
    begun: Begun,
    journal: Journal,
    halted: impl Future<Output = ApiError> + Send + 'static,
) -> Events {
    let (pieces_in, pieces) = mpsc::channel(QUEUE);
    let writer = Writer {
        pieces: pieces_in,
        deadline: begun.generation.deadline(),
    };
    Events {
        pieces,
        _task: spawn("events", run(begun, journal, writer, halted)),
    }
}

/// The client has gone, or reads nothing: there is nobody to tell.
struct Gone;

struct Writer {
    pieces: mpsc::Sender<Piece>,
    deadline: Instant,
}

impl Writer {
    async fn event(&self, event: &Value) -> Result<(), Gone> {
        self.data(format!("data: {event}\n\n")).await
    }

    async fn data(&self, text: String) -> Result<(), Gone> {
        self.piece(Piece::Data(text.into())).await
    }

    async fn piece(&self, piece: Piece) -> Result<(), Gone> {
        match self.pieces.try_send(piece) {
            Ok(()) => Ok(()),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(Gone),
            Err(mpsc::error::TrySendError::Full(piece)) => {
                match timeout_at(self.deadline, self.pieces.send(piece)).await {
                    Ok(Ok(())) => Ok(()),
                    Ok(Err(_)) | Err(_) => Err(Gone),
                }
            }
        }
    }

    async fn end(&self) -> Result<(), Gone> {
        self.data("data: [DONE]\n\n".to_owned()).await?;
        self.piece(Piece::End).await
    }
}

/// Why a stream of events ended early.
enum Broken {
    /// The request failed.
    Failed(ApiError),
    /// There is nobody to tell.
    Gone,
}

impl From<Gone> for Broken {
    fn from(Gone: Gone) -> Self {
        Self::Gone
    }
}

impl From<ApiError> for Broken {
    fn from(error: ApiError) -> Self {
        Self::Failed(error)
    }
}

async fn run(
    begun: Begun,
    mut journal: Journal,
    writer: Writer,
    halted: impl Future<Output = ApiError>,
) {
    // The request has ended, for the door and the worker, before its last events are written. Whole
    // events are queued, so a stream that is ended here ends between two.
    let written = tokio::select! {
        written = write(begun, &mut journal, &writer) => written,
        error = halted => Err(Broken::Failed(error)),
    };
    match written {
        Ok(()) | Err(Broken::Gone) => {}
        Err(Broken::Failed(error)) => {
            journal.failed(&error);
            if writer.event(&error.json()).await.is_ok() {
                let _ = writer.end().await;
            }
        }
    }
}

async fn write(mut begun: Begun, journal: &mut Journal, writer: &Writer) -> Result<(), Broken> {
    let mut offset = Offset::default();
    if let Some(opening) = begun.shape.opening() {
        writer.event(&opening).await?;
    }
    let mut event = std::mem::replace(&mut begun.first, nothing());
    let finished = loop {
        match event {
            Event::Finished(finished) => break finished,
            Event::Token(mut token) => {
                if begun.end_tokens.contains(&token.token) {
                    token.logprobs.clear();
                }
                if let Some(event) = begun.shape.piece(&token, &mut offset) {
                    writer.event(&event).await?;
                }
            }
        }
        event = next(&mut begun, journal, writer).await?;
    };
    let reason = reason(&finished)?;
    journal.finished(reason);
    let usage = begun.usage(&finished, journal);
    let Begun {
        shape, generation, ..
    } = begun;
    drop(generation);
    for event in shape
        .closing(&finished.text, reason)
        .into_iter()
        .chain(shape.usage(usage))
    {
        writer.event(&event).await?;
    }
    Ok(writer.end().await?)
}

/// The next message, with signs of life while there is none.
async fn next(begun: &mut Begun, journal: &mut Journal, writer: &Writer) -> Result<Event, Broken> {
    loop {
        tokio::select! {
            event = begun.generation.next(journal) => return Ok(event?),
            () = writer.pieces.closed() => return Err(Broken::Gone),
            () = sleep(KEEP_ALIVE) => writer.data(": keep-alive\n\n".to_owned()).await?,
        }
    }
}

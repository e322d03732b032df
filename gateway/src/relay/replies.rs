//! A worker's messages on one stream, read so that a reader may give up and come back.

use std::future::Future;
use std::pin::Pin;

use tandem_wire::proto::generate_reply::Kind;
use tandem_wire::{ChannelError, Receiver, proto};

type Read = (Receiver, Result<proto::GenerateReply, ChannelError>);

/// The receiving half. A read that was begun goes on with the next call.
pub(crate) struct Replies {
    idle: Option<Receiver>,
    reading: Option<Pin<Box<dyn Future<Output = Read> + Send>>>,
}

impl std::fmt::Debug for Replies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replies").finish_non_exhaustive()
    }
}

impl Replies {
    pub(crate) const fn new(receiver: Receiver) -> Self {
        Self {
            idle: Some(receiver),
            reading: None,
        }
    }

    /// The next message. Cancel-safe. After an error there are only errors.
    pub(crate) async fn next(&mut self) -> Result<Kind, ChannelError> {
        if let Some(mut receiver) = self.idle.take() {
            self.reading = Some(Box::pin(async move {
                let reply = receiver.expect().await;
                (receiver, reply)
            }));
        }
        let Some(reading) = self.reading.as_mut() else {
            return Err(ChannelError::Ended);
        };
        let (receiver, reply) = reading.await;
        self.reading = None;
        let kind = reply?.kind.ok_or(ChannelError::Ended)?;
        self.idle = Some(receiver);
        Ok(kind)
    }
}

//! A request's stream to its decode worker.

use tandem_wire::proto::generate_reply::Kind;
use tandem_wire::{Channel, ChannelError, Connection, Receiver, Sender, proto};

use super::farewell::Farewells;

/// Open until the worker's last message. Dropping it earlier has the worker cancel the request.
#[derive(Debug)]
pub(crate) struct WorkerStream {
    /// `None` once the worker has said its last, or the stream broke.
    open: Option<(Sender, Receiver)>,
    farewells: Farewells,
}

impl WorkerStream {
    /// Opens a stream and sends the request.
    pub(crate) async fn open(
        connection: &Connection,
        generate: proto::Generate,
        farewells: Farewells,
    ) -> Result<Self, ChannelError> {
        let Channel { send, recv } = connection.open().await?;
        let mut send = Unsent(Some(send));
        let open = proto::Open {
            kind: Some(proto::open::Kind::Generate(generate)),
        };
        let open = send.all(&open).await?.map(|sender| (sender, recv));
        Ok(Self { open, farewells })
    }

    /// The worker's next message. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Result<Kind, ChannelError> {
        let Some((_, replies)) = &mut self.open else {
            return Err(ChannelError::Ended);
        };
        let reply = reply(replies).await;
        let last = match &reply {
            Ok(reply) => is_last(reply),
            Err(_) => true,
        };
        if last {
            self.open = None;
        }
        reply
    }
}

impl Drop for WorkerStream {
    fn drop(&mut self) {
        if let Some((send, replies)) = self.open.take() {
            self.farewells.cancel(send, replies);
        }
    }
}

/// A stream whose first message is not out yet. Dropped in between, it is reset: half a message is
/// no request.
struct Unsent(Option<Sender>);

impl Unsent {
    async fn all(&mut self, open: &proto::Open) -> Result<Option<Sender>, ChannelError> {
        if let Some(sender) = &mut self.0 {
            sender.send(open).await?;
        }
        Ok(self.0.take())
    }
}

impl Drop for Unsent {
    fn drop(&mut self) {
        if let Some(sender) = &mut self.0 {
            sender.reset();
        }
    }
}

/// The worker's next message. Cancel-safe.
pub(super) async fn reply(replies: &mut Receiver) -> Result<Kind, ChannelError> {
    let reply: proto::GenerateReply = replies.expect().await?;
    reply.kind.ok_or(ChannelError::Ended)
}

/// Whether nothing follows.
pub(crate) const fn is_last(reply: &Kind) -> bool {
    matches!(
        reply,
        Kind::Refused(_) | Kind::Finished(_) | Kind::Failed(_)
    )
}

//! One request's place in the gateway.

use tandem_core::front_door::{Again, Input};
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::{Answer, Closed, Command, Door, Instant, RequestFacts, RequestId, oneshot};

/// A request in flight. Dropping it, on whatever way, tells the door that the request has ended.
#[derive(Debug)]
pub(crate) struct Ticket {
    request: RequestId,
    door: Door,
    /// Room for the message that it ended.
    end: Option<mpsc::OwnedPermit<Command>>,
    /// Given back after that message was sent.
    _place: OwnedSemaphorePermit,
}

impl Door {
    /// A place for a new request; `None` where as many as may be are in flight.
    pub(crate) async fn ticket(&self, request: RequestId) -> Result<Option<Ticket>, Closed> {
        let Ok(place) = std::sync::Arc::clone(&self.free).try_acquire_owned() else {
            return Ok(None);
        };
        let end = self
            .commands
            .clone()
            .reserve_owned()
            .await
            .map_err(|_| Closed)?;
        Ok(Some(Ticket {
            request,
            door: self.clone(),
            end: Some(end),
            _place: place,
        }))
    }
}

impl Ticket {
    /// Which request.
    pub(crate) const fn request(&self) -> RequestId {
        self.request
    }

    /// Asks for a pair; answered once a decode worker seems to have room, at `deadline` at the
    /// latest.
    pub(crate) async fn submit(
        &self,
        prompt_tokens: u32,
        new_tokens: u32,
        deadline: tokio::time::Instant,
    ) -> Result<Answer, Closed> {
        let facts = RequestFacts {
            request: self.request,
            prompt_tokens,
            new_tokens,
        };
        let deadline: Instant = self.door.clock.core(deadline);
        self.place(Input::Submit { facts, deadline }).await
    }

    /// The decode worker did not take it on: asks for another pair.
    pub(crate) async fn refused(&self, again: Again, message: String) -> Result<Answer, Closed> {
        self.place(Input::Refused {
            request: self.request,
            again,
            message,
        })
        .await
    }

    /// The decode worker granted the lease.
    pub(crate) async fn reserved(&self) {
        self.door
            .tell(Input::Reserved {
                request: self.request,
            })
            .await;
    }

    async fn place(&self, input: Input) -> Result<Answer, Closed> {
        let (answer, answered) = oneshot::channel();
        let place = Command::Place {
            request: self.request,
            input,
            answer,
        };
        self.door.commands.send(place).await.map_err(|_| Closed)?;
        answered.await.map_err(|_| Closed)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            end.send(Command::End {
                request: self.request,
            });
        }
    }
}

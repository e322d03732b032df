//! One request's place in the gateway.

use tandem_core::admission::ClassId;
use tandem_core::front_door::{Again, Blame, Input};
use tandem_core::pairing::RequestFacts;
use tokio::sync::mpsc;

use super::{Answer, Closed, Command, Door, Instant, Place, RequestId, Sent, blocks, oneshot};
use crate::caller::Standing;

/// A request in flight. Dropping it, on whatever way, tells the door that the request has ended.
#[derive(Debug)]
pub(crate) struct Ticket {
    request: RequestId,
    class: ClassId,
    door: Door,
    /// Tokens of its answer that have come.
    generated: u32,
    /// Room for the message that it ended, and its place, which goes with it.
    end: Option<(mpsc::OwnedPermit<Sent>, Place)>,
}

impl Door {
    /// A place for a new request; `None` where as many as may be are in flight.
    pub(crate) async fn ticket(
        &self,
        request: RequestId,
        class: ClassId,
    ) -> Result<Option<Ticket>, Closed> {
        let Some(place) = self.places.take() else {
            return Ok(None);
        };
        let end = self.messages.clone().reserve_owned().await;
        let end = end.map_err(|_| Closed)?;
        Ok(Some(Ticket {
            request,
            class,
            door: self.clone(),
            generated: 0,
            end: Some((end, place)),
        }))
    }
}

impl Ticket {
    /// Which request.
    pub(crate) const fn request(&self) -> RequestId {
        self.request
    }

    /// Of which class.
    pub(crate) const fn class(&self) -> ClassId {
        self.class
    }

    /// Asks for a pair; answered once a decode worker seems to have room, at `deadline` at the
    /// latest.
    pub(crate) fn submit(
        &self,
        standing: Standing,
        facts: RequestFacts,
        deadline: tokio::time::Instant,
    ) -> impl Future<Output = Result<Answer, Closed>> {
        let facts = RequestFacts {
            tenant: standing.tenant,
            class: standing.class,
            affinity: standing.session.or(facts.affinity),
            ..facts
        };
        let deadline: Instant = self.door.clock.core(deadline);
        self.place(Input::Submit {
            facts,
            deadline,
            key: standing.key,
        })
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

    /// It failed with so many tokens of its answer out: asks for another pair.
    pub(crate) async fn failed(&self, blame: Blame, generated: u32) -> Result<Answer, Closed> {
        self.place(Input::Failed {
            request: self.request,
            blame,
            generated,
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

    /// What the door may know of it: a prompt and room for so many tokens more, and what its session
    /// goes by.
    pub(crate) async fn facts(
        &self,
        tokens: &[u32],
        new_tokens: u32,
        affinity: Option<&str>,
    ) -> RequestFacts {
        let seeds = self.door.view().seeds;
        let prompt = u32::try_from(tokens.len()).unwrap_or(u32::MAX);
        RequestFacts {
            arrived: self.door.clock.now(),
            affinity: affinity.map(tandem_core::pairing::session),
            blocks: blocks::chains(&seeds, tokens).await,
            ..RequestFacts::new(self.request, prompt, new_tokens)
        }
    }

    /// A token of its answer has come.
    pub(crate) fn token(&mut self) {
        self.generated += 1;
        if self.generated == 1 {
            self.door.hint(Input::Started {
                request: self.request,
            });
        }
    }

    /// Its answer is complete.
    pub(crate) fn served(&self) {
        self.door.hint(Input::Served {
            request: self.request,
        });
    }

    async fn place(&self, input: Input) -> Result<Answer, Closed> {
        let (answer, answered) = oneshot::channel();
        let place = Command::Place {
            request: self.request,
            input,
            answer,
        };
        self.door.say(place).await?;
        answered.await.map_err(|_| Closed)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some((end, place)) = self.end.take() {
            end.send(Sent::End {
                request: self.request,
                generated: self.generated,
                place,
            });
        }
    }
}

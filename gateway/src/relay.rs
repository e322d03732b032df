//! One request's way through the fleet: a pair, a lease, and the decode worker's messages; and where
//! one of the pair fails, another pair.
//!
//! What must hold: every wait ends at the request's deadline (I6); on whatever way the request ends,
//! the decode worker is told so and the door too; an answer that goes on elsewhere goes on exactly
//! where it broke off. The next worker gets the tokens that have come and pushes them through the same
//! detokenizer before its own, so its text begins where the last token's text ended, held-back stop
//! texts and halves of characters among it.

mod complete;
mod farewell;
mod order;
mod stream;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tandem_core::front_door::Blame;
use tandem_core::pairing::RequestFacts;
use tandem_wire::proto;
use tandem_wire::proto::generate_reply::Kind;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::api::error::ApiError;
use crate::api::request::Ask;
use crate::app::App;
use crate::caller::Standing;
use crate::door::Ticket;
use crate::journal::Journal;

pub(crate) use farewell::Farewells;
use order::{Found, Order, Setback, Tried};
pub(crate) use stream::WorkerStream;

/// One message of an answer.
#[derive(Debug)]
pub(crate) enum Event {
    Token(proto::Token),
    Finished(proto::Finished),
}

/// A request that looks for another pair, and what it found.
type Moving = Pin<Box<dyn Future<Output = (Box<Order>, Moved)> + Send>>;

struct Moved {
    /// The pair that was asked last.
    tried: Option<Tried>,
    found: Result<Found, ApiError>,
}

/// A request whose lease is granted.
pub(crate) struct Generation {
    /// `None` while it moves, and once it has failed.
    stream: Option<WorkerStream>,
    moving: Option<Moving>,
    /// One timer for all waits: setting one for each message costs more than the message.
    deadline: Pin<Box<Sleep>>,
    /// Tokens of the prompt that nobody had to compute.
    cached: u32,
    // Dropped after the stream: the worker hears of the end before the ticket's place is free.
    /// `None` while it moves.
    order: Option<Box<Order>>,
}

/// Finds a pair that takes the request on.
pub(crate) async fn begin(
    app: &App,
    ticket: Ticket,
    standing: Standing,
    ask: &Ask,
    new_tokens: u32,
    (deadline, timeout): (Instant, Duration),
    journal: &mut Journal,
) -> Result<Generation, ApiError> {
    let facts = ticket.facts(&ask.tokens, new_tokens, ask.affinity.as_deref());
    let facts = RequestFacts {
        priority: ask.priority,
        ..facts.await
    };
    journal.asks(&ask.sampling, new_tokens);
    let (trace, trace_state) = journal.trace();
    let order = Box::new(Order {
        roster: Arc::clone(&app.roster),
        farewells: app.farewells.clone(),
        metrics: Arc::clone(&app.metrics),
        text: app.reading.text(),
        way: journal.way(),
        deadline,
        timeout,
        generate: proto::Generate {
            trace,
            trace_state,
            ..order::generate(&ticket, ask, new_tokens)
        },
        ticket,
    });
    journal.queued(standing.class);
    let submitted = order.ticket.submit(standing, facts, deadline);
    let mut tried = None;
    let found = order.first(submitted, &mut tried).await;
    if let Some(tried) = &tried {
        journal.paired(&tried.pair, tried.asked);
    }
    let stream = found?.stream;
    journal.reserved();
    Ok(Generation {
        stream: Some(stream),
        moving: None,
        deadline: Box::pin(sleep_until(deadline)),
        cached: 0,
        order: Some(order),
    })
}

impl Generation {
    /// The next message of the answer. Cancel-safe.
    pub(crate) async fn next(&mut self, journal: &mut Journal) -> Result<Event, ApiError> {
        loop {
            if let Some(moving) = &mut self.moving {
                let (order, moved) = moving.await;
                self.moving = None;
                self.order = Some(order);
                if let Some(tried) = &moved.tried {
                    journal.paired(&tried.pair, tried.asked);
                }
                let found = moved.found?;
                journal.moved();
                self.stream = Some(found.stream);
            }
            let (Some(stream), Some(order)) = (&mut self.stream, &mut self.order) else {
                return Err(ApiError::internal("The request had ended already."));
            };
            let reply = tokio::select! {
                biased;
                reply = stream.next() => reply,
                () = &mut self.deadline => return Err(order.late()),
            };
            let setback = match reply {
                Ok(Kind::Started(started)) => {
                    journal.started(&started);
                    self.cached = started.cached_tokens;
                    continue;
                }
                Ok(Kind::Token(token)) => {
                    journal.token();
                    order.came(token.token);
                    return Ok(Event::Token(token));
                }
                Ok(Kind::Finished(finished)) => {
                    journal.told(&finished);
                    order.ticket.served();
                    return Ok(Event::Finished(finished));
                }
                Ok(Kind::Failed(failure)) => Setback::of(&failure)?,
                Ok(Kind::Reserved(_) | Kind::Refused(_)) => {
                    let message = "The decode worker sent a message that makes no sense here.";
                    return Err(ApiError::worker("protocol_error", message));
                }
                Err(error) => {
                    let message = format!("The decode worker was lost: {error}.");
                    let error = ApiError::worker("decode_lost", message);
                    let blame = Blame::Decode;
                    Setback { blame, error }
                }
            };
            if let Some(finished) = complete::complete(&order.text, &order.generate) {
                return Ok(Event::Finished(finished));
            }
            self.go_elsewhere(setback);
        }
    }

    /// No more of the answer is wanted: what its worker would have told had it ended here. The worker
    /// hears of it when the generation is dropped.
    pub(crate) fn enough(&self, journal: &mut Journal) -> proto::Finished {
        let finished = proto::Finished {
            reason: proto::FinishReason::Stop.into(),
            cached_tokens: self.cached,
            ..proto::Finished::default()
        };
        journal.told(&finished);
        if let Some(order) = &self.order {
            order.ticket.served();
        }
        finished
    }

    /// Looks for another pair. What goes on here is kept, so that [`Generation::next`] may be called
    /// off and called again.
    fn go_elsewhere(&mut self, setback: Setback) {
        self.stream = None;
        let Some(order) = self.order.take() else {
            return;
        };
        self.moving = Some(Box::pin(async move {
            let mut tried = None;
            let found = order.again(setback, &mut tried).await;
            (order, Moved { tried, found })
        }));
    }
}

impl Order {
    /// A token of the answer has come.
    fn came(&mut self, token: u32) {
        self.generate.tokens.push(token);
        self.generate.generated += 1;
        self.ticket.token();
    }
}

impl std::fmt::Debug for Generation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Generation").finish_non_exhaustive()
    }
}

//! A request for generation, from its body to its answer, whole or as a stream of events.
//!
//! What fails before the first token is an HTTP error: a stream's headers are sent only once there is
//! something to stream. What fails after it is an error event, and the stream ends cleanly.

mod events;
mod prefix;

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use tandem_core::RequestId;
use tandem_core::admission::ClassId;
use tandem_wire::proto;
use tokio::time::{Instant, timeout_at};

use crate::api::answer::{Shape, Usage, finish_reason};
use crate::api::ask::{Ask, Endpoint};
use crate::api::budget::{self, Room};
use crate::api::error::ApiError;
use crate::app::{App, unix_seconds};
use crate::caller::Standing;
use crate::door::Ticket;
use crate::journal::{Journal, Origin};
use crate::relay::{self, Event, Generation};

pub(crate) use events::{Events, Piece};

/// Digits of the weights' fingerprint that clients see.
const FINGERPRINT_DIGITS: usize = 12;

/// An answer.
pub(crate) enum Reply {
    /// All of it.
    Whole(Value),
    /// Event by event.
    Stream(Events),
}

/// Answers one request. Dropping the future, or the events, cancels the request everywhere.
pub(crate) async fn answer(
    app: &Arc<App>,
    endpoint: Endpoint,
    origin: Origin,
    standing: Standing,
    body: impl Future<Output = Result<Bytes, ApiError>>,
    deadline: Instant,
) -> Result<Reply, ApiError> {
    let request = RequestId(rand::random());
    let metrics = Arc::clone(&app.metrics);
    let view = app.door.view();
    let model = app.model_name(&view);
    let mut journal = Journal::new(metrics, model, request, origin, endpoint);
    let begun = tokio::select! {
        begun = begin(app, endpoint, request, standing, body, deadline, &mut journal) => begun,
        error = app.halted() => Err(error),
    };
    let begun = match begun {
        Ok(begun) => begun,
        Err(error) => {
            journal.failed(&error);
            return Err(error);
        }
    };
    if begun.stream {
        journal.replied(200);
        return Ok(Reply::Stream(events::start(begun, journal, app.halted())));
    }
    let whole = tokio::select! {
        whole = collect(begun, &mut journal) => whole,
        error = app.halted() => Err(error),
    };
    match whole {
        Ok(whole) => {
            journal.replied(200);
            Ok(Reply::Whole(whole))
        }
        Err(error) => {
            journal.failed(&error);
            Err(error)
        }
    }
}

/// An answer that has begun.
struct Begun {
    shape: Shape,
    prompt_tokens: u64,
    stream: bool,
    /// Tokens that end an answer have no text, and no place in log probabilities.
    end_tokens: Vec<u32>,
    first: Event,
    generation: Generation,
}

impl Begun {
    fn usage(&self, finished: &proto::Finished, journal: &Journal) -> Usage {
        Usage {
            prompt: self.prompt_tokens,
            completion: journal.tokens(),
            cached: u64::from(finished.cached_tokens).min(self.prompt_tokens),
        }
    }
}

async fn begin(
    app: &Arc<App>,
    endpoint: Endpoint,
    request: RequestId,
    standing: Standing,
    body: impl Future<Output = Result<Bytes, ApiError>>,
    deadline: Instant,
    journal: &mut Journal,
) -> Result<Begun, ApiError> {
    let whole = app.request_timeout;
    let late = |_| ApiError::timeout(whole.as_secs_f32());
    let ticket = timeout_at(deadline, ticket(app, request, standing.class))
        .await
        .map_err(late)??;
    let body = body.await?;
    let view = app.door.view();
    let read = app.reading.read(endpoint, body, &view);
    let ask: Ask = timeout_at(deadline, read).await.map_err(late)??;
    journal.read(ask.tokens.len(), ask.stream);
    if app.log_prefix_hashes {
        journal.prefix(prefix::hashes(&ask.tokens));
    }
    // It may have changed while the prompt was read.
    let view = app.door.view();
    let room = Room {
        context: app.reading.context(&view),
        pages: view.largest,
    };
    let prompt = u32::try_from(ask.tokens.len()).unwrap_or(u32::MAX);
    let new_tokens = budget::new_tokens(endpoint, prompt, ask.output, room)?;
    let times = (deadline, whole);
    let begun = relay::begin(app, ticket, standing, &ask, new_tokens, times, journal);
    let mut generation = begun.await?;
    let first = generation.next(journal).await?;
    if let Event::Finished(finished) = &first {
        reason(finished)?;
    }
    let fingerprint = view
        .served
        .as_ref()
        .map_or("", |served| &served.fingerprint);
    let digits: String = fingerprint.chars().take(FINGERPRINT_DIGITS).collect();
    let prefix = match endpoint {
        Endpoint::Chat => "chatcmpl",
        Endpoint::Completions => "cmpl",
    };
    let shape = Shape {
        endpoint,
        id: format!("{prefix}-{request}"),
        model: app.model_name(&view).to_owned(),
        created: unix_seconds(),
        fingerprint: format!("tandem-{digits}"),
        logprobs: ask.sampling.logprobs.is_some(),
        include_usage: ask.include_usage,
    };
    let end_tokens = if ask.ignore_eos {
        Vec::new()
    } else {
        app.reading.end_tokens().to_vec()
    };
    let prompt_tokens = u64::from(prompt);
    Ok(Begun {
        shape,
        prompt_tokens,
        stream: ask.stream,
        end_tokens,
        first,
        generation,
    })
}

async fn ticket(app: &App, request: RequestId, class: ClassId) -> Result<Ticket, ApiError> {
    app.door.ticket(request, class).await?.ok_or_else(|| {
        let message = "Too many requests are in flight.";
        ApiError::busy("overloaded", message, app.door.view().retry_after)
    })
}

/// Waits for the whole answer.
async fn collect(mut begun: Begun, journal: &mut Journal) -> Result<Value, ApiError> {
    let (mut text, mut tokens) = (String::new(), Vec::new());
    let mut event = std::mem::replace(&mut begun.first, nothing());
    loop {
        match event {
            Event::Token(mut token) => {
                text.push_str(&token.text);
                if begun.shape.logprobs && !begun.end_tokens.contains(&token.token) {
                    token.text = String::new();
                    tokens.push(token);
                }
            }
            Event::Finished(finished) => {
                text.push_str(&finished.text);
                let reason = reason(&finished)?;
                journal.finished(reason);
                let usage = begun.usage(&finished, journal);
                return Ok(begun.shape.whole(&text, &tokens, reason, usage));
            }
        }
        event = begun.generation.next(journal).await?;
    }
}

/// Stands in for an event that was taken out.
fn nothing() -> Event {
    Event::Token(proto::Token::default())
}

/// How the answer ended; an error where it did not end well.
fn reason(finished: &proto::Finished) -> Result<&'static str, ApiError> {
    finish_reason(finished.reason()).ok_or_else(|| {
        ApiError::worker(
            "cancelled",
            "The decode worker ended the request before its answer did.",
        )
    })
}

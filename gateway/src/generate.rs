//! A request for generation, from its body to its answers, whole or as a stream of events.
//!
//! One request may ask for several answers: each is a generation with a ticket and a lease of its own,
//! and all of them end with the first that fails. What fails before the first token is an HTTP error:
//! a stream's headers are sent only once there is something to stream. What fails after it is an error
//! event, and the stream ends cleanly.

mod choice;
mod fate;
mod output;
mod pipe;
mod prefix;
mod speech;

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::try_join_all;
use serde_json::Value;
use tandem_core::RequestId;
use tandem_core::admission::ClassId;
use tandem_wire::task::{Task, spawn};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use crate::api::answer::Identity;
use crate::api::budget::{self, Room};
use crate::api::error::ApiError;
use crate::api::request::{Endpoint, Request};
use crate::api::sampling;
use crate::app::{App, unix_seconds};
use crate::caller::{Caller, Standing};
use crate::door::{Ticket, View};
use crate::journal::{Journal, Origin};

use choice::{Asked, Choice};
use output::{Output, Reading};
use speech::Speech;

pub(crate) use fate::Fate;
pub(crate) use pipe::{Piece, Pieces};

/// Digits of the weights' fingerprint that clients see.
const FINGERPRINT_DIGITS: usize = 12;
/// The door, the relay and the workers keep the deadline themselves and say what it cut off; this
/// long after it the request ends whatever they say, such as where its client reads nothing.
const GRACE: Duration = Duration::from_millis(500);
/// A stream that is silent for so long says something, so that nobody takes it for dead.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// An answer.
pub(crate) enum Reply {
    /// All of it.
    Whole(Value),
    /// Event by event.
    Stream(Events),
}

/// A running stream. Dropping it cancels the request.
#[derive(Debug)]
pub(crate) struct Events {
    pub(crate) pieces: Pieces,
    _task: Task<()>,
}

/// Answers one request. Dropping the future, or the events, cancels the request everywhere.
pub(crate) async fn answer(
    app: &Arc<App>,
    endpoint: Endpoint,
    (origin, caller): (Origin, Caller),
    standing: Standing,
    body: impl Future<Output = Result<Bytes, ApiError>>,
    deadline: Instant,
) -> Result<Reply, ApiError> {
    let request = RequestId(rand::random());
    let fate = Arc::new(Fate::default());
    let name = origin.name.clone();
    let tracked = app.requests.enter(request, name, endpoint.as_str(), caller);
    let journal = Journal::new(
        Arc::clone(&app.metrics),
        app.model_name(&app.door.view()),
        (Arc::clone(&fate), tracked),
        request,
        origin,
        endpoint,
    );
    let read = tokio::select! {
        read = read(app, (endpoint, standing), request, body, deadline, journal) => read,
        error = ends(app, deadline, &fate) => Err(error),
    };
    let running = read?;
    if running.stream {
        return stream(app, running, deadline, fate)
            .await
            .map(Reply::Stream);
    }
    let Running {
        choices,
        request,
        identity,
        ..
    } = running;
    let reading = reading(app, &request);
    let output = Output::whole(request.form, identity, reading);
    tokio::select! {
        ended = all(app, choices, deadline, &fate, &output) => ended?,
        error = ends(app, deadline, &fate) => return Err(error),
    }
    fate.replied(200);
    let whole = output.complete();
    whole
        .map(Reply::Whole)
        .ok_or_else(|| ApiError::internal("The answer was lost."))
}

/// A request whose answers can be begun.
struct Running {
    choices: Vec<Choice>,
    request: Request,
    identity: Identity,
    stream: bool,
}

/// Reads the request and takes a ticket for each of its answers.
async fn read(
    app: &Arc<App>,
    (endpoint, standing): (Endpoint, Standing),
    id: RequestId,
    body: impl Future<Output = Result<Bytes, ApiError>>,
    deadline: Instant,
    mut journal: Journal,
) -> Result<Running, ApiError> {
    let result = async {
        // Whoever has no ticket does not get to send a body.
        let first = ticket(app, id, standing.class).await?;
        let body = body.await?;
        let view = app.door.view();
        let model = app.model_name(&view);
        if !journal.caller().may_use(model) {
            return Err(ApiError::model_not_allowed(model));
        }
        let request = app.reading.read(endpoint, body, &view).await?;
        journal.read(request.prompts[0].len(), request.stream);
        if app.log_prefix_hashes {
            journal.prefix(prefix::hashes(&request.prompts[0]));
        }
        let mut tickets = vec![(id, first)];
        while tickets.len() < request.choices() {
            let id = RequestId(rand::random());
            tickets.push((id, ticket(app, id, standing.class).await?));
        }
        // It may have changed while the prompt was read.
        let view = app.door.view();
        let new_tokens = new_tokens(app, endpoint, &request, &view)?;
        Ok((request, tickets, new_tokens, view))
    };
    let late = |_| Err(ApiError::timeout(app.request_timeout().as_secs_f32()));
    let read = timeout_at(deadline, result).await.unwrap_or_else(late);
    let read = read.inspect_err(|error| journal.failed(error));
    let (request, tickets, new_tokens, view) = read?;
    let identity = identity(app, id, &request, &view);
    let answers = request.drawing.answers;
    let mut journals = vec![journal];
    for (index, (id, _)) in tickets.iter().enumerate().skip(1) {
        // A prompt's tokens count once.
        let prompt = (index % answers == 0).then(|| &request.prompts[index / answers]);
        let tokens = prompt.map_or(0, |prompt| prompt.len());
        let mut next = journals[0].next(*id, index, tokens);
        if let Some(prompt) = prompt.filter(|_| app.log_prefix_hashes) {
            next.prefix(prefix::hashes(prompt));
        }
        journals.push(next);
    }
    let choice = |(index, ((_, ticket), journal))| Choice {
        index,
        asked: Box::new(Asked {
            ticket,
            standing: standing.clone(),
            ask: request.ask(index),
            new_tokens: new_tokens[index / answers],
        }),
        journal,
    };
    let choices = tickets
        .into_iter()
        .zip(journals)
        .enumerate()
        .map(choice)
        .collect();
    Ok(Running {
        choices,
        stream: request.stream,
        request,
        identity,
    })
}

/// How many tokens each prompt's answers may have.
fn new_tokens(
    app: &App,
    endpoint: Endpoint,
    request: &Request,
    view: &View,
) -> Result<Vec<u32>, ApiError> {
    let room = Room {
        context: app.reading.context(view),
        pages: view.largest,
    };
    let least = request.drawing.stop.min_tokens;
    let each = |prompt: &Arc<[u32]>| {
        let prompt = u32::try_from(prompt.len()).unwrap_or(u32::MAX);
        let most = budget::new_tokens(endpoint, prompt, request.output, room)?;
        if least > most {
            return Err(sampling::too_few(least.into(), most.into()));
        }
        Ok(most)
    };
    request.prompts.iter().map(each).collect()
}

fn identity(app: &App, id: RequestId, request: &Request, view: &View) -> Identity {
    let fingerprint = view
        .served
        .as_ref()
        .map_or("", |served| &served.fingerprint);
    let digits: String = fingerprint.chars().take(FINGERPRINT_DIGITS).collect();
    Identity {
        request: id.to_string(),
        model: app.model_name(view).to_owned(),
        created: unix_seconds(),
        fingerprint: format!("tandem-{digits}"),
        prompts: request
            .prompts
            .iter()
            .map(|prompt| prompt.len() as u64)
            .collect(),
        answers: request.drawing.answers,
    }
}

fn reading(app: &App, request: &Request) -> Reading {
    let markers = app.reading.markers();
    let speech = || Speech::new(request.parsing.as_ref(), &markers);
    let plain = request.drawing.stop.ignore_eos || !request.form.logprobs();
    Reading {
        end_tokens: if plain {
            Vec::new()
        } else {
            app.reading.end_tokens().to_vec()
        },
        speeches: std::iter::repeat_with(speech)
            .take(request.choices())
            .collect(),
    }
}

async fn ticket(app: &App, request: RequestId, class: ClassId) -> Result<Ticket, ApiError> {
    app.door.ticket(request, class).await?.ok_or_else(|| {
        let message = "Too many requests are in flight.";
        ApiError::busy("overloaded", message, app.door.view().retry_after)
    })
}

/// Begins a stream; answered once there is something to stream.
async fn stream(
    app: &Arc<App>,
    running: Running,
    deadline: Instant,
    fate: Arc<Fate>,
) -> Result<Events, ApiError> {
    let Running {
        choices,
        request,
        identity,
        ..
    } = running;
    let (pen, pieces) = pipe::pipe();
    let (first, begun) = oneshot::channel();
    let reading = reading(app, &request);
    let output = Output::stream(request.form, identity, reading, pen, first);
    let task = spawn(
        "events",
        write(
            Arc::clone(app),
            choices,
            deadline,
            Arc::clone(&fate),
            output,
        ),
    );
    let lost = |_| ApiError::internal("The request's task has ended.");
    begun.await.map_err(lost).flatten()?;
    fate.replied(200);
    Ok(Events {
        pieces,
        _task: task,
    })
}

/// The task that writes a stream's events. It goes at the workers' pace as far as the pipe lets it,
/// and never past the deadline: a client that reads slowly, or not at all, holds no ticket for longer.
async fn write(
    app: Arc<App>,
    choices: Vec<Choice>,
    deadline: Instant,
    fate: Arc<Fate>,
    output: Output,
) {
    // Whole events are written, so a stream that is ended here ends between two.
    let written = tokio::select! {
        written = all(&app, choices, deadline, &fate, &output) => written,
        error = ends(&app, deadline, &fate) => Err(error),
        never = signs_of_life(&output) => match never {},
    };
    match written {
        Ok(()) => {
            output.complete();
        }
        Err(error) => output.fail(error),
    }
}

/// Has all answers generated. The first that fails ends the others.
async fn all(
    app: &App,
    choices: Vec<Choice>,
    deadline: Instant,
    fate: &Fate,
    output: &Output,
) -> Result<(), ApiError> {
    let run = |choice: Choice| choice.run(app, deadline, fate, output);
    try_join_all(choices.into_iter().map(run)).await.map(|_| ())
}

/// Resolves when the request must end, to the error that it ends with.
async fn ends(app: &App, deadline: Instant, fate: &Fate) -> ApiError {
    let error = tokio::select! {
        error = app.halted() => error,
        () = sleep_until(deadline + GRACE) => ApiError::timeout(app.request_timeout().as_secs_f32()),
    };
    fate.failed(&error);
    error
}

async fn signs_of_life(output: &Output) -> Infallible {
    let mut written = 0;
    loop {
        sleep(KEEP_ALIVE).await;
        written = output.keep_alive(written);
    }
}

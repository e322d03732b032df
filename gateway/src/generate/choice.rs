//! One of a request's answers, from its ticket to its end.

use tokio::time::Instant;

use super::fate::Fate;
use super::output::Output;
use crate::api::answer::Ending;
use crate::api::error::ApiError;
use crate::api::request::Ask;
use crate::app::App;
use crate::caller::Standing;
use crate::door::Ticket;
use crate::journal::Journal;
use crate::relay::{self, Event, Generation};

/// An answer that waits for its lease.
pub(crate) struct Choice {
    pub(crate) index: usize,
    /// On the heap: it is gone once the answer has begun.
    pub(crate) asked: Box<Asked>,
    pub(crate) journal: Journal,
}

/// What it takes to begin.
pub(crate) struct Asked {
    pub(crate) ticket: Ticket,
    pub(crate) standing: Standing,
    pub(crate) ask: Ask,
    pub(crate) new_tokens: u32,
}

impl Choice {
    /// Has it generated, into `output`. Dropping the future cancels it.
    // Not an `async fn`, whose future holds each argument twice.
    pub(crate) fn run(
        self,
        app: &App,
        deadline: Instant,
        fate: &Fate,
        output: &Output,
    ) -> impl Future<Output = Result<(), ApiError>> {
        let Self {
            index,
            asked,
            mut journal,
        } = self;
        async move {
            let ended = generate(app, index, asked, deadline, &mut journal, output).await;
            // Before the journal is closed.
            ended.inspect_err(|error| fate.failed(error))
        }
    }
}

async fn begin(
    app: &App,
    asked: Box<Asked>,
    deadline: Instant,
    journal: &mut Journal,
) -> Result<Generation, ApiError> {
    let Asked {
        ticket,
        standing,
        ask,
        new_tokens,
    } = *asked;
    let times = (deadline, app.request_timeout());
    relay::begin(app, ticket, standing, &ask, new_tokens, times, journal).await
}

async fn generate(
    app: &App,
    index: usize,
    asked: Box<Asked>,
    deadline: Instant,
    journal: &mut Journal,
    output: &Output,
) -> Result<(), ApiError> {
    // On the heap, and gone when it is over: a stream is as large as its largest wait.
    let mut generation = Box::pin(begin(app, asked, deadline, journal)).await?;
    loop {
        match generation.next(journal).await? {
            Event::Token(token) => {
                if output.token(index, token).await {
                    let finished = generation.enough(journal);
                    journal.finished(Ending::default().reason(false));
                    // Which ends it at the worker.
                    drop(generation);
                    output.finish(index, finished, Ending::default());
                    return Ok(());
                }
            }
            Event::Finished(finished) => {
                let ending = Ending::of(&finished).ok_or_else(cancelled)?;
                journal.finished(ending.reason(false));
                // For the door and the worker it has ended before its last events are out.
                drop(generation);
                output.finish(index, finished, ending);
                return Ok(());
            }
        }
    }
}

fn cancelled() -> ApiError {
    let message = "The decode worker ended the request before its answer did.";
    ApiError::worker("cancelled", message)
}

//! Where the answers of one request go: to a stream of events, or into one reply.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tandem_wire::proto;
use tokio::sync::oneshot;

use super::pipe::Pen;
use super::speech::Speech;
use crate::api::answer::{Answer, Count, Ending, Identity};
use crate::api::error::ApiError;
use crate::api::form::Form;
use crate::api::script::{self, Script};

/// Takes the tokens of all answers, each in its order.
pub(crate) struct Output {
    /// Tokens that end an answer have no text, and no place in log probabilities.
    end_tokens: Vec<u32>,
    logprobs: bool,
    state: Mutex<State>,
    /// Of a stream.
    pen: Option<Pen>,
}

/// How the answers are read.
pub(crate) struct Reading {
    /// Tokens that end an answer have no text, and no place in log probabilities.
    pub(crate) end_tokens: Vec<u32>,
    /// One for each answer.
    pub(crate) speeches: Vec<Speech>,
}

struct State {
    counts: Vec<Count>,
    speeches: Vec<Speech>,
    sink: Sink,
}

enum Sink {
    Stream {
        script: Script,
        /// Told of the first event; before it an error is an HTTP status.
        first: Option<oneshot::Sender<Result<(), ApiError>>>,
    },
    Whole {
        form: Form,
        identity: Identity,
        answers: Vec<Answer>,
    },
}

impl Output {
    /// Into one reply.
    pub(crate) fn whole(form: Form, identity: Identity, reading: Reading) -> Self {
        let logprobs = form.logprobs();
        let answers = vec![Answer::default(); identity.choices()];
        let sink = Sink::Whole {
            form,
            identity,
            answers,
        };
        Self::new(logprobs, sink, None, reading)
    }

    /// Event by event, through `pen`. `first` hears that the first one is written, or why none is.
    pub(crate) fn stream(
        form: Form,
        identity: Identity,
        reading: Reading,
        pen: Pen,
        first: oneshot::Sender<Result<(), ApiError>>,
    ) -> Self {
        let logprobs = form.logprobs();
        let sink = Sink::Stream {
            script: Script::new(form, identity),
            first: Some(first),
        };
        Self::new(logprobs, sink, Some(pen), reading)
    }

    fn new(logprobs: bool, sink: Sink, pen: Option<Pen>, reading: Reading) -> Self {
        let Reading {
            end_tokens,
            speeches,
        } = reading;
        Self {
            end_tokens,
            logprobs,
            state: Mutex::new(State {
                counts: vec![Count::default(); speeches.len()],
                speeches,
                sink,
            }),
            pen,
        }
    }

    /// No code panics while it holds the lock.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A token of answer `index`; whether it was the last that its client wants. Waits where a stream's
    /// client is far behind.
    pub(crate) async fn token(&self, index: usize, mut token: proto::Token) -> bool {
        if self.logprobs && self.end_tokens.contains(&token.token) {
            token.logprobs.clear();
        }
        let over = self.take_token(index, token);
        if let Some(pen) = &self.pen {
            pen.room().await;
        }
        over
    }

    fn take_token(&self, index: usize, mut token: proto::Token) -> bool {
        let mut state = self.lock();
        let state = &mut *state;
        let text = std::mem::take(&mut token.text);
        let (deltas, thought) = state.speeches[index].token(token.token, text);
        state.counts[index].completion += 1;
        state.counts[index].reasoning += u64::from(thought);
        match &mut state.sink {
            Sink::Whole { answers, .. } => {
                for delta in &deltas {
                    answers[index].push(delta);
                }
                if self.logprobs {
                    answers[index].tokens.push(token);
                }
            }
            Sink::Stream { script, first } => {
                if let Some(pen) = &self.pen {
                    pen.write(|out| script.token(index, &deltas, &token, out));
                }
                tell(first, Ok(()));
            }
        }
        state.speeches[index].is_over()
    }

    /// Answer `index` ended well, with text that was held back.
    pub(crate) fn finish(&self, index: usize, finished: proto::Finished, ending: Ending) {
        let mut state = self.lock();
        let state = &mut *state;
        state.counts[index].cached = finished.cached_tokens.into();
        let deltas = state.speeches[index].finish(finished.text);
        match &mut state.sink {
            Sink::Whole { answers, .. } => {
                for delta in &deltas {
                    answers[index].push(delta);
                }
                answers[index].ending = ending;
            }
            Sink::Stream { script, first } => {
                if let Some(pen) = &self.pen {
                    pen.write(|out| script.finish(index, &deltas, &ending, out));
                }
                tell(first, Ok(()));
            }
        }
    }

    /// Says something where a stream was silent since it had written `before` bytes. Gives the bytes
    /// that it has written now.
    pub(crate) fn keep_alive(&self, before: u64) -> u64 {
        let state = self.lock();
        let Some(pen) = &self.pen else {
            return 0;
        };
        // Before the first event there is no stream to keep alive.
        if let Sink::Stream {
            script,
            first: None,
        } = &state.sink
            && pen.written() == before
        {
            pen.write(|out| script.keep_alive(out));
        }
        pen.written()
    }

    /// All answers ended well: the whole reply; of a stream none, but its end.
    pub(crate) fn complete(self) -> Option<serde_json::Value> {
        let state = self
            .state
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        match (state.sink, self.pen) {
            (Sink::Stream { ref mut script, .. }, Some(pen)) => {
                pen.write(|out| script.end(&state.counts, out));
                pen.end();
                None
            }
            (
                Sink::Whole {
                    form,
                    identity,
                    answers,
                },
                _,
            ) => Some(script::whole(form, &identity, &answers, &state.counts)),
            (Sink::Stream { .. }, None) => None,
        }
    }

    /// The request failed: an event in a stream that has begun, and its clean end.
    pub(crate) fn fail(self, error: ApiError) {
        let mut state = self
            .state
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        let (Sink::Stream { script, first }, Some(pen)) = (&mut state.sink, self.pen) else {
            return;
        };
        if first.is_some() {
            tell(first, Err(error));
            return;
        }
        pen.write(|out| script.fail(&error, out));
        pen.end();
    }
}

/// Where nobody listens the client has gone, and the task with it.
fn tell(first: &mut Option<oneshot::Sender<Result<(), ApiError>>>, word: Result<(), ApiError>) {
    if let Some(first) = first.take() {
        let _ = first.send(word);
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;
    use crate::api::openai::chunks::ChunkForm;
    use crate::generate::pipe::{Piece, Pieces, pipe};

    fn stream() -> (Output, Pieces, oneshot::Receiver<Result<(), ApiError>>) {
        let (pen, pieces) = pipe();
        let (first, begun) = oneshot::channel();
        let identity = Identity {
            prompts: vec![1],
            answers: 1,
            ..Identity::default()
        };
        let reading = Reading {
            end_tokens: vec![],
            speeches: vec![Speech::Plain],
        };
        let form = Form::Chat(ChunkForm::default());
        (
            Output::stream(form, identity, reading, pen, first),
            pieces,
            begun,
        )
    }

    async fn text(pieces: &Pieces) -> String {
        match poll_fn(|context| pieces.poll(context)).await {
            Piece::Data(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
            end => panic!("{end:?}"),
        }
    }

    #[tokio::test]
    async fn a_stream_that_is_silent_gives_a_sign_of_life_once_it_has_begun() {
        let (output, pieces, mut begun) = stream();
        assert_eq!(output.keep_alive(0), 0);
        assert!(begun.try_recv().is_err());
        let token = proto::Token {
            text: "a".into(),
            ..proto::Token::default()
        };
        output.token(0, token).await;
        assert_eq!(begun.try_recv(), Ok(Ok(())));
        // It has spoken since the last look, then it has not.
        let written = output.keep_alive(0);
        assert!(text(&pieces).await.ends_with("}\n\n"));
        assert!(output.keep_alive(written) > written);
        assert_eq!(text(&pieces).await, ": keep-alive\n\n");
    }

    #[tokio::test]
    async fn an_error_is_an_event_only_after_the_first() {
        let (output, pieces, begun) = stream();
        output.fail(ApiError::internal("x"));
        assert!(begun.await.unwrap().is_err());
        assert_eq!(poll_fn(|context| pieces.poll(context)).await, Piece::Broken);
        let (output, pieces, _begun) = stream();
        output.token(0, proto::Token::default()).await;
        output.fail(ApiError::internal("x"));
        let events = text(&pieces).await;
        assert!(events.contains("\"error\":") && events.ends_with("data: [DONE]\n\n"));
        assert_eq!(poll_fn(|context| pieces.poll(context)).await, Piece::End);
    }
}

//! A stream's events, in the words of the API that was asked.

use bytes::{BufMut, BytesMut};
use tandem_dialect::Delta;
use tandem_wire::proto;

use super::answer::{Answer, Count, Ending, Identity, Usage};
use super::anthropic;
use super::error::ApiError;
use super::form::Form;
use super::openai::chunks::Chunks;
use super::openai::responses::ResponseEvents;
use super::openai::{responses, whole};

/// Writes the events of one request. A choice's tokens come in their order, its end once after them,
/// the stream's end or an error last.
#[derive(Debug)]
pub(crate) enum Script {
    /// Chats and completions.
    Chunks(Chunks),
    /// Responses.
    Response(Box<ResponseEvents>),
    /// Anthropic's messages.
    Message(anthropic::events::MessageEvents),
}

impl Script {
    /// Nothing is written yet.
    pub(crate) fn new(form: Form, identity: Identity) -> Self {
        match form {
            Form::Chat(form) => Self::Chunks(Chunks::chat(identity, form)),
            Form::Completions(form, echoes) => {
                Self::Chunks(Chunks::completions(identity, form, echoes))
            }
            Form::Responses(form) => Self::Response(Box::new(ResponseEvents::new(*form, identity))),
            Form::Messages => Self::Message(anthropic::events::MessageEvents::new(identity)),
        }
    }

    /// A token of choice `index`, and what its text says.
    pub(crate) fn token(
        &mut self,
        index: usize,
        deltas: &[Delta],
        token: &proto::Token,
        out: &mut BytesMut,
    ) {
        match self {
            Self::Chunks(events) => events.token(index, deltas, token, out),
            Self::Response(events) => events.token(deltas, out),
            Self::Message(events) => events.token(deltas, out),
        }
    }

    /// The end of choice `index`, with what was held back.
    pub(crate) fn finish(
        &mut self,
        index: usize,
        deltas: &[Delta],
        ending: &Ending,
        out: &mut BytesMut,
    ) {
        match self {
            Self::Chunks(events) => events.finish(index, deltas, ending, out),
            Self::Response(events) => events.finish(deltas, ending, out),
            Self::Message(events) => events.finish(deltas, ending, out),
        }
    }

    /// The stream's end.
    pub(crate) fn end(&mut self, counts: &[Count], out: &mut BytesMut) {
        match self {
            Self::Chunks(events) => events.end(counts, out),
            Self::Response(events) => events.end(counts, out),
            Self::Message(events) => events.end(counts, out),
        }
    }

    /// An error after the first token, and the stream's end.
    pub(crate) fn fail(&mut self, error: &ApiError, out: &mut BytesMut) {
        match self {
            Self::Chunks(_) => Chunks::fail(error, out),
            Self::Response(events) => events.fail(error, out),
            Self::Message(_) => anthropic::events::fail(error, out),
        }
    }

    /// A sign of life.
    pub(crate) fn keep_alive(&self, out: &mut BytesMut) {
        match self {
            Self::Chunks(_) | Self::Response(_) => out.put_slice(b": keep-alive\n\n"),
            Self::Message(_) => anthropic::events::ping(out),
        }
    }
}

/// A whole answer, in the words of the API that was asked.
pub(crate) fn whole(
    form: Form,
    identity: &Identity,
    answers: &[Answer],
    counts: &[Count],
) -> serde_json::Value {
    let usage = Usage::of(identity, counts);
    match form {
        Form::Chat(form) => whole::chat(identity, form, answers, usage),
        Form::Completions(form, echoes) => {
            whole::completions(identity, form, &echoes, answers, usage)
        }
        Form::Responses(form) => responses::whole(*form, identity, answers, usage),
        Form::Messages => anthropic::answer::whole(identity, answers, usage),
    }
}

//! The events of streamed chats and completions.
//!
//! What is the same in all events of a stream is written once, when it begins; an event is that, the
//! piece's text escaped, and an end. So an event of a token costs no JSON tree and no allocation.

use std::fmt::Write;

use bytes::{BufMut, BytesMut};
use serde_json::{Value, json};
use tandem_dialect::Delta;
use tandem_wire::proto;

use crate::api::answer::{Count, Ending, Identity, Usage, is_silent};
use crate::api::error::ApiError;
use crate::api::logprobs::{self, Offset};

const DATA: &[u8] = b"data: ";
const END: &[u8] = b"\n\n";
const DONE: &[u8] = b"data: [DONE]\n\n";

/// What a stream's events hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChunkForm {
    pub(crate) logprobs: bool,
    /// The usage comes in an event of its own, last.
    pub(crate) include_usage: bool,
    /// And in all events.
    pub(crate) continuous: bool,
}

/// Writes one stream.
#[derive(Debug)]
pub(crate) struct Chunks {
    identity: Identity,
    form: ChunkForm,
    kind: Kind,
    /// Of every event, up to the choice's index.
    head: Vec<u8>,
    choices: Vec<Choice>,
}

#[derive(Debug)]
enum Kind {
    Chat,
    /// With the prompts' texts, where they are to be repeated.
    Completions(Vec<String>),
}

/// What is known of one of the stream's answers.
#[derive(Clone, Copy, Debug, Default)]
struct Choice {
    opened: bool,
    called: bool,
    offset: Offset,
    tokens: u64,
}

/// What stands in one event.
struct Event<'a> {
    delta: Piece<'a>,
    logprobs: Value,
    finish_reason: Option<&'a str>,
}

/// What a chat's `delta` or a completion's `text` says.
#[derive(Clone, Copy)]
enum Piece<'a> {
    Role,
    Text(&'a str),
    Reasoning(&'a str),
    CallStart(usize, Option<&'a str>, &'a str),
    CallArguments(usize, &'a str),
    Nothing,
}

impl<'a> From<&'a Delta> for Piece<'a> {
    fn from(delta: &'a Delta) -> Self {
        match delta {
            Delta::Content(text) => Self::Text(text),
            Delta::Reasoning(text) => Self::Reasoning(text),
            Delta::CallStart { index, id, name } => Self::CallStart(*index, id.as_deref(), name),
            Delta::Arguments { index, json } => Self::CallArguments(*index, json),
            Delta::CallEnd { .. } => Self::Nothing,
        }
    }
}

impl Chunks {
    /// A chat's.
    pub(crate) fn chat(identity: Identity, form: ChunkForm) -> Self {
        let head = head(
            &format!("chatcmpl-{}", identity.request),
            "chat.completion.chunk",
            &identity,
        );
        Self::new(identity, form, Kind::Chat, head)
    }

    /// A completion's, behind the prompts' texts where they are to be repeated.
    pub(crate) fn completions(identity: Identity, form: ChunkForm, echoes: Vec<String>) -> Self {
        let head = head(
            &format!("cmpl-{}", identity.request),
            "text_completion",
            &identity,
        );
        Self::new(identity, form, Kind::Completions(echoes), head)
    }

    fn new(identity: Identity, form: ChunkForm, kind: Kind, head: Vec<u8>) -> Self {
        Self {
            choices: vec![Choice::default(); identity.choices()],
            identity,
            form,
            kind,
            head,
        }
    }

    /// A token, and what its text says.
    pub(crate) fn token(
        &mut self,
        index: usize,
        deltas: &[Delta],
        token: &proto::Token,
        out: &mut BytesMut,
    ) {
        self.choices[index].tokens += 1;
        self.open(index, out);
        let mut logprobs = self.logprobs(index, token);
        for delta in deltas.iter().filter(|delta| !is_silent(delta)) {
            self.choices[index].called |= matches!(delta, Delta::CallStart { .. });
            let event = Event {
                delta: Piece::from(delta),
                logprobs: logprobs.take(),
                finish_reason: None,
            };
            self.event(index, &event, out);
        }
        if !logprobs.is_null() {
            let event = Event {
                delta: Piece::Text(""),
                logprobs,
                finish_reason: None,
            };
            self.event(index, &event, out);
        }
    }

    /// An answer's end, with text that was held back.
    pub(crate) fn finish(
        &mut self,
        index: usize,
        deltas: &[Delta],
        ending: &Ending,
        out: &mut BytesMut,
    ) {
        self.open(index, out);
        let (rest, text) = match (&self.kind, deltas) {
            // A completion's last event holds its last text.
            (Kind::Completions(_), [Delta::Content(text)]) => (&[][..], Piece::Text(text)),
            (_, deltas) => (deltas, Piece::Nothing),
        };
        for delta in rest.iter().filter(|delta| !is_silent(delta)) {
            self.choices[index].called |= matches!(delta, Delta::CallStart { .. });
            let event = Event {
                delta: Piece::from(delta),
                logprobs: Value::Null,
                finish_reason: None,
            };
            self.event(index, &event, out);
        }
        let end = Event {
            delta: text,
            logprobs: Value::Null,
            finish_reason: Some(ending.reason(self.choices[index].called)),
        };
        self.event(index, &end, out);
    }

    /// The stream's end, with the usage where it is wanted.
    pub(crate) fn end(&self, counts: &[Count], out: &mut BytesMut) {
        if self.form.include_usage {
            // The head ends inside of the first choice.
            let choice = self.head.len() - CHOICE.len();
            out.put_slice(&self.head[..choice]);
            out.put_slice(b"],\"usage\":");
            json_into(&Usage::of(&self.identity, counts).json(), out);
            out.put_slice(b"}");
            out.put_slice(END);
        }
        out.put_slice(DONE);
    }

    /// An error, and the end.
    pub(crate) fn fail(error: &ApiError, out: &mut BytesMut) {
        out.put_slice(DATA);
        json_into(&error.json(), out);
        out.put_slice(END);
        out.put_slice(DONE);
    }

    /// The first event of a chat's answer says whose it is; a completion's repeats the prompt.
    fn open(&mut self, index: usize, out: &mut BytesMut) {
        if std::mem::replace(&mut self.choices[index].opened, true) {
            return;
        }
        let prompt = index / self.identity.answers.max(1);
        let delta = match &self.kind {
            Kind::Chat => Piece::Role,
            Kind::Completions(echoes) => match echoes.get(prompt) {
                Some(words) => Piece::Text(words),
                None => return,
            },
        };
        let event = Event {
            delta,
            logprobs: Value::Null,
            finish_reason: None,
        };
        self.event(index, &event, out);
    }

    fn logprobs(&mut self, index: usize, token: &proto::Token) -> Value {
        let tokens = std::slice::from_ref(token);
        match self.kind {
            _ if !self.form.logprobs => Value::Null,
            Kind::Chat => logprobs::chat(tokens),
            Kind::Completions(_) => logprobs::completions(tokens, &mut self.choices[index].offset),
        }
    }

    fn event(&self, index: usize, event: &Event<'_>, out: &mut BytesMut) {
        out.put_slice(&self.head);
        number(index as u64, out);
        match &self.kind {
            Kind::Chat => self.delta(index, event.delta, out),
            Kind::Completions(_) => {
                out.put_slice(br#","text":"#);
                text(
                    if let Piece::Text(words) = event.delta {
                        words
                    } else {
                        ""
                    },
                    out,
                );
            }
        }
        out.put_slice(br#","logprobs":"#);
        if event.logprobs.is_null() {
            out.put_slice(b"null");
        } else {
            json_into(&event.logprobs, out);
        }
        match event.finish_reason {
            None => out.put_slice(br#","finish_reason":null}]"#),
            Some(reason) => {
                out.put_slice(br#","finish_reason":"#);
                text(reason, out);
                out.put_slice(b"}]");
            }
        }
        self.usage(index, out);
        out.put_slice(b"}\n\n");
    }

    /// A chat's member that says what is new.
    fn delta(&self, index: usize, piece: Piece<'_>, out: &mut BytesMut) {
        out.put_slice(br#","delta":"#);
        match piece {
            Piece::Role => out.put_slice(br#"{"role":"assistant","content":""}"#),
            Piece::Nothing => out.put_slice(b"{}"),
            Piece::Text(words) => {
                out.put_slice(br#"{"content":"#);
                text(words, out);
                out.put_slice(b"}");
            }
            Piece::Reasoning(words) => {
                out.put_slice(br#"{"reasoning_content":"#);
                text(words, out);
                out.put_slice(b"}");
            }
            Piece::CallStart(call, id, name) => {
                let id = self.identity.call_id(index, call, id);
                let function = json!({"name": name, "arguments": ""});
                let call =
                    json!({"index": call, "id": id, "type": "function", "function": function});
                json_into(&json!({"tool_calls": [call]}), out);
            }
            Piece::CallArguments(call, words) => {
                out.put_slice(br#"{"tool_calls":[{"index":"#);
                number(call as u64, out);
                out.put_slice(br#","function":{"arguments":"#);
                text(words, out);
                out.put_slice(b"}}]}");
            }
        }
    }

    /// The member that says the usage so far, or that it comes later.
    fn usage(&self, index: usize, out: &mut BytesMut) {
        if self.form.continuous {
            let prompt = self.identity.prompts[index / self.identity.answers.max(1)];
            let completion = self.choices[index].tokens;
            out.put_slice(br#","usage":{"prompt_tokens":"#);
            number(prompt, out);
            out.put_slice(br#","completion_tokens":"#);
            number(completion, out);
            out.put_slice(br#","total_tokens":"#);
            number(prompt + completion, out);
            out.put_slice(b"}");
        } else if self.form.include_usage {
            out.put_slice(br#","usage":null"#);
        }
    }
}

const CHOICE: &[u8] = br#"{"index":"#;

fn head(id: &str, object: &str, identity: &Identity) -> Vec<u8> {
    let event = json!({
        "id": id,
        "object": object,
        "created": identity.created,
        "model": identity.model,
        "system_fingerprint": identity.fingerprint,
        "choices": [],
    });
    let mut head = DATA.to_vec();
    head.extend_from_slice(event.to_string().as_bytes());
    // Up to the list's beginning.
    head.truncate(head.len() - b"]}".len());
    head.extend_from_slice(CHOICE);
    head
}

/// A JSON string.
pub(crate) fn text(text: &str, out: &mut BytesMut) {
    // Neither can fail: a string has a JSON form, and the buffer grows.
    let _ = serde_json::to_writer(out.writer(), text);
}

/// A JSON value.
pub(crate) fn json_into(value: &Value, out: &mut BytesMut) {
    let _ = serde_json::to_writer(out.writer(), value);
}

fn number(number: u64, out: &mut BytesMut) {
    if number < 10 {
        out.put_u8(b'0' + number as u8);
    } else {
        let _ = write!(out, "{number}");
    }
}

#[cfg(test)]
mod tests;

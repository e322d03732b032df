//! The events of a streamed response. Each has a number, from 0 without gaps.

use bytes::{BufMut, BytesMut};
use serde_json::{Map, Value, json};
use tandem_dialect::Delta;

use super::object::{ResponseForm, State, content, item, item_id, object};
use crate::api::answer::{Answer, Count, Ending, Identity, Part, Usage, is_silent};
use crate::api::error::ApiError;
use crate::api::openai::chunks::{json_into, text};

/// Writes one stream. Its last event holds the whole answer, so that is kept.
#[derive(Debug)]
pub(crate) struct ResponseEvents {
    form: ResponseForm,
    identity: Identity,
    answer: Answer,
    sequence: u64,
    started: bool,
    /// The last part is not closed yet.
    open: bool,
    /// What an event of a text's delta has before its number and its text.
    head: String,
}

impl ResponseEvents {
    /// Nothing is written yet.
    pub(crate) fn new(form: ResponseForm, identity: Identity) -> Self {
        Self {
            form,
            identity,
            answer: Answer::default(),
            sequence: 0,
            started: false,
            open: false,
            head: String::new(),
        }
    }

    /// What a token's text says.
    pub(crate) fn token(&mut self, deltas: &[Delta], out: &mut BytesMut) {
        self.start(out);
        for delta in deltas.iter().filter(|delta| !is_silent(delta)) {
            self.delta(delta, out);
        }
    }

    /// The answer's end, with what was held back.
    pub(crate) fn finish(&mut self, deltas: &[Delta], ending: &Ending, out: &mut BytesMut) {
        self.token(deltas, out);
        self.answer.ending = ending.clone();
        let status = if ending.length {
            "incomplete"
        } else {
            "completed"
        };
        self.close(status, out);
    }

    /// The stream's end.
    pub(crate) fn end(&mut self, counts: &[Count], out: &mut BytesMut) {
        let state = State::Ended(&self.answer, Usage::of(&self.identity, counts));
        let response = object(&self.form, &self.identity, state);
        let kind = if self.answer.ending.length {
            "response.incomplete"
        } else {
            "response.completed"
        };
        self.event(kind, json!({"response": response}), out);
    }

    /// An error after the first token; nothing follows.
    pub(crate) fn fail(&mut self, error: &ApiError, out: &mut BytesMut) {
        let state = State::Failed(&self.answer, error);
        let response = object(&self.form, &self.identity, state);
        self.event("response.failed", json!({"response": response}), out);
    }

    fn start(&mut self, out: &mut BytesMut) {
        if std::mem::replace(&mut self.started, true) {
            return;
        }
        let response = object(&self.form, &self.identity, State::InProgress);
        for kind in ["response.created", "response.in_progress"] {
            self.event(kind, json!({"response": response}), out);
        }
    }

    fn delta(&mut self, delta: &Delta, out: &mut BytesMut) {
        let parts = self.answer.parts.len();
        let begins = self.answer.push(delta);
        if begins {
            // The part before it is whole.
            let new = self.answer.parts.pop();
            self.close("completed", out);
            self.answer.parts.extend(new);
            self.begin(parts, out);
        }
        let (Delta::Content(words)
        | Delta::Reasoning(words)
        | Delta::Arguments { json: words, .. }) = delta
        else {
            return;
        };
        out.put_slice(self.head.as_bytes());
        out.put_slice(self.sequence.to_string().as_bytes());
        self.sequence += 1;
        out.put_slice(br#","delta":"#);
        text(words, out);
        out.put_slice(b"}\n\n");
    }

    /// The part at `index` begins.
    fn begin(&mut self, index: usize, out: &mut BytesMut) {
        let Some(part) = self.answer.parts.get(index) else {
            return;
        };
        let id = item_id(&self.identity, index, part);
        let (bare, kind, more) = match part {
            Part::Text(_) => (
                Part::Text(String::new()),
                "response.output_text.delta",
                r#""content_index":0,"logprobs":[],"#,
            ),
            Part::Reasoning(_) => (
                Part::Reasoning(String::new()),
                "response.reasoning_text.delta",
                r#""content_index":0,"#,
            ),
            Part::Call { id, name, .. } => (
                Part::Call {
                    id: id.clone(),
                    name: name.clone(),
                    arguments: String::new(),
                },
                "response.function_call_arguments.delta",
                "",
            ),
        };
        self.head = format!(
            "event: {kind}\ndata: {{\"type\":\"{kind}\",\"item_id\":\"{id}\",\"output_index\":{index},\
             {more}\"sequence_number\":"
        );
        let item = item(&self.identity, index, &bare, "in_progress");
        self.open = true;
        let added = json!({"output_index": index, "item": item});
        self.event("response.output_item.added", added, out);
        if let Some(part) = content(&bare) {
            let added = json!({
                "item_id": id, "output_index": index, "content_index": 0, "part": part,
            });
            self.event("response.content_part.added", added, out);
        }
    }

    /// The last part is whole, or cut off.
    fn close(&mut self, status: &str, out: &mut BytesMut) {
        if !std::mem::replace(&mut self.open, false) {
            return;
        }
        let Some(index) = self.answer.parts.len().checked_sub(1) else {
            return;
        };
        let part = self.answer.parts[index].clone();
        let id = item_id(&self.identity, index, &part);
        let place = json!({"item_id": id, "output_index": index});
        let with = |members: Value| {
            let mut place = place.clone();
            for (name, value) in members.as_object().cloned().unwrap_or_default() {
                place[name] = value;
            }
            place
        };
        match &part {
            Part::Text(text) => {
                let done = with(json!({"content_index": 0, "text": text, "logprobs": []}));
                self.event("response.output_text.done", done, out);
            }
            Part::Reasoning(text) => {
                let done = with(json!({"content_index": 0, "text": text}));
                self.event("response.reasoning_text.done", done, out);
            }
            Part::Call {
                name, arguments, ..
            } => {
                let done = with(json!({"name": name, "arguments": arguments}));
                self.event("response.function_call_arguments.done", done, out);
            }
        }
        if let Some(part) = content(&part) {
            let done = with(json!({"content_index": 0, "part": part}));
            self.event("response.content_part.done", done, out);
        }
        let item = item(&self.identity, index, &part, status);
        let done = json!({"output_index": index, "item": item});
        self.event("response.output_item.done", done, out);
    }

    fn event(&mut self, kind: &str, members: Value, out: &mut BytesMut) {
        let mut data = Map::new();
        data.insert("type".to_owned(), kind.into());
        data.insert("sequence_number".to_owned(), self.sequence.into());
        self.sequence += 1;
        if let Value::Object(members) = members {
            data.extend(members);
        }
        out.put_slice(b"event: ");
        out.put_slice(kind.as_bytes());
        out.put_slice(b"\ndata: ");
        json_into(&Value::Object(data), out);
        out.put_slice(b"\n\n");
    }
}

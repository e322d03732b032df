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
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn identity(answers: usize) -> Identity {
        Identity {
            request: "1".into(),
            model: "a \"model\"".into(),
            created: 7,
            fingerprint: "tandem-f".into(),
            prompts: vec![3, 4],
            answers,
        }
    }

    fn events(bytes: &BytesMut) -> Vec<Value> {
        let text = std::str::from_utf8(bytes).unwrap();
        let events = text.strip_suffix("\n\n").unwrap().split("\n\n");
        let data = |event: &str| event.strip_prefix("data: ").unwrap().to_owned();
        events
            .map(data)
            .filter(|data| data != "[DONE]")
            .map(|data| serde_json::from_str(&data).unwrap())
            .collect()
    }

    fn token(text: &str) -> (Vec<Delta>, proto::Token) {
        (
            vec![Delta::Content(text.to_owned())],
            proto::Token::default(),
        )
    }

    /// The event as a tree.
    fn tree(chat: bool, index: usize, words: &str, reason: Option<&str>, usage: bool) -> Value {
        let mut choice = json!({"index": index, "logprobs": null, "finish_reason": reason});
        if chat {
            choice["delta"] = json!({"content": words});
        } else {
            choice["text"] = json!(words);
        }
        let mut event = json!({
            "id": if chat { "chatcmpl-1" } else { "cmpl-1" },
            "object": if chat { "chat.completion.chunk" } else { "text_completion" },
            "created": 7,
            "model": "a \"model\"",
            "system_fingerprint": "tandem-f",
            "choices": [choice],
        });
        if usage {
            event["usage"] = Value::Null;
        }
        event
    }

    proptest! {
        #[test]
        fn an_event_says_what_its_tree_says(
            words in ".{1,40}", index in 0..24_usize, chat: bool, include_usage: bool,
        ) {
            let form = ChunkForm { include_usage, ..ChunkForm::default() };
            let mut chunks = if chat {
                Chunks::chat(identity(12), form)
            } else {
                Chunks::completions(identity(12), form, vec![])
            };
            let (deltas, token) = token(&words);
            let mut out = BytesMut::new();
            chunks.token(index, &deltas, &token, &mut out);
            let events = events(&out);
            prop_assert_eq!(events.len(), 1 + usize::from(chat));
            let tree = tree(chat, index, &words, None, include_usage);
            prop_assert_eq!(events.last(), Some(&tree));
        }
    }

    #[test]
    fn the_role_comes_once_for_each_answer() {
        let mut chunks = Chunks::chat(identity(1), ChunkForm::default());
        let mut out = BytesMut::new();
        for index in [1, 0, 1] {
            let (deltas, token) = token("x");
            chunks.token(index, &deltas, &token, &mut out);
        }
        let roles = events(&out).into_iter().map(|event| {
            let choice = &event["choices"][0];
            (
                choice["index"].as_u64().unwrap(),
                choice["delta"].get("role").is_some(),
            )
        });
        let want = [(1, true), (1, false), (0, true), (0, false), (1, false)];
        assert_eq!(roles.collect::<Vec<_>>(), want);
    }

    #[test]
    fn usage_comes_last_with_no_choices_and_is_null_before() {
        let form = ChunkForm {
            include_usage: true,
            ..ChunkForm::default()
        };
        let mut chunks = Chunks::chat(identity(1), form);
        let mut out = BytesMut::new();
        chunks.finish(0, &[], &Ending::default(), &mut out);
        chunks.finish(1, &[], &Ending::default(), &mut out);
        let count = Count {
            completion: 2,
            cached: 1,
            ..Count::default()
        };
        chunks.end(&[count, count], &mut out);
        assert!(out.ends_with(DONE));
        let events = events(&out);
        let (last, others) = events.split_last().unwrap();
        assert_eq!(last["choices"], json!([]));
        assert_eq!(last["usage"]["total_tokens"], 11);
        assert_eq!(last["usage"]["prompt_tokens_details"]["cached_tokens"], 2);
        assert!(
            others
                .iter()
                .all(|event| event.get("usage") == Some(&Value::Null))
        );
    }

    #[test]
    fn without_it_there_is_no_usage_and_with_all_of_it_in_every_event() {
        let mut out = BytesMut::new();
        let mut chunks = Chunks::chat(identity(1), ChunkForm::default());
        chunks.finish(0, &[], &Ending::default(), &mut out);
        chunks.end(&[], &mut out);
        assert!(
            events(&out)
                .iter()
                .all(|event| event.get("usage").is_none())
        );
        let form = ChunkForm {
            include_usage: true,
            continuous: true,
            ..ChunkForm::default()
        };
        let mut chunks = Chunks::completions(identity(1), form, vec![]);
        out.clear();
        for _ in 0..12 {
            let (deltas, token) = token("x");
            chunks.token(1, &deltas, &token, &mut out);
        }
        let usage = json!({"prompt_tokens": 4, "completion_tokens": 12, "total_tokens": 16});
        assert_eq!(events(&out)[11]["usage"], usage);
    }

    #[test]
    fn text_held_back_comes_before_the_end() {
        let rest = [Delta::Content("rest".into())];
        let ending = Ending {
            length: true,
            ..Ending::default()
        };
        let mut out = BytesMut::new();
        Chunks::chat(identity(1), ChunkForm::default()).finish(0, &rest, &ending, &mut out);
        let chunks = events(&out);
        assert_eq!(chunks.len(), 3);
        assert_eq!(chunks[1], tree(true, 0, "rest", None, false));
        assert_eq!(chunks[2]["choices"][0]["delta"], json!({}));
        assert_eq!(chunks[2]["choices"][0]["finish_reason"], "length");
        out.clear();
        let mut completions = Chunks::completions(identity(1), ChunkForm::default(), vec![]);
        completions.finish(0, &rest, &ending, &mut out);
        assert_eq!(
            events(&out),
            [tree(false, 0, "rest", Some("length"), false)]
        );
    }

    #[test]
    fn a_token_without_text_is_no_event_unless_its_probability_is_wanted() {
        let token = proto::Token {
            logprobs: vec![proto::Logprob {
                token: 1,
                bytes: "é".into(),
                logprob: -0.5,
            }],
            ..proto::Token::default()
        };
        let deltas = [Delta::Content(String::new())];
        for logprobs in [false, true] {
            let form = ChunkForm {
                logprobs,
                ..ChunkForm::default()
            };
            let mut out = BytesMut::new();
            Chunks::chat(identity(1), form).token(0, &deltas, &token, &mut out);
            let events = events(&out);
            assert_eq!(events.len(), 1 + usize::from(logprobs));
            if logprobs {
                let choice = &events[1]["choices"][0];
                assert_eq!(choice["delta"]["content"], "");
                assert_eq!(choice["logprobs"]["content"][0]["token"], "é");
            }
        }
    }

    #[test]
    fn thoughts_and_calls_have_members_of_their_own() {
        let mut out = BytesMut::new();
        let mut chunks = Chunks::chat(identity(1), ChunkForm::default());
        let name = "f".to_owned();
        let deltas = [
            Delta::Reasoning("hm".into()),
            Delta::CallStart { index: 0, id: None, name },
            Delta::Arguments {
                index: 0,
                json: "{\"a\":".into(),
            },
        ];
        chunks.token(1, &deltas, &proto::Token::default(), &mut out);
        chunks.finish(1, &[], &Ending::default(), &mut out);
        let deltas: Vec<Value> = events(&out)
            .into_iter()
            .map(|event| event["choices"][0]["delta"].clone())
            .collect();
        assert_eq!(deltas[1], json!({"reasoning_content": "hm"}));
        let call = &deltas[2]["tool_calls"][0];
        assert_eq!(
            (&call["index"], &call["id"]),
            (&json!(0), &json!("call_10100"))
        );
        assert_eq!(call["function"], json!({"name": "f", "arguments": ""}));
        let more = json!({"index": 0, "function": {"arguments": "{\"a\":"}});
        assert_eq!(deltas[3], json!({"tool_calls": [more]}));
        let end = &events(&out)[4];
        assert_eq!(end["choices"][0]["finish_reason"], "tool_calls");
    }

    #[test]
    fn a_prompt_is_repeated_before_each_of_its_answers() {
        let echoes = vec!["one ".to_owned(), "two ".to_owned()];
        let mut chunks = Chunks::completions(identity(2), ChunkForm::default(), echoes);
        let mut out = BytesMut::new();
        for index in [3, 0, 3] {
            let (deltas, token) = token("x");
            chunks.token(index, &deltas, &token, &mut out);
        }
        let texts = events(&out)
            .into_iter()
            .map(|event| event["choices"][0]["text"].clone());
        assert_eq!(texts.collect::<Vec<_>>(), ["two ", "x", "one ", "x", "x"]);
    }
}

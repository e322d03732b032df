//! The events of a streamed message.

use bytes::{BufMut, BytesMut};
use serde_json::{Value, json};
use tandem_dialect::Delta;

use super::answer;
use super::error;
use crate::api::answer::{Count, Ending, Identity, Usage, is_silent};
use crate::api::error::ApiError;
use crate::api::openai::chunks::{json_into, text};

/// What a content block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Block {
    Text,
    Thinking,
    /// A call, by its place.
    Call(usize),
}

/// Writes one stream.
#[derive(Debug)]
pub(crate) struct MessageEvents {
    identity: Identity,
    started: bool,
    open: Option<Block>,
    /// Blocks so far, the open one among them.
    blocks: usize,
    calls: bool,
    ending: Ending,
}

impl MessageEvents {
    /// Nothing is written yet.
    pub(crate) const fn new(identity: Identity) -> Self {
        Self {
            identity,
            started: false,
            open: None,
            blocks: 0,
            calls: false,
            ending: Ending {
                length: false,
                stop_text: None,
            },
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
        self.close(out);
        self.ending = ending.clone();
    }

    /// The stream's end.
    pub(crate) fn end(&self, counts: &[Count], out: &mut BytesMut) {
        let usage = Usage::of(&self.identity, counts);
        let delta = answer::end(&self.ending, self.calls);
        let data = json!({
            "type": "message_delta",
            "delta": delta,
            "usage": answer::tokens(usage),
        });
        event("message_delta", &data, out);
        event("message_stop", &json!({"type": "message_stop"}), out);
    }

    fn start(&mut self, out: &mut BytesMut) {
        if std::mem::replace(&mut self.started, true) {
            return;
        }
        let usage = Usage::of(&self.identity, &[Count::default()]);
        let message = answer::begun(&self.identity, usage);
        let data = json!({"type": "message_start", "message": message});
        event("message_start", &data, out);
        ping(out);
    }

    fn delta(&mut self, delta: &Delta, out: &mut BytesMut) {
        let (block, head, words) = match delta {
            Delta::Content(words) => (Block::Text, r#"{"type":"text_delta","text":"#, words),
            Delta::Reasoning(words) => (
                Block::Thinking,
                r#"{"type":"thinking_delta","thinking":"#,
                words,
            ),
            Delta::CallStart { index, id, name } => {
                self.calls = true;
                let id = self.identity.call_id(0, *index, id.as_deref());
                let block = json!({"type": "tool_use", "id": id, "name": name, "input": {}});
                self.begin(Block::Call(*index), &block, out);
                return;
            }
            Delta::CallEnd { .. } => return,
            Delta::Arguments { index, json: text } => (
                Block::Call(*index),
                r#"{"type":"input_json_delta","partial_json":"#,
                text,
            ),
        };
        match block {
            _ if self.open == Some(block) => {}
            Block::Text => self.begin(block, &json!({"type": "text", "text": ""}), out),
            Block::Thinking => {
                let thinking = json!({"type": "thinking", "thinking": "", "signature": ""});
                self.begin(block, &thinking, out);
            }
            // Arguments of no call: a parser begins the call first.
            Block::Call(_) => return,
        }
        out.put_slice(
            b"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":",
        );
        out.put_slice((self.blocks - 1).to_string().as_bytes());
        out.put_slice(br#","delta":"#);
        out.put_slice(head.as_bytes());
        text(words, out);
        out.put_slice(b"}}\n\n");
    }

    fn begin(&mut self, block: Block, content: &Value, out: &mut BytesMut) {
        self.close(out);
        self.open = Some(block);
        let index = self.blocks;
        self.blocks += 1;
        let data = json!({"type": "content_block_start", "index": index, "content_block": content});
        event("content_block_start", &data, out);
    }

    fn close(&mut self, out: &mut BytesMut) {
        if self.open.take().is_some() {
            let data = json!({"type": "content_block_stop", "index": self.blocks - 1});
            event("content_block_stop", &data, out);
        }
    }
}

/// A sign of life.
pub(crate) fn ping(out: &mut BytesMut) {
    event("ping", &json!({"type": "ping"}), out);
}

/// An error after the first token; nothing follows.
pub(crate) fn fail(error: &ApiError, out: &mut BytesMut) {
    event("error", &error::json(error, None), out);
}

fn event(name: &str, data: &Value, out: &mut BytesMut) {
    out.put_slice(b"event: ");
    out.put_slice(name.as_bytes());
    out.put_slice(b"\ndata: ");
    json_into(data, out);
    out.put_slice(b"\n\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(out: &BytesMut) -> Vec<(String, Value)> {
        let text = std::str::from_utf8(out).unwrap();
        text.split_terminator("\n\n")
            .map(|event| {
                let (name, data) = event.split_once('\n').unwrap();
                let data = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
                (name.strip_prefix("event: ").unwrap().to_owned(), data)
            })
            .inspect(|(name, data): &(String, Value)| assert_eq!(data["type"], *name))
            .collect()
    }

    #[test]
    fn each_kind_of_content_is_a_block_of_its_own() {
        let identity = Identity {
            request: "1".into(),
            prompts: vec![9],
            answers: 1,
            ..Identity::default()
        };
        let mut events = MessageEvents::new(identity);
        let mut out = BytesMut::new();
        let call = Delta::CallStart {
            index: 0,
            id: None,
            name: "f".into(),
        };
        let arguments = Delta::Arguments {
            index: 0,
            json: "{}".into(),
        };
        for delta in [
            Delta::Reasoning("hm".into()),
            Delta::Content("a\n".into()),
            Delta::Content("b".into()),
            call,
            arguments,
        ] {
            events.token(&[delta], &mut out);
        }
        events.finish(&[], &Ending::default(), &mut out);
        let count = Count {
            completion: 7,
            cached: 4,
            ..Count::default()
        };
        events.end(&[count], &mut out);
        let events = names(&out);
        let order: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
        let (start, delta, stop) = (
            "content_block_start",
            "content_block_delta",
            "content_block_stop",
        );
        let want = [
            "message_start",
            "ping",
            start,
            delta,
            stop,
            start,
            delta,
            delta,
            stop,
            start,
            delta,
            stop,
            "message_delta",
            "message_stop",
        ];
        assert_eq!(order, want);
        assert_eq!(
            events[6].1["delta"],
            json!({"type": "text_delta", "text": "a\n"})
        );
        assert_eq!(events[11].1["index"], 2);
        let end = &events[12].1;
        assert_eq!(end["delta"]["stop_reason"], "tool_use");
        assert_eq!(end["usage"]["input_tokens"], 5);
        assert_eq!(end["usage"]["cache_read_input_tokens"], 4);
        assert_eq!(end["usage"]["output_tokens"], 7);
    }
}

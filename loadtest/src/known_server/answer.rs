//! Writing answers, at their times.

use std::io;
use std::sync::atomic::Ordering;
use std::time::Instant;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::request::Asking;
use super::{Asked, Fault, Note, Script, State};

/// Answers; whether the connection goes on.
pub(super) async fn answer(
    state: &State,
    asking: &Asking,
    stream: &mut TcpStream,
) -> io::Result<bool> {
    let wanted = state
        .behaviour
        .key
        .as_ref()
        .map(|key| format!("Bearer {key}"));
    if wanted.is_some() && wanted != asking.authorization {
        return refuse(stream, 401, "Incorrect API key provided.").await;
    }
    match asking.line.as_str() {
        "GET /health" => whole(stream, 200, "application/json", "{}").await,
        "GET /v1/models" => {
            let models = state.behaviour.models.iter();
            let models: Vec<Value> = models
                .map(|id| json!({"id": id, "object": "model"}))
                .collect();
            let body = json!({"object": "list", "data": models}).to_string();
            whole(stream, 200, "application/json", &body).await
        }
        "POST /v1/chat/completions" | "POST /v1/completions" => {
            generate(state, asking, stream).await
        }
        _ => refuse(stream, 404, "There is nothing here.").await,
    }
}

async fn generate(state: &State, asking: &Asking, stream: &mut TcpStream) -> io::Result<bool> {
    let model = asking.body["model"].as_str().unwrap_or("");
    if !state.behaviour.models.iter().any(|known| known == model) {
        let message = format!("The model `{model}` does not exist.");
        return refuse(stream, 404, &message).await;
    }
    let every = asking.body["stream_options"]["continuous_usage_stats"] == true;
    if every && !state.behaviour.chunk_usage {
        return refuse(stream, 400, "continuous_usage_stats is not supported.").await;
    }
    let limit = |name: &str| asking.body[name].as_u64();
    let max_tokens = limit("max_tokens").or(limit("max_completion_tokens"));
    let max_tokens = max_tokens.unwrap_or(16) as u32;
    // The harness looks first; that look is no request of the test.
    let is_look = asking.request_id.is_empty() && max_tokens == 1;
    let number = match is_look {
        true => 0,
        false => state.answers.fetch_add(1, Ordering::Relaxed),
    };
    let script = (state.behaviour.answer)(&Asked {
        number,
        at: asking.at.saturating_duration_since(state.start),
        max_tokens,
        bytes: asking.bytes,
    });
    match script.fault.filter(|_| !is_look) {
        Some(Fault::Status(status)) => refuse(stream, status, "as the script says").await,
        Some(Fault::Page) => whole(stream, 200, "text/html", "<html>not here</html>").await,
        Some(Fault::Drop) => Ok(false),
        fault => {
            let mut answer = Answer::of(asking, Script { fault, ..script }, every);
            let goes_on = answer.write(state, stream).await;
            if state.behaviour.notes && !is_look {
                state.notes().push(answer.note);
            }
            goes_on
        }
    }
}

async fn refuse(stream: &mut TcpStream, status: u16, message: &str) -> io::Result<bool> {
    let body = json!({"error": {"message": message, "type": "known_server", "code": status}});
    whole(stream, status, "application/json", &body.to_string()).await
}

async fn whole(stream: &mut TcpStream, status: u16, kind: &str, body: &str) -> io::Result<bool> {
    let length = body.len();
    let answer = format!(
        "HTTP/1.1 {status} Known\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(answer.as_bytes()).await?;
    Ok(true)
}

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\n\
                    transfer-encoding: chunked\r\n\r\n";
const LAST_CHUNK: &str = "0\r\n\r\n";

struct Answer {
    script: Script,
    is_chat: bool,
    every: bool,
    last: bool,
    prompt_tokens: usize,
    model: String,
    note: Note,
}

fn chunk(event: &str) -> String {
    format!("{:x}\r\n{event}\r\n", event.len())
}

impl Answer {
    fn of(asking: &Asking, script: Script, every: bool) -> Self {
        Self {
            script,
            is_chat: asking.line.ends_with("/chat/completions"),
            every,
            last: asking.body["stream_options"]["include_usage"] == true,
            prompt_tokens: words(&asking.body),
            model: asking.body["model"].as_str().unwrap_or("").to_owned(),
            note: Note {
                request_id: asking.request_id.clone(),
                session: asking.session.clone(),
                asked: asking.at,
                events: Vec::new(),
                ended: None,
            },
        }
    }

    /// Writes it; whether the connection goes on.
    async fn write(&mut self, state: &State, stream: &mut TcpStream) -> io::Result<bool> {
        let mut head = HEAD.to_owned();
        if self.is_chat {
            head += &chunk(&self.event(&json!({"role": "assistant", "content": ""}), 0));
        }
        stream.write_all(head.as_bytes()).await?;
        let mut at = self.note.asked + self.script.first;
        let mut tokens = 0;
        let mut number = 0;
        while tokens < self.script.tokens {
            if let Some(goes_on) = self.fail(number, stream).await? {
                return Ok(goes_on);
            }
            state.clock.sleep_until(at).await;
            let here = self
                .script
                .tokens_per_event
                .min(self.script.tokens - tokens);
            tokens += here;
            let text = json!({"content": " token".repeat(here as usize)});
            let event = chunk(&self.event(&text, tokens));
            stream.write_all(event.as_bytes()).await?;
            self.note.events.push((Instant::now(), here));
            at += self.script.gap;
            number += 1;
        }
        stream.write_all(self.end(tokens).as_bytes()).await?;
        self.note.ended = Some(Instant::now());
        Ok(true)
    }

    /// Goes wrong, where this is the moment for it; whether the connection goes on.
    async fn fail(&self, number: u32, stream: &mut TcpStream) -> io::Result<Option<bool>> {
        let (goes_on, last_words) = match self.script.fault {
            Some(Fault::DropAfter(n)) if n == number => (false, String::new()),
            Some(Fault::EndAfter(n)) if n == number => (true, LAST_CHUNK.to_owned()),
            Some(Fault::GarbageAfter(n)) if n == number => {
                (false, chunk("data: <html>502 Bad Gateway</html>\n\n"))
            }
            Some(Fault::ErrorAfter(n)) if n == number => {
                let error = json!({"error": {"message": "the worker is gone", "code": 502}});
                let events = chunk(&format!("data: {error}\n\n")) + &chunk("data: [DONE]\n\n");
                (true, events + LAST_CHUNK)
            }
            Some(Fault::SilenceAfter(n)) if n == number => {
                // Until the client goes.
                stream.readable().await?;
                (false, String::new())
            }
            _ => return Ok(None),
        };
        stream.write_all(last_words.as_bytes()).await?;
        Ok(Some(goes_on))
    }

    fn event(&self, delta: &Value, tokens: u32) -> String {
        let usage = match self.every {
            true => self.usage(tokens),
            false => Value::Null,
        };
        self.data(self.choice(delta, None), &usage)
    }

    /// The last events: why it ended, usage where it was asked for, the end.
    fn end(&self, tokens: u32) -> String {
        let mut end = chunk(&self.data(self.choice(&json!({}), Some("length")), &Value::Null));
        if self.last {
            end += &chunk(&self.data(json!([]), &self.usage(tokens)));
        }
        end + &chunk("data: [DONE]\n\n") + LAST_CHUNK
    }

    fn choice(&self, delta: &Value, finish: Option<&str>) -> Value {
        match self.is_chat {
            true => {
                json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}])
            }
            false => {
                let text = delta["content"].as_str().unwrap_or("");
                json!([{"index": 0, "text": text, "logprobs": null, "finish_reason": finish}])
            }
        }
    }

    fn data(&self, choices: Value, usage: &Value) -> String {
        let object = match self.is_chat {
            true => "chat.completion.chunk",
            false => "text_completion",
        };
        let model = &self.model;
        let event = json!({
            "id": "cmpl-known", "object": object, "created": 1_700_000_000, "model": model,
            "choices": choices, "usage": usage,
        });
        format!("data: {event}\n\n")
    }

    fn usage(&self, tokens: u32) -> Value {
        let prompt = self.prompt_tokens;
        let all = prompt + tokens as usize;
        json!({"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": all})
    }
}

/// Words of a prompt, or ids.
fn words(body: &Value) -> usize {
    let count = |text: &Value| text.as_str().unwrap_or("").split_whitespace().count();
    match (&body["messages"], &body["prompt"]) {
        (Value::Array(messages), _) => messages.iter().map(|m| count(&m["content"])).sum(),
        (_, Value::Array(ids)) => ids.len(),
        (_, prompt) => count(prompt),
    }
}

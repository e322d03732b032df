//! An answer's text, token by token.

use std::sync::Arc;

use crate::TextModel;
use crate::stop::Stops;

/// Room for the bytes of common tokens without a further allocation.
const UNDECODED_CAPACITY: usize = 64;

/// What became certain with one token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pushed {
    /// Whole characters, none of them part of a possible stop text. Often empty.
    pub text: String,
    /// A stop text has appeared; `text` ends right before it and nothing follows.
    pub stopped: bool,
}

/// Turns one answer's tokens into text and finds its stop texts.
///
/// The text is that of all bytes so far, decoded as UTF-8 with U+FFFD for what is not (as
/// [`String::from_utf8_lossy`] does, but bytes that may yet become a character wait for the next
/// token). Special tokens and ids outside the vocabulary have no text. The answer stops at the stop
/// text that is **complete first**, and where several end at the same character, at the longest
/// of them; so the result depends on the text alone, never on how it was cut into tokens.
///
/// A push costs time in proportion to the token's bytes (times the number of stop texts) and
/// allocates the returned text only.
pub struct AnswerText {
    model: Arc<TextModel>,
    stops: Stops,
    /// Bytes that are no whole character yet: at most three between pushes.
    undecoded: Vec<u8>,
    /// Text that may be the beginning of a stop text: shorter than the longest of them.
    held: String,
    /// The stop text that ended it.
    stopped: Option<String>,
}

impl AnswerText {
    /// An answer that has no token yet. Empty stop texts are ignored.
    pub fn new(model: Arc<TextModel>, stop: Vec<String>) -> Self {
        let longest = stop.iter().map(String::len).max().unwrap_or(0);
        Self {
            model,
            stops: Stops::new(stop),
            undecoded: Vec::with_capacity(UNDECODED_CAPACITY),
            held: String::with_capacity(longest + UNDECODED_CAPACITY),
            stopped: None,
        }
    }

    /// Takes the next token; gives the text that is certain now. After a stop there is no more.
    pub fn push(&mut self, token: u32) -> Pushed {
        self.take(token, Self::search)
    }

    /// The same for a token behind which the answer must go on: a stop text that is complete with it
    /// is text like any other.
    pub fn push_through(&mut self, token: u32) -> Pushed {
        self.take(token, Self::pass)
    }

    /// The stop text that ended the answer, where one did.
    pub fn stop_text(&self) -> Option<&str> {
        self.stopped.as_deref()
    }

    fn take(&mut self, token: u32, look: fn(&mut Self, usize)) -> Pushed {
        if self.stopped.is_none() && !self.model.is_special(token) {
            self.undecoded.extend_from_slice(self.model.bytes(token));
            let from = self.held.len();
            self.decode(false);
            look(self, from);
        }
        Pushed {
            text: self.take_certain(),
            stopped: self.stopped.is_some(),
        }
    }

    /// The answer has ended: gives what was held back. Bytes that never became a character are
    /// U+FFFD. Nothing after a stop.
    pub fn finish(&mut self) -> String {
        if self.stopped.is_none() {
            let from = self.held.len();
            self.decode(true);
            self.search(from);
        }
        std::mem::take(&mut self.held)
    }

    /// Moves whole characters from `undecoded` to `held`, at the end also what is left.
    fn decode(&mut self, last: bool) {
        let mut rest = self.undecoded.as_slice();
        while !rest.is_empty() {
            let (valid, invalid) = match std::str::from_utf8(rest) {
                Ok(text) => (text, 0),
                Err(error) => {
                    let (valid, after) = rest.split_at(error.valid_up_to());
                    let invalid = match error.error_len() {
                        None if last => after.len(),
                        None => 0,
                        Some(length) => length,
                    };
                    let text = std::str::from_utf8(valid).expect("valid up to here");
                    (text, invalid)
                }
            };
            self.held.push_str(valid);
            rest = &rest[valid.len() + invalid..];
            if invalid == 0 {
                break;
            }
            self.held.push(char::REPLACEMENT_CHARACTER);
        }
        let decoded = self.undecoded.len() - rest.len();
        self.undecoded.drain(..decoded);
    }

    /// Looks for stop texts in `held[from..]`; cuts `held` before the first.
    fn search(&mut self, from: usize) {
        for index in from..self.held.len() {
            if let Some(found) = self.stops.feed(self.held.as_bytes()[index]) {
                // UTF-8 synchronises itself: a match of whole characters begins at one.
                let length = found.len();
                self.stopped = Some(found.to_owned());
                self.held.truncate(index + 1 - length);
                return;
            }
        }
    }

    /// Lets stop texts in `held[from..]` pass.
    fn pass(&mut self, from: usize) {
        for byte in &self.held.as_bytes()[from..] {
            self.stops.pass(*byte);
        }
    }

    fn take_certain(&mut self) -> String {
        if self.stopped.is_some() {
            return std::mem::take(&mut self.held);
        }
        let certain = self.held.len() - self.stops.possible();
        let text = self.held[..certain].to_owned();
        self.held.drain(..certain);
        text
    }
}

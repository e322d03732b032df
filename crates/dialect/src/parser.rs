//! Text in, deltas out.
//!
//! A parser owns one answer's text from the first piece to the last. It holds back only what may be the
//! beginning of a marker (never more than the longest marker, or 64 characters of whitespace before the
//! answer's first word), and what may be a call: with [`Release::Whole`] until the call is complete or is
//! none, at most [`MAX_CALL`] bytes of it. The time is linear in the text, whatever it is.
//!
//! What must hold: the deltas do not depend on where the text was cut, and what is not a call comes back
//! as content exactly as it was written.

use crate::calls::Calls;
use crate::delta::{self, Delta};
use crate::dialect::Dialect;
use crate::marker::{Found, Held};
use crate::run::{Outcome, Run};
use crate::tools::Tools;

/// The longest text that is held for one call. What is longer is content.
pub const MAX_CALL: usize = 1024 * 1024;
/// How many characters of whitespace are held before the answer's first word.
const MAX_LEAD: usize = 64;

/// When a call's deltas are given out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// When the call is complete: what turns out to be none is content.
    Whole,
    /// As soon as the function's name is known: arguments come as the model writes them. A call that goes
    /// wrong behind its name ends with `complete: false`, and content goes on. For answers whose decoding
    /// is constrained, and for clients that want arguments early.
    Early,
}

/// What to make of an answer.
#[derive(Debug, Clone)]
pub struct Options {
    /// The functions whose calls are looked for; none: all but reasoning is content.
    pub tools: Tools,
    /// Whether more than one call may come. Otherwise the answer is over after the first.
    pub parallel: bool,
    /// When a call's deltas are given out.
    pub release: Release,
    /// Whether the prompt ends inside reasoning ([`Dialect::opens_reasoning`]).
    pub reasoning: bool,
}

/// What a marker means.
#[derive(Debug, Clone, Copy)]
enum Act {
    Reason,
    /// Calls go on at this step; `true`: which reads the marker again.
    Call(usize, bool),
    Drop,
}

type Entry = (&'static str, Act);

/// Where in the answer the next character stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Before the first word; `reasoned`: behind reasoning.
    Opening {
        reasoned: bool,
    },
    Reasoning {
        fresh: bool,
    },
    Body,
    Calls,
    /// Right behind calls.
    After,
    Ended,
}

/// Turns one answer's text into deltas.
#[derive(Debug)]
pub struct Parser {
    dialect: Dialect,
    parallel: bool,
    release: Release,
    opening: Vec<Entry>,
    reasoned: Vec<Entry>,
    body: Vec<Entry>,
    calls: Calls,
    place: Place,
    held: Held,
    lead: String,
    run: Option<Run>,
    /// The text of what may be a call.
    raw: String,
    /// How many calls have been given out whole.
    given: usize,
    /// Whether the beginning of the open call has been given out.
    begun: bool,
    /// Characters to read again, the next one last.
    again: Vec<char>,
}

impl Parser {
    /// For the answer of a model of this dialect.
    #[must_use]
    pub fn new(dialect: Dialect, options: Options) -> Self {
        let (mut body, mut bare) = (Vec::new(), Vec::new());
        if let Some(family) = dialect.family().filter(|_| !options.tools.is_empty()) {
            body.extend(
                family
                    .opens
                    .iter()
                    .map(|&(text, at)| (text, Act::Call(at, false))),
            );
            bare.extend(
                family
                    .bare
                    .iter()
                    .map(|&(text, at)| (text, Act::Call(at, true))),
            );
        }
        let mut reasoned: Vec<Entry> = body.iter().chain(&bare).copied().collect();
        let mut opening = reasoned.clone();
        if let Some(thinking) = dialect.thinking() {
            opening.extend(thinking.opens.iter().map(|&text| (text, Act::Reason)));
            reasoned.extend(thinking.dropped.iter().map(|&text| (text, Act::Drop)));
        }
        let place = if options.reasoning && dialect.thinking().is_some() {
            Place::Reasoning { fresh: true }
        } else {
            Place::Opening { reasoned: false }
        };
        Self {
            dialect,
            parallel: options.parallel,
            release: options.release,
            opening,
            reasoned,
            body,
            calls: Calls::new(options.tools),
            place,
            held: Held::default(),
            lead: String::new(),
            run: None,
            raw: String::new(),
            given: 0,
            begun: false,
            again: Vec::new(),
        }
    }

    /// Takes the answer's next piece, cut anywhere between two characters.
    pub fn push(&mut self, piece: &str) -> Vec<Delta> {
        let mut out = Vec::new();
        let mut rest = piece;
        while self.place != Place::Ended {
            if self.again.is_empty() && self.held.is_empty() {
                rest = self.plain(rest, &mut out);
            }
            let c = match self.again.pop() {
                Some(c) => c,
                None => {
                    let mut chars = rest.chars();
                    let Some(c) = chars.next() else { break };
                    rest = chars.as_str();
                    c
                }
            };
            self.feed(c, &mut out);
        }
        out
    }

    /// The answer is over: what was held back. A parser that has finished takes nothing more.
    pub fn finish(&mut self) -> Vec<Delta> {
        let mut out = Vec::new();
        let held = self.held.take();
        match std::mem::replace(&mut self.place, Place::Ended) {
            Place::Opening { .. } => {
                delta::content(&mut out, &std::mem::take(&mut self.lead));
                delta::content(&mut out, &held);
            }
            Place::Reasoning { .. } => delta::reasoning(&mut out, &held),
            Place::Body => delta::content(&mut out, &held),
            // Half a closing marker belongs to the call that it would have closed.
            Place::Calls if self.begun => self.fail("", &mut out),
            Place::Calls => {
                let raw = std::mem::take(&mut self.raw);
                let framing = self.given > 0
                    && (raw.trim().is_empty() || self.run.as_ref().is_some_and(Run::may_leave));
                let partial = self.run.as_ref().map_or("", Run::partial).to_owned();
                self.fail(if framing { &partial } else { &raw }, &mut out);
            }
            Place::After | Place::Ended => {}
        }
        self.place = Place::Ended;
        out
    }

    /// Whether nothing more will come: the only call that was allowed is complete, and the generation can be
    /// cancelled.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.place == Place::Ended
    }

    /// How many calls have been given out whole.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.given
    }

    /// Gives out text in which no marker begins, at once; returns the rest.
    fn plain<'t>(&self, text: &'t str, out: &mut Vec<Delta>) -> &'t str {
        let first = |markers: &[Entry], byte: u8| {
            markers
                .iter()
                .any(|(marker, _)| marker.as_bytes()[0] == byte)
        };
        match self.place {
            Place::Body => {
                let end = text.bytes().position(|byte| first(&self.body, byte));
                let (plain, rest) = text.split_at(end.unwrap_or(text.len()));
                delta::content(out, plain);
                rest
            }
            Place::Reasoning { fresh: false } => {
                let closes = self.closes();
                let end = text
                    .bytes()
                    .position(|byte| closes.iter().any(|close| close.as_bytes()[0] == byte));
                let (plain, rest) = text.split_at(end.unwrap_or(text.len()));
                delta::reasoning(out, plain);
                rest
            }
            _ => text,
        }
    }

    fn closes(&self) -> &'static [&'static str] {
        self.dialect
            .thinking()
            .map_or(&[], |thinking| thinking.closes)
    }

    fn feed(&mut self, c: char, out: &mut Vec<Delta>) {
        match self.place {
            Place::Opening { reasoned } => self.opening(c, reasoned, out),
            Place::Reasoning { fresh: true } if c == '\n' => {}
            Place::Reasoning { .. } => self.reasoning(c, out),
            Place::Body => {
                let mut text = String::new();
                let found =
                    self.held
                        .push(c, self.body.iter().map(|(marker, _)| *marker), &mut text);
                delta::content(out, &text);
                if let Found::Marker(index) = found {
                    self.act(self.body[index]);
                }
            }
            Place::Calls => self.call(c, out),
            Place::After if c.is_whitespace() => {}
            Place::After => {
                self.place = Place::Body;
                self.again.push(c);
            }
            Place::Ended => {}
        }
    }

    fn reasoning(&mut self, c: char, out: &mut Vec<Delta>) {
        let closes = self.closes().iter().copied();
        let mut text = String::new();
        let found = self.held.push(c, closes, &mut text);
        delta::reasoning(out, &text);
        self.place = Place::Reasoning { fresh: false };
        if let Found::Marker(_) = found {
            let dropped = self
                .dialect
                .thinking()
                .map_or(&[][..], |thinking| thinking.dropped);
            self.body
                .extend(dropped.iter().map(|&text| (text, Act::Drop)));
            self.place = Place::Opening { reasoned: true };
        }
    }

    fn opening(&mut self, c: char, reasoned: bool, out: &mut Vec<Delta>) {
        if c.is_whitespace() && self.held.is_empty() && self.lead.len() < MAX_LEAD {
            if !(reasoned && self.lead.is_empty() && c == '\n') {
                self.lead.push(c);
            }
            return;
        }
        let entries = if reasoned {
            &self.reasoned
        } else {
            &self.opening
        };
        let mut text = String::new();
        match self
            .held
            .push(c, entries.iter().map(|(marker, _)| *marker), &mut text)
        {
            Found::Maybe => {}
            Found::Marker(index) => {
                let entry = entries[index];
                self.act(entry);
            }
            Found::Not => {
                self.place = Place::Body;
                delta::content(out, &std::mem::take(&mut self.lead));
                let held = self.held.take();
                self.again
                    .extend(held.chars().rev().chain(text.chars().rev()));
            }
        }
    }

    fn act(&mut self, (marker, act): Entry) {
        match act {
            Act::Reason => {
                self.lead.clear();
                self.place = Place::Reasoning { fresh: true };
            }
            Act::Drop => {}
            Act::Call(at, again) => {
                let Some(family) = self.dialect.family() else {
                    return;
                };
                self.raw = std::mem::take(&mut self.lead);
                if again {
                    self.again.extend(marker.chars().rev());
                } else {
                    self.raw.push_str(marker);
                }
                self.run = Some(Run::new(family.steps, at, &mut self.calls));
                self.place = Place::Calls;
            }
        }
    }

    fn call(&mut self, c: char, out: &mut Vec<Delta>) {
        let Some(run) = &mut self.run else { return };
        let outcome = run.push(c, &mut self.calls);
        let partial = run.partial().to_owned();
        let read = matches!(outcome, Outcome::Took | Outcome::Left | Outcome::Broken);
        if read {
            self.raw.push(c);
        } else {
            self.raw.truncate(self.raw.len() - partial.len());
            self.again.push(c);
            self.again.extend(partial.chars().rev());
        }
        if self.calls.ended() > self.given {
            self.calls.drain(out);
            self.given = self.calls.ended();
            self.begun = false;
            self.raw.clear();
            if !self.parallel {
                self.place = Place::Ended;
                return;
            }
        } else if self.release == Release::Early && self.calls.is_open() {
            self.calls.drain(out);
            self.begun = true;
            self.raw.clear();
            if outcome == Outcome::Took {
                self.raw.push_str(&partial);
            }
        }
        match outcome {
            Outcome::Took if self.raw.len() <= MAX_CALL => {}
            Outcome::Left | Outcome::LeftBefore => {
                self.raw.clear();
                self.place = Place::After;
            }
            Outcome::Took | Outcome::Broken | Outcome::BrokenBefore => {
                let raw = std::mem::take(&mut self.raw);
                self.fail(&raw, out);
            }
        }
    }

    /// What was taken for a call is none (or, where its beginning was given out, no whole one).
    fn fail(&mut self, raw: &str, out: &mut Vec<Delta>) {
        if std::mem::take(&mut self.begun) {
            self.calls.end(false);
            self.calls.drain(out);
            self.given = self.calls.ended();
        } else {
            self.calls.forget();
        }
        delta::content(out, raw);
        self.place = Place::Body;
    }
}

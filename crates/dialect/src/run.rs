//! Reads calls by a family's steps, character by character.

use crate::calls::Calls;
use crate::json::{Json, JsonScan};
use crate::marker::{Found, Held};
use crate::object::Object;
use crate::python::Python;
use crate::step::{Go, Progress, Step};
use crate::tools::is_name_char;
use crate::value::Value;

/// The longest name or id.
const MAX_WORD: usize = 128;
/// The longest name of an argument.
const MAX_KEY: usize = 256;

/// What a character did to a run of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It belongs to the calls.
    Took,
    /// It belongs to the calls and is their last.
    Left,
    /// The calls were over before it and before [`Run::partial`].
    LeftBefore,
    /// It is the last of what is no call.
    Broken,
    /// What came before it and before [`Run::partial`] is no call.
    BrokenBefore,
}

/// A run of calls that is being read.
#[derive(Debug)]
pub(crate) struct Run {
    steps: &'static [Step],
    at: usize,
    state: State,
    /// The name that was read for the call to come.
    name: String,
}

/// Of the step that is being read.
#[derive(Debug)]
enum State {
    Space,
    /// What has come of the step's text, name or id.
    Text(String),
    Arguments(Option<JsonScan>),
    Object(Object),
    Key(String, Held),
    Value(Value),
    Python(Python),
}

/// Where a character led.
enum Move {
    Stay,
    To(usize),
    /// There, where it is read again.
    Again(usize),
    Out(Outcome),
}

impl Run {
    /// Reads from step `at` on.
    pub(crate) fn new(steps: &'static [Step], at: usize, calls: &mut Calls) -> Self {
        let mut run = Self {
            steps,
            at,
            state: State::Space,
            name: String::new(),
        };
        let known = run.settle(calls);
        debug_assert!(known, "a run begins before its first call");
        run
    }

    /// Takes a character.
    pub(crate) fn push(&mut self, c: char, calls: &mut Calls) -> Outcome {
        loop {
            let (at, read) = match self.step(c, calls) {
                Move::Stay => return Outcome::Took,
                Move::Out(outcome) => return outcome,
                Move::To(at) => (at, true),
                Move::Again(at) => (at, false),
            };
            self.at = at;
            self.state = State::Space;
            match (self.settle(calls), read) {
                (true, true) => return Outcome::Took,
                (true, false) => {}
                (false, true) => return Outcome::Broken,
                (false, false) => return Outcome::BrokenBefore,
            }
        }
    }

    /// What has come of a text whose rest did not: it has to be read again as something else.
    pub(crate) fn partial(&self) -> &str {
        match (&self.state, self.steps[self.at]) {
            (State::Text(text), Step::Text(_) | Step::Branch(..)) => text,
            (State::Value(value), _) => value.held(),
            _ => "",
        }
    }

    /// Whether the calls may be over here, but for [`partial`](Self::partial).
    pub(crate) fn may_leave(&self) -> bool {
        let leaves = |at: usize| matches!(self.steps.get(at), Some(Step::Branch(_, Go::Leave)));
        leaves(self.at) || matches!(self.steps[self.at], Step::Space) && leaves(self.at + 1)
    }

    /// Takes all steps that need no character. False where the function is not known.
    fn settle(&mut self, calls: &mut Calls) -> bool {
        loop {
            self.at = match self.steps[self.at] {
                Step::Start if !calls.start(&self.name) => return false,
                Step::Go(at) => at,
                Step::Open => {
                    calls.json().push('{');
                    self.at + 1
                }
                Step::Close => {
                    calls.json().push('}');
                    self.at + 1
                }
                Step::End => {
                    calls.end(true);
                    self.at + 1
                }
                Step::Start => self.at + 1,
                step => {
                    self.state = begin(step, calls);
                    return true;
                }
            };
        }
    }

    fn step(&mut self, c: char, calls: &mut Calls) -> Move {
        let next = self.at + 1;
        match (self.steps[self.at], &mut self.state) {
            (Step::Space, _) if c.is_whitespace() => Move::Stay,
            (Step::Space, _) => Move::Again(next),
            (Step::Text(text), State::Text(seen)) => match reach(seen, c, text) {
                Some(true) => Move::To(next),
                Some(false) => Move::Stay,
                None => Move::Out(Outcome::BrokenBefore),
            },
            (Step::Branch(options, other), State::Text(seen)) => branch(seen, c, options, other),
            (Step::Name, State::Text(word)) => function(word, &mut self.name, c, next, calls),
            (Step::Id, State::Text(word)) if is_name_char(c) || c == '.' || c == ':' => {
                grow(word, c)
            }
            (Step::CallId, State::Text(word)) if is_name_char(c) => grow(word, c),
            (Step::Id | Step::CallId, State::Text(word)) if word.is_empty() => {
                Move::Out(Outcome::BrokenBefore)
            }
            (Step::Id, State::Text(word)) => {
                self.name = named(word).to_owned();
                calls.set_id(std::mem::take(word));
                Move::Again(next)
            }
            (Step::CallId, State::Text(word)) => {
                calls.set_id(std::mem::take(word));
                Move::Again(next)
            }
            (Step::Arguments, State::Arguments(scan)) => arguments(scan, c, next, calls),
            (Step::Object(_), State::Object(object)) => moved(object.push(c, calls), next),
            (Step::Key(end), State::Key(key, held)) => argument(key, held, c, end, next, calls),
            (Step::Value(end, lines), State::Value(value)) => {
                match value.push(c, end, lines, calls.json()) {
                    true => Move::To(next),
                    false => Move::Stay,
                }
            }
            (Step::Python, State::Python(python)) => moved(python.push(c, calls.json()), next),
            (step, state) => unreachable!("{step:?} is never read in {state:?}"),
        }
    }
}

/// A function's name, which goes to `name` when it is over.
fn function(word: &mut String, name: &mut String, c: char, next: usize, calls: &Calls) -> Move {
    if is_name_char(c) {
        word.push(c);
        if calls.begins(word) {
            return Move::Stay;
        }
        return Move::Out(Outcome::BrokenBefore);
    }
    if word.is_empty() {
        return Move::Out(Outcome::BrokenBefore);
    }
    *name = std::mem::take(word);
    Move::Again(next)
}

fn begin(step: Step, calls: &Calls) -> State {
    match step {
        Step::Text(_) | Step::Branch(..) | Step::Name | Step::Id | Step::CallId => {
            State::Text(String::new())
        }
        Step::Arguments => State::Arguments(None),
        Step::Object(first) => State::Object(Object::new(first)),
        Step::Key(_) => State::Key(String::new(), Held::default()),
        Step::Value(..) => State::Value(Value::new(calls.kinds())),
        Step::Python => State::Python(Python::new()),
        _ => State::Space,
    }
}

fn moved(progress: Progress, next: usize) -> Move {
    match progress {
        Progress::More => Move::Stay,
        Progress::Done => Move::To(next),
        Progress::Before => Move::Again(next),
        Progress::Broken => Move::Out(Outcome::BrokenBefore),
    }
}

/// Whether `seen` and `c` are `text` (true) or begin it (false); otherwise `seen` stays as it was.
fn reach(seen: &mut String, c: char, text: &str) -> Option<bool> {
    let begins = text
        .strip_prefix(seen.as_str())
        .is_some_and(|rest| rest.starts_with(c));
    begins.then(|| {
        seen.push(c);
        seen == text
    })
}

fn branch(seen: &mut String, c: char, options: &[(&str, Go)], other: Go) -> Move {
    seen.push(c);
    if let Some((_, go)) = options.iter().find(|(text, _)| text == seen) {
        return match *go {
            Go::To(at) => Move::To(at),
            Go::Peek(at) => Move::Again(at),
            Go::Leave => Move::Out(Outcome::Left),
            Go::Break => Move::Out(Outcome::Broken),
        };
    }
    if options
        .iter()
        .any(|(text, _)| text.starts_with(seen.as_str()))
    {
        return Move::Stay;
    }
    seen.pop();
    match other {
        Go::To(at) | Go::Peek(at) if seen.is_empty() => Move::Again(at),
        Go::Leave => Move::Out(Outcome::LeftBefore),
        _ => Move::Out(Outcome::BrokenBefore),
    }
}

fn grow(word: &mut String, c: char) -> Move {
    if word.len() == MAX_WORD {
        return Move::Out(Outcome::BrokenBefore);
    }
    word.push(c);
    Move::Stay
}

/// The name in `functions.NAME:NUMBER`.
fn named(id: &str) -> &str {
    let name = id.strip_prefix("functions.").unwrap_or(id);
    name.rsplit_once(':').map_or(name, |(name, _)| name)
}

fn arguments(scan: &mut Option<JsonScan>, c: char, next: usize, calls: &mut Calls) -> Move {
    if scan.is_none() && c != '{' {
        return Move::Out(Outcome::BrokenBefore);
    }
    match scan.get_or_insert_with(JsonScan::new).push(c) {
        Json::Before | Json::Invalid => Move::Out(Outcome::BrokenBefore),
        step => {
            calls.json().push(c);
            if step == Json::Done {
                Move::To(next)
            } else {
                Move::Stay
            }
        }
    }
}

/// The name of an argument.
fn argument(
    key: &mut String,
    held: &mut Held,
    c: char,
    end: &str,
    next: usize,
    calls: &mut Calls,
) -> Move {
    match held.push(c, std::iter::once(end), key) {
        Found::Marker(_) => {
            let key = key.trim();
            let fits = !key.is_empty() && calls.key(key);
            if fits {
                Move::To(next)
            } else {
                Move::Out(Outcome::Broken)
            }
        }
        _ if key.len() > MAX_KEY || key.contains(['<', '\n', '(']) => Move::Out(Outcome::Broken),
        _ => Move::Stay,
    }
}

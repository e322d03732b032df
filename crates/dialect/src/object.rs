//! A call as one JSON object: `{"name": ..., "arguments": {...}}`, its members in any order.

use crate::calls::Calls;
use crate::json::{Json, JsonScan};
use crate::step::Progress;

/// The longest name of a member that is read.
const MAX_KEY: usize = 256;

#[derive(Debug)]
pub(crate) struct Object {
    /// Names that the first member may have; empty: any.
    first: &'static [&'static str],
    at: At,
    /// The text of the key or the name that is being read.
    text: String,
    members: usize,
    named: bool,
    /// Arguments that came before the name.
    early: Option<String>,
    argued: bool,
}

#[derive(Debug)]
enum At {
    Open,
    KeyOrEnd,
    Key(JsonScan),
    Colon,
    Value,
    Name(JsonScan),
    Arguments(JsonScan),
    Other(JsonScan),
    After,
}

impl Object {
    pub(crate) fn new(first: &'static [&'static str]) -> Self {
        Self {
            first,
            at: At::Open,
            text: String::new(),
            members: 0,
            named: false,
            early: None,
            argued: false,
        }
    }

    pub(crate) fn push(&mut self, c: char, calls: &mut Calls) -> Progress {
        let space = matches!(c, ' ' | '\t' | '\n' | '\r');
        match &mut self.at {
            At::Key(scan) => {
                let step = scan.push(c);
                self.key(c, step)
            }
            At::Name(scan) => {
                let step = scan.push(c);
                self.name(c, step, calls)
            }
            At::Arguments(scan) => {
                let step = scan.push(c);
                self.arguments(c, step, calls)
            }
            At::Other(scan) => match scan.push(c) {
                Json::More => Progress::More,
                Json::Done => self.go(At::After),
                Json::Before => {
                    self.at = At::After;
                    self.push(c, calls)
                }
                Json::Invalid => Progress::Broken,
            },
            _ if space => Progress::More,
            At::Open if c == '{' => self.go(At::KeyOrEnd),
            At::KeyOrEnd if c == '"' => {
                self.text.clear();
                self.text.push(c);
                let mut scan = JsonScan::new();
                scan.push(c);
                self.go(At::Key(scan))
            }
            At::Colon if c == ':' => self.go(At::Value),
            At::Value => self.value(c, calls),
            At::After if c == ',' => self.go(At::KeyOrEnd),
            At::After if c == '}' && self.named && self.argued => {
                calls.end(true);
                Progress::Done
            }
            At::Open | At::KeyOrEnd | At::Colon | At::After => Progress::Broken,
        }
    }

    fn go(&mut self, at: At) -> Progress {
        self.at = at;
        Progress::More
    }

    fn key(&mut self, c: char, step: Json) -> Progress {
        self.text.push(c);
        match step {
            Json::More if self.text.len() <= MAX_KEY => Progress::More,
            Json::Done => {
                self.text = unquote(&self.text);
                self.members += 1;
                if self.members == 1
                    && !self.first.is_empty()
                    && !self.first.contains(&self.text.as_str())
                {
                    return Progress::Broken;
                }
                self.go(At::Colon)
            }
            _ => Progress::Broken,
        }
    }

    /// The first character of a member's value.
    fn value(&mut self, c: char, calls: &mut Calls) -> Progress {
        let scan = JsonScan::new();
        self.at = match self.text.as_str() {
            "name" if c == '"' && !self.named => At::Name(scan),
            "arguments" | "parameters" if c == '{' && !self.argued => At::Arguments(scan),
            "name" | "arguments" | "parameters" => return Progress::Broken,
            _ => At::Other(scan),
        };
        self.text.clear();
        self.push(c, calls)
    }

    fn name(&mut self, c: char, step: Json, calls: &mut Calls) -> Progress {
        self.text.push(c);
        match step {
            Json::More if self.text.len() <= MAX_KEY => Progress::More,
            Json::Done => {
                self.named = true;
                if !calls.start(&unquote(&self.text)) {
                    return Progress::Broken;
                }
                if let Some(early) = self.early.take() {
                    calls.json().push_str(&early);
                }
                self.go(At::After)
            }
            _ => Progress::Broken,
        }
    }

    fn arguments(&mut self, c: char, step: Json, calls: &mut Calls) -> Progress {
        if step == Json::Invalid {
            return Progress::Broken;
        }
        if self.named {
            calls.json().push(c);
        } else {
            self.early.get_or_insert_default().push(c);
        }
        if step == Json::Done {
            self.argued = true;
            return self.go(At::After);
        }
        Progress::More
    }
}

/// The text of a JSON string; nothing where it holds half a surrogate.
fn unquote(json: &str) -> String {
    serde_json::from_str(json).unwrap_or_default()
}

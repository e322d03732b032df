//! What has been understood of an answer's calls.

use crate::delta::Delta;
use crate::json::quote;
use crate::kind::Kinds;
use crate::tools::Tools;

/// The calls of one answer; one of them may be open.
#[derive(Debug)]
pub(crate) struct Calls {
    tools: Tools,
    /// Of the next call.
    index: usize,
    /// The id that the model gave to the call that has not begun yet.
    id: Option<String>,
    open: Option<Open>,
    /// What has not been taken.
    deltas: Vec<Delta>,
}

#[derive(Debug)]
struct Open {
    name: String,
    /// Arguments written so far, for families without JSON.
    keys: Vec<String>,
}

impl Calls {
    pub(crate) fn new(tools: Tools) -> Self {
        Self {
            tools,
            index: 0,
            id: None,
            open: None,
            deltas: Vec::new(),
        }
    }

    /// Whether a function's name begins so.
    pub(crate) fn begins(&self, start: &str) -> bool {
        self.tools.begins(start)
    }

    pub(crate) fn set_id(&mut self, id: String) {
        self.id = Some(id);
    }

    /// A call of `name` begins; false where there is no such function.
    pub(crate) fn start(&mut self, name: &str) -> bool {
        if self.tools.get(name).is_none() {
            return false;
        }
        self.open = Some(Open {
            name: name.to_owned(),
            keys: Vec::new(),
        });
        self.deltas.push(Delta::CallStart {
            index: self.index,
            id: self.id.take(),
            name: name.to_owned(),
        });
        true
    }

    /// Where JSON text of the open call's arguments goes.
    pub(crate) fn json(&mut self) -> &mut String {
        if !matches!(self.deltas.last(), Some(Delta::Arguments { .. })) {
            self.deltas.push(Delta::Arguments {
                index: self.index,
                json: String::new(),
            });
        }
        match self.deltas.last_mut() {
            Some(Delta::Arguments { json, .. }) => json,
            _ => unreachable!("arguments were pushed above"),
        }
    }

    /// An argument begins: its name goes to the JSON. False where it has been given before.
    pub(crate) fn key(&mut self, key: &str) -> bool {
        let Some(open) = &mut self.open else {
            return false;
        };
        if open.keys.iter().any(|known| known == key) {
            return false;
        }
        open.keys.push(key.to_owned());
        let first = open.keys.len() == 1;
        let json = self.json();
        if !first {
            json.push_str(", ");
        }
        quote(json, key);
        json.push_str(": ");
        true
    }

    /// What the argument that was begun last may be.
    pub(crate) fn kinds(&self) -> Kinds {
        let open = self.open.as_ref();
        let tool = open.and_then(|open| self.tools.get(&open.name));
        match (tool, open.and_then(|open| open.keys.last())) {
            (Some(tool), Some(key)) => tool.kinds(key),
            _ => Kinds::default(),
        }
    }

    /// The open call is over.
    pub(crate) fn end(&mut self, complete: bool) {
        if self.open.take().is_some() {
            let index = self.index;
            self.deltas.push(Delta::CallEnd { index, complete });
            self.index += 1;
        }
    }

    /// Forgets a call of which nothing has been taken.
    pub(crate) fn forget(&mut self) {
        self.open = None;
        self.id = None;
        self.deltas.clear();
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// How many have ended.
    pub(crate) fn ended(&self) -> usize {
        self.index
    }

    /// Moves everything understood to `out`.
    pub(crate) fn drain(&mut self, out: &mut Vec<Delta>) {
        for delta in self.deltas.drain(..) {
            match (out.last_mut(), delta) {
                (Some(Delta::Arguments { json, .. }), Delta::Arguments { json: more, .. }) => {
                    json.push_str(&more)
                }
                (_, delta) => out.push(delta),
            }
        }
    }
}

//! An argument that is written as plain text up to a closing tag.

use crate::json::escape;
use crate::kind::Kinds;
use crate::marker::{Found, Held};

#[derive(Debug)]
pub(crate) struct Value {
    kinds: Kinds,
    held: Held,
    /// Of what is not surely a string, all that has come.
    text: String,
    begun: bool,
}

impl Value {
    pub(crate) fn new(kinds: Kinds) -> Self {
        Self {
            kinds,
            held: Held::default(),
            text: String::new(),
            begun: false,
        }
    }

    /// Takes a character; JSON goes to `out`. True: one of `ends` is complete. With `line` a line break at the
    /// beginning does not belong to the text.
    pub(crate) fn push(
        &mut self,
        c: char,
        ends: &'static [&'static str],
        line: bool,
        out: &mut String,
    ) -> bool {
        let first = !std::mem::replace(&mut self.begun, true);
        if first && self.kinds.is_text() {
            out.push('"');
        }
        if first && line && c == '\n' {
            return false;
        }
        let mut released = String::new();
        let found = self.held.push(c, ends.iter().copied(), &mut released);
        let over = matches!(found, Found::Marker(_));
        if self.kinds.is_text() {
            released.chars().for_each(|c| escape(out, c));
            if over {
                out.push('"');
            }
        } else {
            self.text.push_str(&released);
            if over {
                self.kinds.convert(&self.text, out);
            }
        }
        over
    }

    /// What may belong to the closing tag.
    pub(crate) fn held(&self) -> &str {
        self.held.as_str()
    }
}

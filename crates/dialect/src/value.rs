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

    /// Takes a character; JSON goes to `out`. True: the closing tag `end` is complete. With `lines` a line
    /// break behind the opening and one before the closing tag do not belong to the text.
    pub(crate) fn push(&mut self, c: char, end: &str, lines: bool, out: &mut String) -> bool {
        let first = !std::mem::replace(&mut self.begun, true);
        if first && self.kinds.is_text() {
            out.push('"');
        }
        if first && lines && c == '\n' {
            return false;
        }
        let mut released = String::new();
        let found = if lines {
            self.closing(c, end, &mut released)
        } else {
            self.held.push(c, std::iter::once(end), &mut released)
        };
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

    /// A line break is held back, too, since it may stand before the tag.
    fn closing(&mut self, c: char, end: &str, released: &mut String) -> Found {
        let line = format!("\n{end}");
        self.held
            .push(c, [line.as_str(), end].into_iter(), released)
    }

    /// What may belong to the closing tag.
    pub(crate) fn held(&self) -> &str {
        self.held.as_str()
    }
}

//! A Python literal, turned into JSON character by character.

use crate::json::{MAX_DEPTH, escape, is_value};
use crate::step::Progress;

/// The longest number.
const MAX_NUMBER: usize = 64;

#[derive(Debug)]
pub(crate) struct Python {
    /// For each open container, whether it is a dictionary.
    open: Vec<bool>,
    at: At,
    /// The number or word that is being read.
    text: String,
    /// Whether a comma has to go before the next item.
    comma: bool,
}

#[derive(Debug, Clone, Copy)]
enum At {
    /// Before a value; `end`: a container may close instead.
    Value {
        end: bool,
    },
    /// Before a dictionary's key or its end.
    Key,
    Colon,
    After,
    Text {
        quote: char,
        key: bool,
    },
    Escape {
        quote: char,
        key: bool,
    },
    Code {
        quote: char,
        key: bool,
        left: u8,
        code: u32,
    },
    /// Half a surrogate pair has come; the other has to follow.
    Half {
        quote: char,
        key: bool,
        high: u32,
        seen: u8,
    },
    Number,
    Word,
}

impl Python {
    pub(crate) fn new() -> Self {
        Self {
            open: Vec::new(),
            at: At::Value { end: false },
            text: String::new(),
            comma: false,
        }
    }

    /// Takes a character; JSON goes to `out`.
    pub(crate) fn push(&mut self, c: char, out: &mut String) -> Progress {
        match self.at {
            At::Text { quote, key } => self.inside(c, quote, key, out),
            At::Escape { quote, key } => self.escape(c, quote, key, out),
            At::Code {
                quote,
                key,
                left,
                code,
            } => self.code(c, (quote, key), left, code, out),
            At::Half {
                quote,
                key,
                high,
                seen,
            } => self.half(c, (quote, key), high, seen),
            At::Number => self.number(c, out),
            At::Word => self.word(c, out),
            _ if c.is_ascii_whitespace() => Progress::More,
            At::Value { end } => self.value(c, end, out),
            At::Key if c == '}' => self.close(true, out),
            At::Key if c == '"' || c == '\'' => {
                self.item(out);
                out.push('"');
                self.go(At::Text {
                    quote: c,
                    key: true,
                })
            }
            At::Colon if c == ':' => {
                out.push_str(": ");
                self.comma = false;
                self.go(At::Value { end: false })
            }
            At::Key | At::Colon => Progress::Broken,
            At::After => self.after(c, out),
        }
    }

    fn go(&mut self, at: At) -> Progress {
        self.at = at;
        Progress::More
    }

    /// The comma before an item.
    fn item(&mut self, out: &mut String) {
        if std::mem::take(&mut self.comma) {
            out.push_str(", ");
        }
    }

    fn value(&mut self, c: char, end: bool, out: &mut String) -> Progress {
        if end && c == ']' {
            return self.close(false, out);
        }
        self.item(out);
        self.text.clear();
        match c {
            '"' | '\'' => {
                out.push('"');
                self.go(At::Text {
                    quote: c,
                    key: false,
                })
            }
            '{' | '[' if self.open.len() < MAX_DEPTH - 1 => {
                out.push(c);
                self.open.push(c == '{');
                self.go(if c == '{' {
                    At::Key
                } else {
                    At::Value { end: true }
                })
            }
            '0'..='9' | '-' => {
                self.text.push(c);
                self.go(At::Number)
            }
            'a'..='z' | 'A'..='Z' => {
                self.text.push(c);
                self.go(At::Word)
            }
            _ => Progress::Broken,
        }
    }

    fn after(&mut self, c: char, out: &mut String) -> Progress {
        match (c, self.open.last()) {
            (',', Some(dictionary)) => {
                let at = if *dictionary {
                    At::Key
                } else {
                    At::Value { end: true }
                };
                self.comma = true;
                self.go(at)
            }
            ('}', _) => self.close(true, out),
            (']', _) => self.close(false, out),
            _ => Progress::Broken,
        }
    }

    /// A comma before the end is Python's to have, not JSON's.
    fn close(&mut self, dictionary: bool, out: &mut String) -> Progress {
        if self.open.pop() != Some(dictionary) {
            return Progress::Broken;
        }
        self.comma = false;
        out.push(if dictionary { '}' } else { ']' });
        self.ended()
    }

    fn ended(&mut self) -> Progress {
        self.at = At::After;
        if self.open.is_empty() {
            Progress::Done
        } else {
            Progress::More
        }
    }

    fn inside(&mut self, c: char, quote: char, key: bool, out: &mut String) -> Progress {
        match c {
            '\\' => self.go(At::Escape { quote, key }),
            _ if c == quote => {
                out.push('"');
                if key {
                    self.go(At::Colon)
                } else {
                    self.ended()
                }
            }
            _ => {
                escape(out, c);
                Progress::More
            }
        }
    }

    fn escape(&mut self, c: char, quote: char, key: bool, out: &mut String) -> Progress {
        let digits = match c {
            'x' => 2,
            'u' => 4,
            'U' => 8,
            _ => 0,
        };
        if digits > 0 {
            return self.go(At::Code {
                quote,
                key,
                left: digits,
                code: 0,
            });
        }
        match c {
            'n' => escape(out, '\n'),
            't' => escape(out, '\t'),
            'r' => escape(out, '\r'),
            'b' => escape(out, '\x08'),
            'f' => escape(out, '\x0c'),
            'a' => escape(out, '\x07'),
            'v' => escape(out, '\x0b'),
            '0' => escape(out, '\0'),
            '\n' => {}
            '\\' | '\'' | '"' | '/' => escape(out, c),
            // Python keeps a backslash that means nothing.
            _ => {
                escape(out, '\\');
                escape(out, c);
            }
        }
        self.go(At::Text { quote, key })
    }

    fn code(
        &mut self,
        c: char,
        text: (char, bool),
        left: u8,
        code: u32,
        out: &mut String,
    ) -> Progress {
        let (quote, key) = text;
        let Some(digit) = c.to_digit(16) else {
            return Progress::Broken;
        };
        let Some(code) = code
            .checked_mul(16)
            .and_then(|code| code.checked_add(digit))
        else {
            return Progress::Broken;
        };
        if left > 1 {
            return self.go(At::Code {
                quote,
                key,
                left: left - 1,
                code,
            });
        }
        // The second half of a pair has its first above 16 bits (see `half`).
        let (high, low) = (code >> 16, code & 0xffff);
        if (0xd800..0xdc00).contains(&code) {
            return self.go(At::Half {
                quote,
                key,
                high: code,
                seen: 0,
            });
        }
        let joined = if (0xd800..0xdc00).contains(&high) {
            if !(0xdc00..0xe000).contains(&low) {
                return Progress::Broken;
            }
            0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00)
        } else {
            code
        };
        match char::from_u32(joined) {
            Some(c) => {
                escape(out, c);
                self.go(At::Text { quote, key })
            }
            None => Progress::Broken,
        }
    }

    /// `\u` has to follow; its digits are then read behind the first half.
    fn half(&mut self, c: char, text: (char, bool), high: u32, seen: u8) -> Progress {
        let (quote, key) = text;
        match (seen, c) {
            (0, '\\') => self.go(At::Half {
                quote,
                key,
                high,
                seen: 1,
            }),
            (1, 'u') => self.go(At::Code {
                quote,
                key,
                left: 4,
                code: high,
            }),
            _ => Progress::Broken,
        }
    }

    fn number(&mut self, c: char, out: &mut String) -> Progress {
        if c.is_ascii_alphanumeric() || matches!(c, '.' | '+' | '-') {
            self.text.push(c);
            return if self.text.len() <= MAX_NUMBER {
                Progress::More
            } else {
                Progress::Broken
            };
        }
        if !is_value(&self.text) {
            return Progress::Broken;
        }
        out.push_str(&self.text);
        self.before(c, out)
    }

    fn word(&mut self, c: char, out: &mut String) -> Progress {
        if c.is_ascii_alphanumeric() {
            self.text.push(c);
            return if self.text.len() <= 5 {
                Progress::More
            } else {
                Progress::Broken
            };
        }
        out.push_str(match self.text.as_str() {
            "True" | "true" => "true",
            "False" | "false" => "false",
            "None" | "null" => "null",
            _ => return Progress::Broken,
        });
        self.before(c, out)
    }

    /// A value ended before `c`.
    fn before(&mut self, c: char, out: &mut String) -> Progress {
        match self.ended() {
            Progress::Done => Progress::Before,
            _ => self.push(c, out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Option<String> {
        let mut python = Python::new();
        let mut out = String::new();
        let mut chars = text.chars().chain([')']);
        loop {
            match python.push(chars.next()?, &mut out) {
                Progress::More => {}
                Progress::Done => return (chars.next() == Some(')')).then_some(out),
                Progress::Before => return chars.next().is_none().then_some(out),
                Progress::Broken => return None,
            }
        }
    }

    #[test]
    fn literals_become_json() {
        for (python, expected) in [
            ("1", "1"),
            ("-1.5e3", "-1.5e3"),
            ("True", "true"),
            ("None", "null"),
            ("false", "false"),
            (r#""a""#, r#""a""#),
            (r#"'it "is"'"#, r#""it \"is\"""#),
            (r"'a\n\x41\u00e9\U0001F600\q'", "\"a\\nAé😀\\\\q\""),
            (r"'\ud83d\ude00'", "\"😀\""),
            ("[]", "[]"),
            ("[1, 'a', [None],]", r#"[1, "a", [null]]"#),
            ("{'a': 1, \"b\": {},}", r#"{"a": 1, "b": {}}"#),
        ] {
            assert_eq!(json(python).as_deref(), Some(expected), "{python}");
        }
    }

    #[test]
    fn what_is_no_literal_breaks() {
        for python in [
            "x",
            "f(1)",
            "1x",
            "[1",
            "]",
            "{1: 2}",
            "{'a'}",
            r"'\ud83d'",
            r"'\ud83dx'",
            r"'\U00110000'",
            "[1}",
            "01",
            "(1)",
            "[,]",
        ] {
            assert_eq!(json(python), None, "{python}");
        }
    }
}

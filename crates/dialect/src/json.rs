//! JSON, character by character: whether what has come can still become a value, and escaping.

/// How deep arrays and objects may nest. As in serde_json.
pub(crate) const MAX_DEPTH: usize = 127;

/// What a character did to a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Json {
    /// It belongs to the value, which goes on.
    More,
    /// It is the value's last.
    Done,
    /// The value ended before it (only numbers do).
    Before,
    /// No value has it here.
    Invalid,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Value,
    FirstItem,
    FirstKey,
    Key,
    Colon,
    AfterItem,
    Text { key: bool },
    Escape { key: bool },
    Hex { key: bool, left: u8 },
    Number(Number),
    Word(&'static str),
    Done,
}

#[derive(Debug, Clone, Copy)]
enum Number {
    Minus,
    Zero,
    Whole,
    Dot,
    Fraction,
    Exponent,
    Sign,
    Power,
}

/// Follows one JSON value (RFC 8259).
#[derive(Debug)]
pub(crate) struct JsonScan {
    /// For each open container, whether it is an object.
    open: Vec<bool>,
    state: State,
}

impl JsonScan {
    pub(crate) fn new() -> Self {
        Self {
            open: Vec::new(),
            state: State::Value,
        }
    }

    pub(crate) fn push(&mut self, c: char) -> Json {
        let space = matches!(c, ' ' | '\t' | '\n' | '\r');
        match self.state {
            State::Text { key } => self.text(c, key),
            State::Escape { key } => self.escape(c, key),
            State::Hex { key, left } => self.hex(c, key, left),
            State::Number(number) => self.number(c, number),
            State::Word(rest) => self.word(c, rest),
            State::Done => Json::Invalid,
            _ if space => Json::More,
            State::Value => self.value(c),
            State::FirstItem if c == ']' => self.close(false),
            State::FirstItem => self.value(c),
            State::FirstKey if c == '}' => self.close(true),
            State::FirstKey | State::Key if c == '"' => self.go(State::Text { key: true }),
            State::FirstKey | State::Key => Json::Invalid,
            State::Colon if c == ':' => self.go(State::Value),
            State::Colon => Json::Invalid,
            State::AfterItem => self.after_item(c),
        }
    }

    fn go(&mut self, state: State) -> Json {
        self.state = state;
        Json::More
    }

    fn value(&mut self, c: char) -> Json {
        match c {
            '"' => self.go(State::Text { key: false }),
            '{' => self.enter(true),
            '[' => self.enter(false),
            '-' => self.go(State::Number(Number::Minus)),
            '0' => self.go(State::Number(Number::Zero)),
            '1'..='9' => self.go(State::Number(Number::Whole)),
            't' => self.go(State::Word("rue")),
            'f' => self.go(State::Word("alse")),
            'n' => self.go(State::Word("ull")),
            _ => Json::Invalid,
        }
    }

    fn enter(&mut self, object: bool) -> Json {
        if self.open.len() == MAX_DEPTH {
            return Json::Invalid;
        }
        self.open.push(object);
        self.go(if object {
            State::FirstKey
        } else {
            State::FirstItem
        })
    }

    fn close(&mut self, object: bool) -> Json {
        if self.open.pop() == Some(object) {
            self.ended()
        } else {
            Json::Invalid
        }
    }

    /// A value is over; perhaps all of it.
    fn ended(&mut self) -> Json {
        if self.open.is_empty() {
            self.state = State::Done;
            Json::Done
        } else {
            self.go(State::AfterItem)
        }
    }

    fn after_item(&mut self, c: char) -> Json {
        match (c, self.open.last()) {
            (',', Some(true)) => self.go(State::Key),
            (',', Some(false)) => self.go(State::Value),
            ('}', _) => self.close(true),
            (']', _) => self.close(false),
            _ => Json::Invalid,
        }
    }

    fn text(&mut self, c: char, key: bool) -> Json {
        match c {
            '\\' => self.go(State::Escape { key }),
            '"' if key => self.go(State::Colon),
            '"' => self.ended(),
            '\0'..='\x1f' => Json::Invalid,
            _ => Json::More,
        }
    }

    fn escape(&mut self, c: char, key: bool) -> Json {
        match c {
            'u' => self.go(State::Hex { key, left: 4 }),
            '"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't' => self.go(State::Text { key }),
            _ => Json::Invalid,
        }
    }

    fn hex(&mut self, c: char, key: bool, left: u8) -> Json {
        match (c.is_ascii_hexdigit(), left) {
            (true, 1) => self.go(State::Text { key }),
            (true, _) => self.go(State::Hex {
                key,
                left: left - 1,
            }),
            (false, _) => Json::Invalid,
        }
    }

    fn word(&mut self, c: char, rest: &'static str) -> Json {
        match rest.strip_prefix(c) {
            Some("") => self.ended(),
            Some(rest) => self.go(State::Word(rest)),
            None => Json::Invalid,
        }
    }

    fn number(&mut self, c: char, number: Number) -> Json {
        use Number::{Dot, Exponent, Fraction, Minus, Power, Sign, Whole, Zero};
        let next = match (number, c) {
            (Minus, '0') => Zero,
            (Minus, '1'..='9') | (Whole, '0'..='9') => Whole,
            (Zero | Whole, '.') => Dot,
            (Dot | Fraction, '0'..='9') => Fraction,
            (Zero | Whole | Fraction, 'e' | 'E') => Exponent,
            (Exponent, '+' | '-') => Sign,
            (Exponent | Sign | Power, '0'..='9') => Power,
            (Minus | Dot | Exponent | Sign, _) => return Json::Invalid,
            (Zero | Whole | Fraction | Power, _) => return self.after_number(c),
        };
        self.go(State::Number(next))
    }

    fn after_number(&mut self, c: char) -> Json {
        match self.ended() {
            Json::Done => Json::Before,
            _ => self.push(c),
        }
    }
}

/// Whether all of `text` is one value.
pub(crate) fn is_value(text: &str) -> bool {
    let mut scan = JsonScan::new();
    let mut chars = text.chars();
    let last = chars
        .by_ref()
        .map(|c| scan.push(c))
        .find(|step| *step != Json::More);
    match last {
        Some(Json::Done) => chars.next().is_none(),
        Some(_) => false,
        // Only what follows tells that a number is over.
        None => scan.push(' ') == Json::Before,
    }
}

/// Appends `c` as it stands in a JSON string.
pub(crate) fn escape(out: &mut String, c: char) {
    match c {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\0'..='\x1f' => {
            const DIGITS: &[u8; 16] = b"0123456789abcdef";
            let code = c as usize;
            out.push_str("\\u00");
            out.push(DIGITS[code >> 4].into());
            out.push(DIGITS[code & 15].into());
        }
        _ => out.push(c),
    }
}

/// Appends `text` as a JSON string.
pub(crate) fn quote(out: &mut String, text: &str) {
    out.push('"');
    text.chars().for_each(|c| escape(out, c));
    out.push('"');
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_serde_json_takes_it_takes() {
        for text in [
            "{}",
            r#"{"a": [1, -2.5e+3, 0, "x\u00e9\n", true, false, null, {}], "b":{}}"#,
            "[]",
            r#""a""#,
        ] {
            assert!(is_value(text), "{text}");
        }
        for text in [
            "{",
            "{,}",
            "[1,]",
            "{\"a\" 1}",
            "[01]",
            "[1.]",
            "[+1]",
            "\"\n\"",
            "[tru]",
            "}",
            "[}",
            "{\"a\":1]",
            "\"\\x\"",
            "[1e]",
            "[-]",
        ] {
            assert!(!is_value(text), "{text}");
        }
    }

    #[test]
    fn depth_is_bounded() {
        assert!(is_value(&("[".repeat(127) + &"]".repeat(127))));
        assert!(!is_value(&("[".repeat(128) + &"]".repeat(128))));
    }

    proptest! {
        /// But for numbers that are too large for serde_json.
        #[test]
        fn it_agrees_with_serde_json(text in r#"\[[\[\]{}:,"\\a0-2eE.+ truefalsn-]{0,12}\]"#) {
            let known = match serde_json::from_str::<serde_json::Value>(&text) {
                Ok(_) => true,
                Err(error) => error.to_string().starts_with("number out of range"),
            };
            prop_assert_eq!(is_value(&text), known, "{}", text);
        }

        #[test]
        fn a_quoted_text_reads_back(text in any::<String>()) {
            let mut quoted = String::new();
            quote(&mut quoted, &text);
            prop_assert_eq!(serde_json::from_str::<String>(&quoted).ok(), Some(text));
        }
    }
}

//! Rules of a grammar that is being written, in llguidance's dialect of Lark.

use std::fmt::Write as _;

use crate::grammar::Decoding;
use crate::thinking::Thinking;

/// Rules, one a line.
pub(crate) struct Rules<'a> {
    text: String,
    pub(crate) decoding: &'a Decoding<'a>,
}

impl<'a> Rules<'a> {
    pub(crate) const fn new(decoding: &'a Decoding<'a>) -> Self {
        let text = String::new();
        Self { text, decoding }
    }

    pub(crate) fn into_text(self) -> String {
        self.text
    }

    pub(crate) fn rule(&mut self, name: &str, body: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{name}: {body}");
    }

    pub(crate) fn marker(&self, marker: &str) -> String {
        match (self.decoding.special)(marker) {
            Some(id) => format!("<[{id}]>"),
            None => quote(marker),
        }
    }

    /// How an answer begins before what it is held to.
    pub(crate) fn reasoning(&mut self, thinking: Option<&'static Thinking>) -> String {
        self.rule("TEXT", "/(?s:.*)/");
        self.rule("SPACE", "/[ \\n]{1,4}/");
        let Some(thinking) = thinking else {
            return String::new();
        };
        let mut ends = Vec::new();
        for (index, close) in thinking.closes.iter().enumerate() {
            if let Some(id) = (self.decoding.special)(close) {
                self.rule(&format!("thought_{index}"), &format!("TEXT <[{id}]>"));
            } else {
                self.rule(
                    &format!("thought_{index}[lazy]"),
                    &format!("TEXT {}", quote(close)),
                );
            }
            ends.push(format!("thought_{index}"));
        }
        self.rule("thought", &format!("({}) SPACE?", ends.join(" | ")));
        if self.decoding.reasoning {
            return "thought".to_owned();
        }
        let opens: Vec<String> = thinking
            .opens
            .iter()
            .map(|open| self.marker(open))
            .collect();
        format!("(SPACE? ({}) thought)?", opens.join(" | "))
    }
}

/// A regular expression as Lark has it: between slashes, on one line.
pub(crate) fn pattern(regex: &str) -> String {
    let mut quoted = String::from("/");
    let mut escaped = false;
    for c in regex.chars() {
        match c {
            '/' if !escaped => quoted.push_str("\\/"),
            '\n' if !escaped => quoted.push_str("\\n"),
            '\n' => quoted.push('n'),
            _ => quoted.push(c),
        }
        escaped = c == '\\' && !escaped;
    }
    quoted.push('/');
    quoted
}

/// A text as Lark has it.
pub(crate) fn quote(text: &str) -> String {
    let mut quoted = String::new();
    crate::json::quote(&mut quoted, text);
    quoted
}

#[cfg(test)]
mod tests {
    use super::pattern;

    #[test]
    fn a_regular_expression_ends_at_its_own_end() {
        for (regex, lark) in [
            ("a/b", r"/a\/b/"),
            (r"a\/b", r"/a\/b/"),
            (r"a\\/b", r"/a\\\/b/"),
            ("a\nb", r"/a\nb/"),
            ("a\\\nb", r"/a\nb/"),
        ] {
            assert_eq!(pattern(regex), lark, "{regex}");
        }
    }
}

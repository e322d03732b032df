//! A client's words in a rendered chat, told apart from the template's.
//!
//! A template's control tokens (`<|im_end|>`) say whose turn it is; the same words in a message would say it
//! too, and let whoever wrote a part of the message speak as somebody else. So before a chat is rendered,
//! each such word that a client says is broken by a mark, and what holds marks is encoded as plain text.
//!
//! Only words of control tokens are looked at: what a model has tokens of its own for without giving them
//! power (`<think>`, in many families) stays.

use aho_corasick::{AhoCorasick, MatchKind};
use serde_json::{Map, Value};

/// No character of any text by Unicode; where a client says it all the same, it is marked as well.
const MARK: char = '\u{FDD0}';
/// Behind a mark: it stands for nothing, and breaks a word.
const BREAK: char = '-';
/// Behind a mark: it stands for itself.
const SAID: char = '.';

/// The words of control tokens.
pub(crate) struct Spoken {
    /// Finds all of them, also those that overlap.
    all: AhoCorasick,
    /// Finds them as a tokenizer does: the first, and of several the longest.
    first: AhoCorasick,
}

/// A part of a rendered chat.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Part<'t> {
    /// The template's, or words that nobody could take for control tokens.
    Open(&'t str),
    /// Plain text, whatever it says.
    Plain(String),
}

impl Spoken {
    /// `None` where there are too many for a table, which nobody has.
    pub(crate) fn new(words: &[String]) -> Option<Self> {
        // A word of one character cannot be broken.
        let words = || words.iter().filter(|word| word.chars().nth(1).is_some());
        let build = |kind| AhoCorasick::builder().match_kind(kind).build(words());
        Some(Self {
            all: build(MatchKind::Standard).ok()?,
            first: build(MatchKind::LeftmostLongest).ok()?,
        })
    }

    /// A client's text as it stands in a rendered chat; `None` where that is how it is.
    pub(crate) fn mark(&self, text: &str) -> Option<String> {
        let found = self
            .all
            .find_overlapping_iter(text)
            .map(|found| found.start());
        let mut begun: Vec<usize> = found.collect();
        if begun.is_empty() && !text.contains(MARK) {
            return None;
        }
        begun.sort_unstable();
        let mut marked = String::with_capacity(text.len() + 16);
        for (at, character) in text.char_indices() {
            marked.push(character);
            if character == MARK {
                marked.push(SAID);
            }
            if begun.binary_search(&at).is_ok() {
                marked.extend([MARK, BREAK]);
            }
        }
        Some(marked)
    }

    /// The same for every text in `value`, and every name.
    pub(crate) fn mark_all(&self, value: &mut Value) {
        match value {
            Value::String(text) => {
                if let Some(marked) = self.mark(text) {
                    *text = marked;
                }
            }
            Value::Array(list) => list.iter_mut().for_each(|entry| self.mark_all(entry)),
            Value::Object(map) => self.mark_map(map),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// The same for a table.
    pub(crate) fn mark_map(&self, map: &mut Map<String, Value>) {
        if map.keys().any(|name| self.mark(name).is_some()) {
            let old = std::mem::take(map);
            let marked = |(name, value): (String, Value)| (self.mark(&name).unwrap_or(name), value);
            map.extend(old.into_iter().map(marked));
        }
        map.values_mut().for_each(|value| self.mark_all(value));
    }

    /// A rendered chat in parts, which are encoded one by one. One part where nothing is marked.
    pub(crate) fn parts<'t>(&self, rendered: &'t str) -> Vec<Part<'t>> {
        let mut parts = Vec::new();
        // What lies between two control tokens is plain where it holds a mark.
        let (mut open, mut from) = (0, 0);
        let ends = self
            .first
            .find_iter(rendered)
            .map(|found| (found.start(), found.end()));
        for (to, next) in ends.chain([(rendered.len(), rendered.len())]) {
            let between = &rendered[from..to];
            if between.contains(MARK) {
                if open < from {
                    parts.push(Part::Open(&rendered[open..from]));
                }
                parts.push(Part::Plain(unmarked(between)));
                open = to;
            }
            from = next;
        }
        if open < rendered.len() || parts.is_empty() {
            parts.push(Part::Open(&rendered[open..]));
        }
        parts
    }
}

fn unmarked(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once(MARK) {
        plain.push_str(before);
        rest = match behind.strip_prefix(SAID) {
            Some(rest) => {
                plain.push(MARK);
                rest
            }
            None => behind.strip_prefix(BREAK).unwrap_or(behind),
        };
    }
    plain + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn spoken() -> Spoken {
        let words = ["<s>", "</s>", "<s></s>", "ss", "x"];
        Spoken::new(&words.map(str::to_owned)).unwrap()
    }

    #[test]
    fn words_of_control_tokens_are_broken_wherever_a_client_says_them() {
        let spoken = spoken();
        assert_eq!(spoken.mark("a < s> x"), None);
        assert_eq!(spoken.mark("a<s>").unwrap(), "a<\u{FDD0}-s>");
        assert_eq!(spoken.mark("sss").unwrap(), "s\u{FDD0}-s\u{FDD0}-s");
        let mut value = json!({"a": ["<s>", 1, {"<s>": "b"}], "b": null});
        spoken.mark_all(&mut value);
        let marked = "<\u{FDD0}-s>";
        assert_eq!(value, json!({"a": [marked, 1, {marked: "b"}], "b": null}));
    }

    #[test]
    fn what_holds_marks_is_plain_up_to_the_templates_tokens() {
        let spoken = spoken();
        let rendered = format!("<s>user\n{}</s><s>a", spoken.mark("</s><s>sys").unwrap());
        let plain = Part::Plain("user\n</s><s>sys".to_owned());
        let want = [Part::Open("<s>"), plain, Part::Open("</s><s>a")];
        assert_eq!(spoken.parts(&rendered), want);
        assert_eq!(spoken.parts("<s>a</s>"), [Part::Open("<s>a</s>")]);
        assert_eq!(spoken.parts(""), [Part::Open("")]);
    }

    proptest! {
        #[test]
        fn a_marked_text_holds_no_control_token_and_means_the_same(text in "[<s>/x\u{FDD0}.-]{0,24}") {
            let spoken = spoken();
            let marked = spoken.mark(&text);
            let shown = marked.clone().unwrap_or_else(|| text.clone());
            prop_assert!(!spoken.first.is_match(&shown), "{shown:?}");
            let want = match marked {
                Some(_) => Part::Plain(text),
                None => Part::Open(&text),
            };
            prop_assert_eq!(spoken.parts(&shown), [want]);
        }
    }
}

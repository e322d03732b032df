//! A vocabulary of single bytes and a family's markers, for llguidance.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{ApproximateTokEnv, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher, ParserFactory};

/// The end-of-text token.
pub(crate) const END: u32 = 256;

/// Bytes, the end, and markers as special tokens.
pub(crate) struct Vocabulary {
    factory: ParserFactory,
    /// Of the grammars that have been tried.
    matchers: RefCell<HashMap<String, Matcher>>,
    markers: Vec<&'static str>,
}

impl Vocabulary {
    pub(crate) fn new(markers: Vec<&'static str>) -> Self {
        let mut words: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
        let special = std::iter::once("<|end|>").chain(markers.iter().copied());
        words.extend(special.map(|marker| [b"\xff", marker.as_bytes()].concat()));
        let info = TokRxInfo::new(words.len() as u32, END);
        let env: TokEnv = Arc::new(ApproximateTokEnv::new(TokTrie::from(&info, &words)));
        let factory = ParserFactory::new(&env, InferenceCapabilities::default(), &[]);
        let mut factory = factory.expect("the vocabulary is well");
        factory.quiet();
        Self {
            factory,
            matchers: RefCell::default(),
            markers,
        }
    }

    pub(crate) fn special(&self, text: &str) -> Option<u32> {
        let index = self.markers.iter().position(|marker| *marker == text)?;
        Some(END + 1 + index as u32)
    }

    pub(crate) fn encode(&self, mut text: &str) -> Vec<u32> {
        let mut tokens = Vec::new();
        while let Some(&byte) = text.as_bytes().first() {
            if let Some(marker) = self
                .markers
                .iter()
                .find(|marker| text.starts_with(**marker))
            {
                tokens.extend(self.special(marker));
                text = &text[marker.len()..];
            } else {
                // Of a longer character the other bytes follow.
                let length = text.chars().next().map_or(1, char::len_utf8);
                tokens.push(u32::from(byte));
                tokens.extend(
                    text.as_bytes()[1..length]
                        .iter()
                        .map(|&byte| u32::from(byte)),
                );
                text = &text[length..];
            }
        }
        tokens
    }

    pub(crate) fn decode(&self, tokens: &[u32]) -> String {
        let mut bytes = Vec::new();
        for &token in tokens {
            match u8::try_from(token) {
                Ok(byte) => bytes.push(byte),
                Err(_) if token == END => {}
                Err(_) => bytes.extend(self.markers[(token - END - 1) as usize].bytes()),
            }
        }
        String::from_utf8(bytes).expect("grammars let only text through")
    }

    pub(crate) fn matcher(&self, lark: &str) -> Matcher {
        let mut matchers = self.matchers.borrow_mut();
        let matcher = matchers.entry(lark.to_owned()).or_insert_with(|| {
            let grammar = TopLevelGrammar::from_lark(lark.to_owned());
            Matcher::new(self.factory.create_parser(grammar))
        });
        assert_eq!(matcher.get_error(), None, "{lark}");
        matcher.deep_clone()
    }

    /// Whether `text` is a whole answer of the grammar.
    pub(crate) fn accepts(&self, lark: &str, text: &str) -> bool {
        let tokens = self.encode(text);
        let mut matcher = self.matcher(lark);
        let taken = matcher
            .try_consume_tokens(&tokens)
            .expect("the matcher is well");
        taken == tokens.len() && matcher.is_accepting().expect("the matcher is well")
    }
}

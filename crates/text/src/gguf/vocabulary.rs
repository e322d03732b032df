//! The tokens of a GGUF file: their texts and types.

use tokenizers::AddedToken;
use tokenizers::models::bpe::Vocab;

use super::metadata::{Metadata, integer};
use crate::error::TextError;
use crate::pieces::{MAX_VOCABULARY, Pieces, byte_level};

/// `tokenizer.ggml.token_type`, as far as it matters.
const UNKNOWN: i64 = 2;
const CONTROL: i64 = 3;
const USER_DEFINED: i64 = 4;
const UNUSED: i64 = 5;

/// Control tokens that end an answer in the families that use them, whatever the file names as its
/// one `eos_token_id` (a chat's turn and a document's end are two tokens). From llama.cpp.
const END_TEXTS: [&str; 8] = [
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<|end|>",
    "<end_of_turn>",
    "</s>",
];

/// The vocabulary: each token's text and type.
pub(super) struct Tokens<'a> {
    texts: Vec<&'a str>,
    types: Vec<i64>,
}

impl<'a> Tokens<'a> {
    pub(super) fn read(metadata: &'a Metadata) -> Result<Self, TextError> {
        let texts = metadata.texts("tokenizer.ggml.tokens")?;
        let types = metadata.array("tokenizer.ggml.token_type")?;
        let types: Vec<i64> = types.iter().filter_map(integer).collect();
        if texts.is_empty() || texts.len() != types.len() || texts.len() >= MAX_VOCABULARY as usize
        {
            let (texts, types) = (texts.len(), types.len());
            return Err(metadata.damaged(format!("{texts} tokens, {types} token types")));
        }
        Ok(Self { texts, types })
    }

    fn iter(&self) -> impl Iterator<Item = (&'a str, i64)> {
        self.texts.iter().copied().zip(self.types.iter().copied())
    }

    pub(super) fn text(&self, token: Option<u32>) -> Option<&'a str> {
        self.texts.get(token? as usize).copied()
    }

    pub(super) fn pieces(&self) -> Pieces {
        let mut pieces = Pieces::default();
        for (text, kind) in self.iter() {
            match kind {
                UNKNOWN | CONTROL | UNUSED => pieces.push(text.as_bytes(), true),
                USER_DEFINED => pieces.push(text.as_bytes(), false),
                _ => pieces.push(&byte_level(text), false),
            }
        }
        pieces
    }

    /// Tokens that are found in a text as they stand, before it is cut into words.
    pub(super) fn added(&self) -> Vec<AddedToken> {
        self.iter()
            .filter(|(text, kind)| matches!(*kind, CONTROL | USER_DEFINED) && !text.is_empty())
            .map(|(text, kind)| AddedToken::from(text, kind == CONTROL).normalized(false))
            .collect()
    }

    /// The vocabulary as the byte-pair encoder wants it.
    pub(super) fn ids(&self) -> Vocab {
        (0..)
            .zip(&self.texts)
            .map(|(id, text)| ((*text).to_owned(), id))
            .collect()
    }

    /// The id that the file names for a role such as `eos`, if it does.
    pub(super) fn role(&self, metadata: &Metadata, role: &str) -> Result<Option<u32>, TextError> {
        let id = metadata.number(&format!("tokenizer.ggml.{role}_token_id"))?;
        match id {
            Some(id) if id as usize >= self.texts.len() => {
                Err(metadata.damaged(format!("{role}_token_id {id} is outside the vocabulary")))
            }
            _ => Ok(id),
        }
    }

    /// Every token that ends an answer, in ascending order.
    pub(super) fn ends(&self, metadata: &Metadata) -> Result<Vec<u32>, TextError> {
        let mut ends = Vec::new();
        for role in ["eos", "eot", "eom"] {
            ends.extend(self.role(metadata, role)?);
        }
        let control = (0..)
            .zip(self.iter())
            .filter(|(_, (_, kind))| *kind == CONTROL);
        ends.extend(
            control
                .filter(|(_, (text, _))| END_TEXTS.contains(text))
                .map(|(id, _)| id),
        );
        ends.sort_unstable();
        ends.dedup();
        Ok(ends)
    }
}

//! A model's tokens as llguidance wants them.

use std::sync::Arc;

use llguidance::toktrie::{ApproximateTokEnv, INVALID_TOKEN, TokEnv, TokRxInfo, TokTrie};
use tandem_text::TextModel;

use crate::ConstraintError;

/// Tokens that the trie has room for, at most.
const MOST: u32 = 1 << 21;
/// Bytes of a token, at most; a longer one is never part of a constrained answer.
const LONGEST: usize = 1000;

/// The tokens in a trie. Special tokens are apart from their text.
///
/// The environment says that it is no canonical tokenizer, so that no token is ever forced: which of
/// several ways to cut a text into tokens is taken is the model's choice, as it is without a constraint.
pub(crate) fn environment(text: &TextModel) -> Result<TokEnv, ConstraintError> {
    let size = text.vocabulary();
    if size == 0 || size >= MOST {
        let why = format!("a vocabulary of {size} tokens");
        return Err(ConstraintError::Unusable(why));
    }
    let word = |token| {
        let mut bytes = text.token_bytes(token);
        if text.is_special(token) && !bytes.is_empty() {
            bytes.insert(0, TokTrie::SPECIAL_TOKEN_MARKER);
        }
        if bytes.len() > LONGEST {
            bytes.clear();
        }
        bytes
    };
    let words: Vec<Vec<u8>> = (0..size).map(word).collect();
    let ends: Vec<u32> = text.end_tokens().to_vec();
    let info = TokRxInfo::new(size, ends.first().copied().unwrap_or(INVALID_TOKEN));
    let mut trie = TokTrie::from(&info, &words);
    if !ends.is_empty() {
        trie = trie.with_eos_tokens(&ends);
    }
    Ok(Arc::new(ApproximateTokEnv::new(trie)))
}

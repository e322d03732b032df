//! The ways a byte-level vocabulary cuts text into words before it merges bytes.
//!
//! Names are those of GGUF's `tokenizer.ggml.pre`, which llama.cpp coined; what they mean is taken
//! from the `tokenizer.json` of the model family, and for `default` from llama.cpp
//! (`src/llama-vocab.cpp`).

use tokenizers::normalizers::NFC;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{PreTokenizerWrapper, SplitDelimiterBehavior};

const LLAMA_3: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
const QWEN_2: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
const DEFAULT: [&str; 4] = [
    r"[\p{P}\$\+<=>\^~\|]+",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)",
    r"\p{N}+",
    r"[0-9][0-9][0-9]",
];

/// A known pre-tokenizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PreTokenizer {
    /// GPT-2's words.
    Gpt2,
    /// Each digit alone, then GPT-2's words.
    SmolLm,
    /// Llama 3: digits by three; whole words of the vocabulary are not merged anew.
    Llama3,
    /// Qwen 2: each digit alone, text in normal form C.
    Qwen2,
    /// llama.cpp's own, for files that name none of the others.
    Default,
}

impl PreTokenizer {
    /// The pre-tokenizer of this name, if it is known.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "gpt-2" => Self::Gpt2,
            "smollm" => Self::SmolLm,
            "llama-bpe" | "llama3" | "llama-v3" => Self::Llama3,
            "qwen2" | "deepseek-r1-qwen" => Self::Qwen2,
            "default" => Self::Default,
            _ => return None,
        })
    }

    /// Whether a word of the vocabulary is one token, whatever the merges say.
    pub(crate) fn ignores_merges(self) -> bool {
        self == Self::Llama3
    }

    /// Whether a text begins with the begin token where the file does not say (llama.cpp).
    pub(crate) fn adds_begin(self) -> bool {
        self == Self::Llama3
    }

    /// What is done to the text before it is cut.
    pub(crate) fn normalizer(self) -> Option<NFC> {
        (self == Self::Qwen2).then_some(NFC)
    }

    /// The cutting itself. The error is the regular expression's.
    pub(crate) fn build(self) -> tokenizers::Result<PreTokenizerWrapper> {
        let words = PreTokenizerWrapper::from(ByteLevel::new(false, true, true));
        let mut steps = match self {
            Self::Gpt2 => return Ok(words),
            Self::SmolLm => {
                let steps = vec![Digits::new(true).into(), words];
                return Ok(Sequence::new(steps).into());
            }
            Self::Llama3 => vec![split(LLAMA_3)?],
            Self::Qwen2 => vec![split(QWEN_2)?],
            Self::Default => DEFAULT.into_iter().map(split).collect::<Result<_, _>>()?,
        };
        steps.push(ByteLevel::new(false, true, false).into());
        Ok(Sequence::new(steps).into())
    }
}

fn split(pattern: &str) -> tokenizers::Result<PreTokenizerWrapper> {
    let pattern = SplitPattern::Regex(pattern.to_owned());
    Ok(Split::new(pattern, SplitDelimiterBehavior::Isolated, false)?.into())
}

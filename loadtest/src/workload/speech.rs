//! Prompts of a wanted length: words that are one token each, or token ids.

use std::fmt;
use std::sync::LazyLock;

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use tandem_text::{ChatOptions, TextModel};

/// Words of everyday English, which the usual vocabularies hold as one token each.
const WORDS: &str = "the of and to in is that for it as was with be by on not he his but at are this have from \
    or had they which one you were her all she there would their we him been has when who will more no if out so \
    said what up its about into than them can only other new some could time these two may then do first any my \
    now such like our over man me even most made after also did many before must through back years where much \
    your way well down should because each just those people how too little state good very make world still own \
    see men work long get here between both life being under never day same another know while last might us \
    great old year off come since against go came right used take three states himself few house use during \
    without again place american around however home small found";

/// A prompt, or a part of one.
#[derive(Clone, Debug)]
pub enum Prompt {
    /// Words.
    Text(String),
    /// Token ids, for completions only.
    Ids(Vec<u32>),
    /// A conversation as the user's file has it.
    Messages(Vec<Value>),
}

/// What prompts are made of.
pub enum Speech {
    /// Words of the built-in list: about a token each, and the server's usage tells how many.
    Words,
    /// Words that this tokenizer makes one token of.
    Vocabulary(Vocabulary),
    /// Token ids from 256 up to this number.
    Ids(u32),
}

/// Words that are one token each, with and without a space before them.
pub struct Vocabulary {
    words: Vec<String>,
    /// Tokens that a completion's prompt has besides its words.
    around_completion: u32,
    /// The same of a chat of one message, for its template.
    around_chat: u32,
}

/// A tokenizer without enough plain words.
#[derive(Debug, thiserror::Error)]
#[error("the tokenizer has {found} plain words that are one token each, want {FEWEST} at least")]
pub struct TooFewWords {
    found: usize,
}

const FEWEST: usize = 64;
const MOST: usize = 4096;
/// Ids below are control tokens and bytes in the usual vocabularies.
const FIRST_ID: u32 = 256;

impl Vocabulary {
    /// The words of a tokenizer.
    ///
    /// # Errors
    ///
    /// [`TooFewWords`]: prompts would be of a few words over and over.
    pub fn of(model: &TextModel) -> Result<Self, TooFewWords> {
        let around_completion = model.encode("").len();
        let single = |text: &str| model.encode(text).len() == around_completion + 1;
        let words: Vec<String> = (0..model.vocabulary())
            .filter_map(|id| plain(&model.token_bytes(id)))
            .filter(|word| single(word) && single(&format!(" {word}")))
            .take(MOST)
            .collect();
        if words.len() < FEWEST {
            return Err(TooFewWords { found: words.len() });
        }
        let around_chat = around_chat(model, &words[0]).unwrap_or(0);
        Ok(Self {
            words,
            around_completion: around_completion as u32,
            around_chat,
        })
    }
}

/// A token that is a space and a short word of small letters, without the space.
fn plain(bytes: &[u8]) -> Option<String> {
    let word = bytes.strip_prefix(b" ")?;
    let plain = (2..=10).contains(&word.len()) && word.iter().all(u8::is_ascii_lowercase);
    plain.then(|| String::from_utf8_lossy(word).into_owned())
}

/// What the template adds to a message of one token.
fn around_chat(model: &TextModel, word: &str) -> Option<u32> {
    let messages = json!([{"role": "user", "content": word}]);
    let options = ChatOptions {
        add_generation_prompt: true,
        ..ChatOptions::default()
    };
    let text = model.render_chat(&messages, options).ok()?;
    Some(model.encode_rendered(&text).len() as u32 - 1)
}

impl Speech {
    /// A prompt without anything in it yet.
    pub(crate) fn empty(&self) -> Prompt {
        match self {
            Self::Ids(_) => Prompt::Ids(Vec::new()),
            Self::Words | Self::Vocabulary(_) => Prompt::Text(String::new()),
        }
    }

    /// Tokens that the server adds to a prompt, where they are known.
    pub(crate) fn around(&self, chat: bool) -> u32 {
        match self {
            Self::Vocabulary(known) if chat => known.around_chat,
            Self::Vocabulary(known) => known.around_completion,
            Self::Words | Self::Ids(_) => 0,
        }
    }

    /// Adds so many tokens.
    pub(crate) fn say(&self, prompt: &mut Prompt, tokens: u32, rng: &mut ChaCha8Rng) {
        match (self, prompt) {
            (Self::Ids(vocabulary), Prompt::Ids(ids)) => {
                ids.extend((0..tokens).map(|_| rng.random_range(FIRST_ID..*vocabulary)));
            }
            (Self::Words, Prompt::Text(text)) => say(text, &BUILT_IN, tokens, rng),
            (Self::Vocabulary(known), Prompt::Text(text)) => say(text, &known.words, tokens, rng),
            // A file's prompts are as they are.
            (_, _) => {}
        }
    }
}

static BUILT_IN: LazyLock<Vec<&str>> = LazyLock::new(|| WORDS.split_ascii_whitespace().collect());

fn say<W: AsRef<str>>(text: &mut String, words: &[W], tokens: u32, rng: &mut ChaCha8Rng) {
    for _ in 0..tokens {
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(words[rng.random_range(0..words.len())].as_ref());
    }
}

/// Least size of a vocabulary for [`Speech::Ids`].
pub const SMALLEST_VOCABULARY: u32 = 2 * FIRST_ID;

impl fmt::Debug for Speech {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Words => f.write_str("words"),
            Self::Vocabulary(known) => write!(f, "{} words of the tokenizer", known.words.len()),
            Self::Ids(vocabulary) => write!(f, "token ids below {vocabulary}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::{Purpose, stream};

    fn said(speech: &Speech, tokens: u32) -> Prompt {
        let mut prompt = speech.empty();
        speech.say(&mut prompt, tokens, &mut stream(1, Purpose::Unique, 0));
        prompt
    }

    #[test]
    fn words_and_ids_are_as_many_as_wanted() {
        let Prompt::Text(text) = said(&Speech::Words, 100) else {
            panic!("words")
        };
        assert_eq!(text.split(' ').count(), 100);
        let Prompt::Ids(ids) = said(&Speech::Ids(1000), 100) else {
            panic!("ids")
        };
        assert_eq!(ids.len(), 100);
        assert!(ids.iter().all(|id| (256..1000).contains(id)));
    }

    #[test]
    fn with_a_tokenizer_counts_are_exact_in_chats_and_completions() {
        let model = TextModel::load(&tandem_text::testing::model_file()).unwrap();
        let speech = Speech::Vocabulary(Vocabulary::of(&model).unwrap());
        for tokens in [1, 2, 60, 700] {
            let Prompt::Text(text) = said(&speech, tokens) else {
                panic!("words")
            };
            let completion = model.encode(&text).len() as u32;
            assert_eq!(completion, tokens + speech.around(false));
            let messages = json!([{"role": "user", "content": text}]);
            let options = ChatOptions {
                add_generation_prompt: true,
                ..ChatOptions::default()
            };
            let chat = model.render_chat(&messages, options).unwrap();
            let chat = model.encode_rendered(&chat).len() as u32;
            assert_eq!(chat, tokens + speech.around(true));
        }
    }
}

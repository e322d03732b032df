//! A model's tokenizer and chat template.

use std::borrow::Cow;
use std::path::Path;
use std::sync::OnceLock;

use serde_json::Value;
use tokenizers::{NormalizerWrapper, Tokenizer};

use crate::error::{TemplateError, TextError};
use crate::pieces::Pieces;
use crate::spoken::{Part, Spoken};
use crate::template::{ChatOptions, ChatTemplate};
use crate::{gguf, hub};

/// What a file or directory tells about a model's text.
pub(crate) struct Parts {
    pub(crate) tokenizer: Tokenizer,
    pub(crate) pieces: Pieces,
    pub(crate) begin: Option<u32>,
    pub(crate) end: Vec<u32>,
    pub(crate) template: Option<ChatTemplate>,
    pub(crate) context_length: Option<u32>,
}

/// A model's tokenizer, chat template and special tokens. Immutable; meant to be shared.
pub struct TextModel {
    parts: Parts,
    bytes_per_token: Option<usize>,
    spoken: Option<Spoken>,
    /// The tokenizer to which control tokens are words like others. Made when the first client says one.
    plain: OnceLock<Tokenizer>,
}

fn spoken(tokenizer: &Tokenizer) -> Option<Spoken> {
    let added = tokenizer.get_added_tokens_decoder();
    let special = added.values().filter(|token| token.special);
    let words: Vec<String> = special.map(|token| token.content.clone()).collect();
    Spoken::new(&words)
}

/// Normal form C writes no character in less than a quarter of its bytes.
const NFC_SHORTENS: usize = 4;

/// Most bytes of text that one token can stand for. None where the tokenizer strips or rewrites
/// text by rules that are not looked into here.
fn bytes_per_token(parts: &Parts) -> Option<usize> {
    let added = parts.tokenizer.get_added_tokens_decoder();
    if added.values().any(|token| token.lstrip || token.rstrip) {
        return None;
    }
    let longest = parts.pieces.longest();
    match parts.tokenizer.get_normalizer() {
        None => Some(longest),
        Some(NormalizerWrapper::NFC(_)) => Some(longest * NFC_SHORTENS),
        Some(_) => None,
    }
}

fn tokens(tokenizer: &Tokenizer, text: &str, add_special: bool) -> Vec<u32> {
    tokenizer
        .encode_fast(text, add_special)
        .expect("load admits only tokenizers that encode every text")
        .get_ids()
        .to_vec()
}

impl TextModel {
    /// Reads a GGUF file, or a directory with `tokenizer.json` and, where they exist,
    /// `tokenizer_config.json`, `chat_template.jinja`, `generation_config.json` and `config.json`.
    ///
    /// # Errors
    ///
    /// [`TextError`]: unreadable, damaged, or of a kind that is not known exactly.
    pub fn load(path: &Path) -> Result<Self, TextError> {
        let parts = if path.is_dir() {
            hub::load(path)?
        } else {
            gguf::load(path)?
        };
        Ok(Self {
            bytes_per_token: bytes_per_token(&parts),
            spoken: spoken(&parts.tokenizer),
            plain: OnceLock::new(),
            parts,
        })
    }

    /// Tokens of a raw prompt (`/v1/completions`), as vLLM encodes it (`add_special_tokens`): the
    /// begin token is put in front where the model asks for it, and special tokens are recognised
    /// in the text.
    ///
    /// Bytes that the vocabulary has no token for are left out, as by Hugging Face and llama.cpp
    /// (SmolLM2 lacks some control characters, and planes that Unicode has not filled). So a text
    /// that is not empty may have no tokens.
    pub fn encode(&self, text: &str) -> Vec<u32> {
        tokens(&self.parts.tokenizer, text, true)
    }

    /// The same without a begin token.
    pub fn encode_bare(&self, text: &str) -> Vec<u32> {
        tokens(&self.parts.tokenizer, text, false)
    }

    /// Tokens of a rendered chat, which holds its special tokens already: the template's are
    /// recognised, a client's are text (see the crate's description), nothing is added.
    pub fn encode_rendered(&self, rendered: &str) -> Vec<u32> {
        let parts = self.spoken.as_ref().map(|spoken| spoken.parts(rendered));
        let parts = parts.unwrap_or_else(|| vec![Part::Open(rendered)]);
        let encode = |part| match part {
            Part::Open(text) => tokens(&self.parts.tokenizer, text, false),
            Part::Plain(text) => tokens(self.plain(), &text, false),
        };
        parts.into_iter().flat_map(encode).collect()
    }

    /// The same with the begin token in front where the model asks for it.
    pub fn encode_rendered_begun(&self, rendered: &str) -> Vec<u32> {
        let mut all = tokens(&self.parts.tokenizer, "", true);
        all.extend(self.encode_rendered(rendered));
        all
    }

    fn plain(&self) -> &Tokenizer {
        self.plain.get_or_init(|| {
            let mut plain = self.parts.tokenizer.clone();
            plain.set_encode_special_tokens(true);
            plain
        })
    }

    /// A client's text as it stands in a rendered chat: words of control tokens are broken by marks, which
    /// [`TextModel::encode_rendered`] takes out.
    pub fn as_rendered<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let marked = self.spoken.as_ref().and_then(|spoken| spoken.mark(text));
        marked.map_or(Cow::Borrowed(text), Cow::Owned)
    }

    /// How many bytes a text of so many tokens can have at most (bytes that no token has aside).
    /// A longer one can be refused without encoding it, which takes seconds for a megabyte. None
    /// where a token may take any number of bytes.
    pub fn text_limit(&self, tokens: u32) -> Option<usize> {
        Some(self.bytes_per_token?.saturating_mul(tokens as usize))
    }

    /// Renders OpenAI messages with the model's chat template.
    ///
    /// Content may be a string, missing, or an array of text parts, which are joined by newlines
    /// (as in vLLM). A tool call's `arguments` are handed to the template as an object. The rendered
    /// text is for [`TextModel::encode_rendered`]: where a client says words of control tokens it
    /// holds marks ([`TextModel::as_rendered`]).
    ///
    /// # Errors
    ///
    /// [`TemplateError`].
    pub fn render_chat(
        &self,
        messages: &Value,
        options: ChatOptions,
    ) -> Result<String, TemplateError> {
        let template = self.parts.template.as_ref().ok_or(TemplateError::None)?;
        template.render(messages, options, self.spoken.as_ref())
    }

    /// The control token of this text.
    pub fn special_token(&self, text: &str) -> Option<u32> {
        let token = self.parts.tokenizer.token_to_id(text)?;
        self.is_special(token).then_some(token)
    }

    /// Whether the chat template reads a variable that it does not set itself, so that a client's
    /// `chat_template_kwargs` of that name would change something.
    pub fn template_uses(&self, variable: &str) -> bool {
        let template = self.parts.template.as_ref();
        template.is_some_and(|template| template.uses(variable))
    }

    /// The tokens that end an answer.
    pub fn end_tokens(&self) -> &[u32] {
        &self.parts.end
    }

    /// The token that begins a text, whether or not [`TextModel::encode`] adds it.
    pub fn begin_token(&self) -> Option<u32> {
        self.parts.begin
    }

    /// A token's exact bytes, not always whole characters. A special token's are its text; an id
    /// outside the vocabulary has none.
    pub fn token_bytes(&self, token: u32) -> Vec<u8> {
        self.bytes(token).to_vec()
    }

    pub(crate) fn bytes(&self, token: u32) -> &[u8] {
        self.parts.pieces.bytes(token)
    }

    /// Whether a token is a control token, which has no text in an answer.
    pub fn is_special(&self, token: u32) -> bool {
        self.parts.pieces.is_special(token)
    }

    /// Tokens that the tokenizer knows; the model's own table may be padded to more.
    pub fn vocabulary(&self) -> u32 {
        self.parts.pieces.len()
    }

    /// Tokens of prompt and answer together, where the model says so.
    pub fn context_length(&self) -> Option<u32> {
        self.parts.context_length
    }

    /// The chat template's text; where a model has another for tools, that one.
    pub fn chat_template(&self) -> Option<String> {
        self.parts.template.as_ref()?.source()
    }
}

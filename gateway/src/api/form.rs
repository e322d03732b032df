//! What of a request its answer's shape depends on.

use super::openai::chunks::ChunkForm;
use super::openai::responses::ResponseForm;

/// The shape of an answer.
#[derive(Debug)]
pub(crate) enum Form {
    /// A chat completion.
    Chat(ChunkForm),
    /// A completion, behind the prompts' texts where they are to be repeated.
    Completions(ChunkForm, Vec<String>),
    /// A response, with what it repeats of its request.
    Responses(Box<ResponseForm>),
    /// Anthropic's message.
    Messages,
}

impl Form {
    /// Whether tokens' probabilities are wanted.
    pub(crate) const fn logprobs(&self) -> bool {
        match self {
            Self::Chat(form) | Self::Completions(form, _) => form.logprobs,
            Self::Responses(_) | Self::Messages => false,
        }
    }
}

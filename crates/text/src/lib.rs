//! Text in, tokens out, and back: the tokenizer, the chat template and the answer's text.
//!
//! Owns everything between a client's words and a model's token ids. A [`TextModel`] is read once
//! from a GGUF file or a Hugging Face directory and never changes; an [`AnswerText`] turns one
//! answer's tokens into text that is certain. Refuses what it does not know exactly: an unknown
//! pre-tokenizer or tokenizer kind is an error, never a guess.
//!
//! **Architecture Invariant:** nothing here reads a clock, draws randomness or spawns; files are
//! read in [`TextModel::load`] only.
//!
//! **Special tokens in a client's text.** As in Hugging Face and vLLM, the words of a special token
//! (such as `<|im_end|>`) become that token wherever they stand, also inside a client's message.
//! Nothing here can tell the template's own from the client's: who must not be spoofed has to
//! filter messages before they are rendered.
#![forbid(unsafe_code)]

mod answer;
mod error;
mod gguf;
mod hub;
mod messages;
mod model;
mod pieces;
mod pre_tokenizer;
mod python_json;
mod served;
mod stop;
mod strftime;
mod template;

pub use answer::{AnswerText, Pushed};
pub use error::{TemplateError, TextError};
pub use model::TextModel;
pub use served::served_name;
pub use template::ChatOptions;

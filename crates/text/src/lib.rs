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
//! **Control tokens in a client's text.** In a chat the words of a control token (such as
//! `<|im_end|>`) are that token where the template says them, and plain text where a client does: in
//! messages, tools and template arguments. (Hugging Face and vLLM make them tokens wherever they
//! stand, so that whoever writes a part of a message can speak as somebody else.) A raw prompt is its
//! client's alone, and all of its words are taken for what they are.
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
mod spoken;
mod stop;
mod strftime;
mod template;
#[cfg(feature = "testing")]
pub mod testing;

pub use answer::{AnswerText, Pushed};
pub use error::{TemplateError, TextError};
pub use model::TextModel;
pub use served::served_name;
pub use template::ChatOptions;

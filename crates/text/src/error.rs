//! What can go wrong, one variant per condition.

use std::path::PathBuf;

/// Why a model's tokenizer could not be loaded. Each reads as one line.
#[derive(Debug, thiserror::Error)]
pub enum TextError {
    /// The file could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is not what its name says, or is cut short.
    #[error("{} is damaged: {reason}", path.display())]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What does not fit.
        reason: String,
    },
    /// The file is in order, but of a kind that Tandem does not know exactly.
    #[error("{}: unsupported {what}", path.display())]
    Unsupported {
        /// Which file.
        path: PathBuf,
        /// The kind, by name.
        what: String,
    },
    /// The chat template does not compile.
    #[error("{}: the chat template does not compile: {reason}", path.display())]
    Template {
        /// Which file.
        path: PathBuf,
        /// Where and why.
        reason: String,
    },
}

/// Why messages could not be rendered. All but [`TemplateError::None`],
/// [`TemplateError::TimeNotGiven`] and [`TemplateError::Failed`] are the client's to mend.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// The model has no chat template.
    #[error("the model has no chat template")]
    None,
    /// `messages` is not an array.
    #[error("messages must be an array of objects")]
    NotAnArray,
    /// A message is not of the form that OpenAI describes.
    #[error("messages[{index}]: {reason}")]
    Malformed {
        /// Position in the array.
        index: usize,
        /// What does not fit.
        reason: String,
    },
    /// A message's content has a part that is not text.
    #[error("messages[{index}]: content parts of type '{kind}' are not supported, only 'text'")]
    UnsupportedPart {
        /// Position in the array.
        index: usize,
        /// The part's type.
        kind: String,
    },
    /// A template argument bears a name that the renderer sets itself.
    #[error("chat_template_kwargs must not set '{0}'")]
    Reserved(String),
    /// The template refused the messages (`raise_exception`), in its own words.
    #[error("{0}")]
    Refused(String),
    /// The template asks for the date, and [`crate::ChatOptions::now`] is empty.
    #[error("the chat template asks for the current time, and none was given")]
    TimeNotGiven,
    /// The template ran for more steps than it may.
    #[error("the chat template ran for too many steps")]
    OutOfFuel,
    /// The template failed.
    #[error("the chat template failed: {0}")]
    Failed(String),
}

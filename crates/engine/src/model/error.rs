//! Why a model could not be loaded. Every message is one line.

use std::path::{Path, PathBuf};

/// Architectures that the embedded engine runs.
pub const SUPPORTED: &[&str] = &["llama"];

/// Why a model could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file or one of the directory's files cannot be read.
    #[error("cannot read model {}: {reason}", path.display())]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// Neither a GGUF file nor a directory.
    #[error("model {} is not a GGUF file", path.display())]
    NotGguf {
        /// Which file.
        path: PathBuf,
    },
    /// The file ends before its contents do.
    #[error("model {} is cut short: {what} ends at byte {needs}, the file at {has}", path.display())]
    CutShort {
        /// Which file.
        path: PathBuf,
        /// What does not fit.
        what: String,
        /// Where it would end (at least).
        needs: u64,
        /// Bytes in the file.
        has: u64,
    },
    /// Another kind of model.
    #[error(
        "model {} has architecture {name:?}; supported: {}", path.display(), SUPPORTED.join(", ")
    )]
    Architecture {
        /// Which file.
        path: PathBuf,
        /// What it says it is.
        name: String,
    },
    /// Not the file that was meant.
    #[error("model {} has SHA-256 {has}, but {wants} was asked for", path.display())]
    Checksum {
        /// Which file.
        path: PathBuf,
        /// Of the file.
        has: String,
        /// Asked for.
        wants: String,
    },
    /// A feature of the architecture that the engine does not compute.
    #[error("model {} needs {feature}, which the embedded engine does not support", path.display())]
    Unsupported {
        /// Which file.
        path: PathBuf,
        /// What it needs.
        feature: String,
    },
    /// Contents that make no model.
    #[error("model {} is malformed: {what}", path.display())]
    Malformed {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
}

impl LoadError {
    pub(crate) fn unreadable(path: &Path, error: &std::io::Error) -> Self {
        Self::Unreadable {
            path: path.to_owned(),
            reason: error.to_string(),
        }
    }

    pub(crate) fn unsupported(path: &Path, feature: impl Into<String>) -> Self {
        Self::Unsupported {
            path: path.to_owned(),
            feature: feature.into(),
        }
    }

    /// `what` may be another library's words: only its first line is kept.
    pub(crate) fn malformed(path: &Path, what: impl ToString) -> Self {
        let what = what
            .to_string()
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned();
        Self::Malformed {
            path: path.to_owned(),
            what,
        }
    }
}

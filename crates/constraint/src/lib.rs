//! Answers that a JSON schema, a regular expression or a grammar allows.
//!
//! Owns what a [`Constraint`] is, its bounds, and the way from one to the tokens that may come next:
//! [`Grammars`] compiles constraints for one model's vocabulary, a [`Matching`] follows one answer. The
//! parsing is llguidance's. Refuses what would take too long or too much memory; an answer is never
//! changed, tokens are only barred.
//!
//! What must hold: what may come next depends on the constraint and the answer's tokens alone. So an
//! answer that goes on elsewhere goes on in the same way.
#![forbid(unsafe_code)]

mod error;
mod grammars;
mod matching;
mod multiples;
mod vocabulary;

pub use error::ConstraintError;
pub use grammars::Grammars;
pub use matching::{Allowed, Matching};

use std::fmt;

/// Bytes of a constraint's text, at most.
pub const MAX_BYTES: usize = 256 << 10;
/// Brackets within brackets in a constraint's text, at most.
pub const MAX_DEPTH: usize = 100;

/// What an answer must be.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Constraint {
    /// A document of this JSON schema.
    JsonSchema(String),
    /// A text that this regular expression matches as a whole.
    Regex(String),
    /// A text of this grammar, in llguidance's dialect of Lark.
    Lark(String),
}

/// What a constraint is written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A JSON schema.
    JsonSchema,
    /// A regular expression.
    Regex,
    /// A grammar.
    Lark,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::JsonSchema => "JSON schema",
            Self::Regex => "regular expression",
            Self::Lark => "grammar",
        })
    }
}

impl Constraint {
    /// What it is written as.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::JsonSchema(_) => Kind::JsonSchema,
            Self::Regex(_) => Kind::Regex,
            Self::Lark(_) => Kind::Lark,
        }
    }

    /// Its text.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::JsonSchema(text) | Self::Regex(text) | Self::Lark(text) => text,
        }
    }

    /// Refuses what is too large to look at. Quick, whatever the text; [`Grammars::check`] does the rest.
    ///
    /// # Errors
    /// [`ConstraintError::TooLong`] and [`ConstraintError::TooDeep`].
    pub fn check_size(&self) -> Result<(), ConstraintError> {
        let (kind, text) = (self.kind(), self.text());
        if text.len() > MAX_BYTES {
            let bytes = text.len();
            return Err(ConstraintError::TooLong { kind, bytes });
        }
        let depth = depth(text);
        if depth > MAX_DEPTH {
            return Err(ConstraintError::TooDeep { kind, depth });
        }
        Ok(())
    }
}

/// Brackets within brackets, those in quotes too.
fn depth(text: &str) -> usize {
    let (mut open, mut most) = (0usize, 0);
    for byte in text.bytes() {
        match byte {
            b'(' | b'[' | b'{' => open += 1,
            b')' | b']' | b'}' => open = open.saturating_sub(1),
            _ => {}
        }
        most = most.max(open);
    }
    most
}

//! Why a constraint cannot be used.

use crate::{Kind, MAX_BYTES, MAX_DEPTH};

/// Why a constraint cannot be used. Each reads as one line, for whoever wrote the constraint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConstraintError {
    /// Its text is too long.
    #[error("the {kind} is {bytes} bytes long; at most {MAX_BYTES} are allowed")]
    TooLong {
        /// What it is written as.
        kind: Kind,
        /// How long it is.
        bytes: usize,
    },
    /// It is nested too deeply.
    #[error("the {kind} is nested {depth} brackets deep; at most {MAX_DEPTH} are allowed")]
    TooDeep {
        /// What it is written as.
        kind: Kind,
        /// How deep it is.
        depth: usize,
    },
    /// A JSON schema that is no JSON.
    #[error("the JSON schema is not valid JSON: {0}")]
    NotJson(String),
    /// A JSON schema that is another JSON value.
    #[error("the JSON schema is {0}; it must be an object or a boolean")]
    NotASchema(&'static str),
    /// It does not compile, or is too complex.
    #[error("the {kind} cannot be used: {why}")]
    Refused {
        /// What it is written as.
        kind: Kind,
        /// What is wrong with it.
        why: String,
    },
    /// An answer does not match it, or following it became too complex.
    #[error("the answer cannot go on by its constraint: {0}")]
    Lost(String),
    /// The model's vocabulary cannot be used, or the system gave no thread.
    #[error("constraints cannot be used with this model: {0}")]
    Unusable(String),
}

/// Of a message of llguidance's, what is for the constraint's author: one line, not its own state.
pub(crate) fn reason(error: &impl ToString) -> String {
    const LONGEST: usize = 400;
    let message = error.to_string();
    let end = ["\n<state>", "\n<non-verbose/>", "\n<backtrace>"]
        .iter()
        .filter_map(|mark| message.find(mark))
        .min();
    let message = &message[..end.unwrap_or(message.len())];
    if message.starts_with("panic: ") {
        return "it is of a form that cannot be compiled".to_owned();
    }
    let words: Vec<&str> = message.split_whitespace().collect();
    let line = words.join(" ");
    match line.char_indices().nth(LONGEST) {
        Some((cut, _)) => format!("{} …", &line[..cut]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::reason;

    #[test]
    fn a_reason_is_one_line_without_the_parsers_state() {
        assert_eq!(reason(&"a\n  b\n<state>\nx"), "a b");
        assert_eq!(reason(&"no\n<non-verbose/>"), "no");
        assert!(reason(&"panic: slice index\n<backtrace>\n").starts_with("it is of a form"));
        let long = reason(&"é".repeat(1000));
        assert_eq!(long.chars().count(), 402);
    }
}

//! What can be wrong with a file, in the words of the one who has to mend it.

use std::fmt;
use std::path::PathBuf;

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// The file can be read, and something in it is wrong.
    #[error(transparent)]
    Problems(#[from] Problems),
}

/// A file that is missing, is none, or holds no UTF-8 text.
#[derive(Debug, thiserror::Error)]
#[error("{}: {error}", path.display())]
pub struct Unreadable {
    /// Which file.
    pub path: PathBuf,
    /// What the system says.
    #[source]
    pub error: std::io::Error,
}

/// All that is wrong in one file, in the order of its lines; at least one. Shown as one line each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(Vec<Problem>);

/// One thing that is wrong, shown as `FILE:LINE: MESSAGE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Which file.
    pub path: PathBuf,
    /// Where in it, from 1; `None` where something is missing from the whole file.
    pub line: Option<usize>,
    /// What is wrong and what would be right.
    pub message: String,
}

impl Problems {
    /// Sorted by line. Panics where there is none: then nothing is wrong.
    pub(crate) fn new(mut problems: Vec<Problem>) -> Self {
        assert!(!problems.is_empty(), "an error without a problem");
        for problem in &mut problems {
            // What is quoted from the file may hold line breaks: one line each, whatever it holds.
            if problem.message.contains(char::is_control) {
                problem.message = escaped(&problem.message);
            }
        }
        problems.sort_by_key(|problem| problem.line);
        // A parser that goes on may find the same thing wrong at every step of a line.
        problems.dedup();
        Self(problems)
    }

    /// Each of them, at least one.
    #[must_use]
    pub fn list(&self) -> &[Problem] {
        &self.0
    }
}

fn escaped(message: &str) -> String {
    let mut text = String::new();
    for c in message.chars() {
        if c.is_control() {
            text.extend(c.escape_default());
        } else {
            text.push(c);
        }
    }
    text
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.path.display(), self.message),
            None => write!(f, "{}: {}", self.path.display(), self.message),
        }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// "unknown key `lisen` in \[gateway\]; did you mean `listen`?", or the known ones where none is
/// near.
pub(crate) fn unknown(kind: &str, name: &str, place: &str, known: &[&str]) -> String {
    match nearest(name, known.iter().copied()) {
        Some(nearest) => {
            format!("unknown {kind} `{name}`{place}; did you mean `{nearest}`?")
        }
        None => format!(
            "unknown {kind} `{name}`{place}; known: {}",
            known.join(", ")
        ),
    }
}

/// The candidate that `name` may have been meant to be: but for a few letters, or but for their case.
pub(crate) fn nearest<'k>(name: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let distance = |candidate: &str| match candidate.eq_ignore_ascii_case(name) {
        true => 0,
        false => strsim::damerau_levenshtein(name, candidate),
    };
    known
        .map(|candidate| (distance(candidate), candidate))
        .min_by_key(|(distance, _)| *distance)
        .filter(|(distance, candidate)| *distance <= 1 + candidate.len() / 4)
        .map(|(_, candidate)| candidate)
}

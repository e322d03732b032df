//! Files that a test reads: line by line, and a wrong line is named.

use std::fmt::Display;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// What is wrong with a file that a test reads.
#[derive(Debug, thiserror::Error)]
#[error("{file}{}: {problem}", line.map(|line| format!(":{line}")).unwrap_or_default())]
pub struct InputError {
    file: String,
    line: Option<u64>,
    problem: String,
}

/// A longer line is no record of a request.
const LONGEST_LINE: u64 = 16 << 20;

impl InputError {
    pub(crate) fn file(path: &Path, problem: impl Display) -> Self {
        Self {
            file: path.display().to_string(),
            line: None,
            problem: problem.to_string(),
        }
    }

    pub(crate) fn line(path: &Path, line: u64, problem: impl Display) -> Self {
        Self {
            line: Some(line),
            ..Self::file(path, problem)
        }
    }
}

/// What is wrong with a line of JSON, with the column in it; serde would call each the first line.
#[must_use]
pub fn json_problem(error: &serde_json::Error) -> String {
    let (line, column) = (error.line(), error.column());
    let text = error.to_string();
    match text.strip_suffix(&format!(" at line {line} column {column}")) {
        Some(problem) => format!("{problem} at column {column}"),
        None => text,
    }
}

/// Opens a file.
pub(crate) fn open(path: &Path) -> Result<File, InputError> {
    File::open(path).map_err(|error| InputError::file(path, error))
}

/// The lines that are not empty, with their numbers from 1.
pub(crate) fn lines(
    path: &Path,
) -> Result<impl Iterator<Item = Result<(u64, String), InputError>>, InputError> {
    let mut reader = BufReader::new(open(path)?);
    let mut number = 0;
    Ok(std::iter::from_fn(move || {
        loop {
            number += 1;
            let mut line = Vec::new();
            let read = (&mut reader)
                .take(LONGEST_LINE)
                .read_until(b'\n', &mut line);
            let wrong = |problem: &dyn Display| Some(Err(InputError::line(path, number, problem)));
            match read {
                Err(error) => return wrong(&error),
                Ok(0) => return None,
                Ok(read) if read as u64 == LONGEST_LINE => return wrong(&"the line has no end"),
                Ok(_) => {}
            }
            match String::from_utf8(line) {
                Err(_) => return wrong(&"not UTF-8"),
                Ok(line) if line.trim().is_empty() => {}
                Ok(line) => return Some(Ok((number, line.trim_end().to_owned()))),
            }
        }
    }))
}

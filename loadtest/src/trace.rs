//! Request traces: when requests came and how long they were, read from the published forms.
//!
//! JSONL with `hash_ids` (Mooncake, Qwen-Bailian): equal ids are equal blocks of text, so a replay has the
//! trace's real shared prefixes. CSV with named columns (Azure, BurstGPT): lengths and times only. A broken
//! line is an error that names file and line, never left out.

mod columns;
mod json;

pub(crate) use json::MOONCAKE_BLOCK;

use std::path::Path;
use std::time::Duration;

use crate::input::InputError;
use crate::units::{UnitError, duration};

/// One request of a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceRow {
    /// From the first row that is used.
    pub at: Duration,
    /// Tokens of the prompt.
    pub input_tokens: u32,
    /// Tokens of the answer.
    pub output_tokens: u32,
    /// What each block of the prompt is; empty where the trace does not say.
    pub blocks: Box<[u64]>,
    /// What kind of request the trace calls it.
    pub class: Option<Box<str>>,
}

impl TraceRow {
    /// What its session goes by: its second block, as the first is a system prompt that many have; `None` where the
    /// trace does not say.
    #[must_use]
    pub fn session(&self) -> Option<u64> {
        self.blocks.get(1).copied()
    }
}

/// The part of a trace that is used, its first row at 0.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// By time.
    pub rows: Vec<TraceRow>,
    /// Tokens of a block.
    pub block_tokens: u32,
}

/// A stretch of a trace, from its first row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The first moment that belongs to it.
    pub from: Duration,
    /// The first that does not.
    pub to: Duration,
}

/// More rows than a test sends; what is read is kept in memory.
pub(crate) const MOST_ROWS: usize = 4 << 20;
/// More tokens than a prompt can have.
const MOST_TOKENS: u64 = crate::lengths::LONGEST as u64;

impl Slice {
    /// All of it.
    pub const WHOLE: Self = Self {
        from: Duration::ZERO,
        to: Duration::MAX,
    };
}

impl std::str::FromStr for Slice {
    type Err = UnitError;

    /// `60s..120s`, `..120s` or `60s..`.
    fn from_str(text: &str) -> Result<Self, UnitError> {
        let wrong = || UnitError::new(text, "a stretch such as 60s..120s, ..2m or 1h..");
        let (from, to) = text.split_once("..").ok_or_else(wrong)?;
        let bound = |text: &str, open: Duration| match text {
            "" => Ok(open),
            text => duration(text).map_err(|_| wrong()),
        };
        let slice = Self {
            from: bound(from, Duration::ZERO)?,
            to: bound(to, Duration::MAX)?,
        };
        if slice.from < slice.to {
            Ok(slice)
        } else {
            Err(wrong())
        }
    }
}

/// A row as its file has it: the time in seconds from wherever the file counts.
struct RawRow {
    seconds: f64,
    input_tokens: u64,
    output_tokens: u64,
    blocks: Vec<u64>,
    class: Option<String>,
}

impl Trace {
    /// Reads a trace: `*.csv` by the names of its columns, anything else as JSON lines.
    ///
    /// # Errors
    ///
    /// [`InputError`]: unreadable, of an unknown form, a broken line, or nothing in the slice.
    pub fn read(path: &Path, slice: Slice) -> Result<Self, InputError> {
        let mut reading = Reading {
            path,
            slice,
            first: None,
            rows: Vec::new(),
        };
        let block_tokens = if path.extension().is_some_and(|end| end == "csv") {
            columns::read(&mut reading)?;
            1
        } else {
            json::read(&mut reading)?
        };
        reading.finish(block_tokens)
    }

    /// From its first request to its last.
    #[must_use]
    pub fn length(&self) -> Duration {
        self.rows.last().map_or(Duration::ZERO, |row| row.at)
    }

    /// Requests per second on average of the first so many requests, or of all; `None` where they all come at once.
    #[must_use]
    pub fn mean_rate(&self, requests: Option<u64>) -> Option<f64> {
        let most = requests.and_then(|requests| usize::try_from(requests).ok());
        let rows = self.rows.len().min(most.unwrap_or(usize::MAX));
        let seconds = self.rows[..rows].last()?.at.as_secs_f64();
        (seconds > 0.0).then(|| rows as f64 / seconds)
    }
}

struct Reading<'a> {
    path: &'a Path,
    slice: Slice,
    first: Option<f64>,
    rows: Vec<TraceRow>,
}

impl Reading<'_> {
    fn push(&mut self, line: u64, raw: RawRow) -> Result<(), InputError> {
        let wrong = |problem: String| Err(InputError::line(self.path, line, problem));
        for (name, tokens) in [("prompt", raw.input_tokens), ("answer", raw.output_tokens)] {
            if tokens > MOST_TOKENS {
                return wrong(format!(
                    "{name} of {tokens} tokens, want {MOST_TOKENS} at most"
                ));
            }
        }
        let first = *self.first.get_or_insert(raw.seconds);
        let Ok(at) = Duration::try_from_secs_f64(raw.seconds - first) else {
            return wrong("its time is before that of the first line".to_owned());
        };
        if at < self.slice.from || at >= self.slice.to {
            return Ok(());
        }
        if self.rows.len() == MOST_ROWS {
            return wrong(format!(
                "more than {MOST_ROWS} requests: take a slice of the trace"
            ));
        }
        self.rows.push(TraceRow {
            at,
            input_tokens: (raw.input_tokens as u32).max(1),
            output_tokens: (raw.output_tokens as u32).max(1),
            blocks: raw.blocks.into(),
            class: raw.class.map(Into::into),
        });
        Ok(())
    }

    fn finish(mut self, block_tokens: u32) -> Result<Trace, InputError> {
        self.rows.sort_by_key(|row| row.at);
        let Some(first) = self.rows.first().map(|row| row.at) else {
            return Err(InputError::file(self.path, "no request in this part of it"));
        };
        for row in &mut self.rows {
            row.at -= first;
        }
        Ok(Trace {
            rows: self.rows,
            block_tokens,
        })
    }
}

#[cfg(test)]
mod tests;

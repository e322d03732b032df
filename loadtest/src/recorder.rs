//! A trace from a gateway's own log: when requests came, how long they were and which beginnings they shared, in the
//! form that [`crate::trace`] reads. There is no text in it, for there is none in the log.
//!
//! The log is the gateway's in JSON, one line for each request (`docs/OPERATIONS.md`). Names of blocks stand there with
//! `log_prefix_hashes = true` only; here they become small numbers, in the order in which they came.

use std::collections::HashMap;
use std::io::{self, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::input::{InputError, json_problem, lines};
use crate::trace::{MOONCAKE_BLOCK, MOST_ROWS};

/// What a log came to.
#[derive(Debug)]
pub struct Recording {
    rows: Vec<Row>,
    counts: Counts,
}

/// What was found in a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests that are in the trace.
    pub requests: u64,
    /// Requests left out because they failed, or their client left.
    pub failed: u64,
    /// Requests left out because their prompt was never read.
    pub unread: u64,
    /// Further answers to a request that is counted already.
    pub further: u64,
    /// Lines of the log about something else.
    pub other_lines: u64,
    /// Requests in the trace whose line has no names of blocks.
    pub unnamed: u64,
    /// Whole blocks of the trace's prompts.
    pub blocks: u64,
    /// Those of them that an earlier prompt had begun with too.
    pub shared_blocks: u64,
    /// Milliseconds from the first request to the last.
    pub length_ms: u64,
}

/// A request's line, as far as it matters.
#[derive(Deserialize)]
struct Line {
    arrived_ms: u64,
    status: u16,
    error: Option<String>,
    choice: Option<u64>,
    class: Option<String>,
    prompt_tokens: u64,
    completion_tokens: u64,
    prefix_hashes: Option<String>,
}

#[derive(Debug)]
struct Row {
    arrived_ms: u64,
    input_tokens: u64,
    output_tokens: u64,
    class: Option<String>,
    /// Names of its whole blocks.
    blocks: Option<Vec<u64>>,
}

/// A line of the trace.
#[derive(Serialize)]
struct Written<'a> {
    timestamp: u64,
    input_length: u64,
    output_length: u64,
    hash_ids: Vec<u64>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    class: Option<&'a str>,
}

/// The message of a request's line.
const REQUEST: &str = "request";

impl Recording {
    /// Reads the logs of one or several gateways; `all`: with requests that failed.
    ///
    /// # Errors
    ///
    /// [`InputError`]: a log that cannot be read, a line that is no JSON or no whole line of a request, or no request.
    pub fn read(logs: &[impl AsRef<Path>], all: bool) -> Result<Self, InputError> {
        let mut recording = Self {
            rows: Vec::new(),
            counts: Counts::default(),
        };
        for log in logs {
            let path = log.as_ref();
            for line in lines(path)? {
                let (number, line) = line?;
                let taken = recording.take(&line, all);
                taken.map_err(|problem| InputError::line(path, number, problem))?;
            }
        }
        if let (true, Some(path)) = (recording.rows.is_empty(), logs.first()) {
            return Err(InputError::file(path.as_ref(), recording.emptiness()));
        }
        recording.rows.sort_by_key(|row| row.arrived_ms);
        recording.count();
        Ok(recording)
    }

    fn emptiness(&self) -> String {
        let Counts {
            failed,
            unread,
            other_lines,
            ..
        } = self.counts;
        match failed + unread {
            0 => format!(
                "no line of a request among {other_lines}: want a gateway's log, with [log] format = \"json\" and a \
                 level of info"
            ),
            _ => format!(
                "all {} requests failed (--all takes those with a prompt)",
                failed + unread
            ),
        }
    }

    fn take(&mut self, line: &str, all: bool) -> Result<(), String> {
        // What a process prints otherwise may stand among its log.
        if !line.trim_start().starts_with('{') {
            self.counts.other_lines += 1;
            return Ok(());
        }
        let value: Value = serde_json::from_str(line).map_err(|error| {
            let problem = json_problem(&error);
            format!("{problem}: want a line of JSON ([log] format = \"json\")")
        })?;
        if value.get("message").and_then(Value::as_str) != Some(REQUEST) {
            self.counts.other_lines += 1;
            return Ok(());
        }
        let line =
            Line::deserialize(value).map_err(|error| format!("a request's line: {error}"))?;
        let failed = line.error.is_some() || line.status >= 400;
        if failed && !all {
            self.counts.failed += 1;
        } else if line.prompt_tokens == 0 {
            // A prompt's tokens stand in the line of its first answer.
            match line.choice.unwrap_or(0) {
                0 => self.counts.unread += 1,
                _ => self.counts.further += 1,
            }
        } else if self.rows.len() == MOST_ROWS {
            return Err(format!(
                "more than {MOST_ROWS} requests: take a part of the log"
            ));
        } else {
            self.rows.push(line.row()?);
        }
        Ok(())
    }

    fn count(&mut self) {
        let counts = &mut self.counts;
        counts.requests = self.rows.len() as u64;
        let ends = self.rows.first().zip(self.rows.last());
        counts.length_ms = ends.map_or(0, |(first, last)| last.arrived_ms - first.arrived_ms);
        let mut seen = std::collections::HashSet::new();
        for row in &self.rows {
            let Some(blocks) = &row.blocks else {
                counts.unnamed += 1;
                continue;
            };
            counts.blocks += blocks.len() as u64;
            counts.shared_blocks +=
                blocks.iter().filter(|block| !seen.insert(**block)).count() as u64;
        }
    }

    /// What was found.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// Writes the trace: JSON lines as Mooncake's. What a prompt has behind its last whole block is its own.
    ///
    /// # Errors
    ///
    /// As `to` has them.
    pub fn write(&self, mut to: impl Write) -> io::Result<()> {
        let first = self.rows.first().map_or(0, |row| row.arrived_ms);
        let mut ids: HashMap<u64, u64> = HashMap::new();
        let mut next = 0;
        let mut new = || {
            next += 1;
            next - 1
        };
        for row in &self.rows {
            let mut hash_ids = Vec::new();
            if let Some(blocks) = &row.blocks {
                let known = blocks
                    .iter()
                    .map(|name| *ids.entry(*name).or_insert_with(&mut new));
                hash_ids.extend(known);
                if !row.input_tokens.is_multiple_of(u64::from(MOONCAKE_BLOCK)) {
                    hash_ids.push(new());
                }
            }
            let line = Written {
                timestamp: row.arrived_ms - first,
                input_length: row.input_tokens,
                output_length: row.output_tokens,
                hash_ids,
                class: row.class.as_deref(),
            };
            serde_json::to_writer(&mut to, &line)?;
            to.write_all(b"\n")?;
        }
        to.flush()
    }
}

impl Line {
    fn row(self) -> Result<Row, String> {
        let blocks = self.prefix_hashes.as_deref().map(|names| {
            let names = names.split(',').filter(|name| !name.is_empty());
            let read = names.map(|name| {
                u64::from_str_radix(name, 16)
                    .map_err(|_| format!("prefix_hashes: {name:?} is no name of a block"))
            });
            read.collect::<Result<Vec<u64>, String>>()
        });
        let blocks = blocks.transpose()?;
        let whole = self.prompt_tokens / u64::from(MOONCAKE_BLOCK);
        if let Some(found) = blocks.as_ref().map(|blocks| blocks.len() as u64)
            && found != whole
        {
            return Err(format!(
                "{found} prefix_hashes for {} prompt_tokens, want {whole} (one for each whole {MOONCAKE_BLOCK})",
                self.prompt_tokens
            ));
        }
        Ok(Row {
            arrived_ms: self.arrived_ms,
            input_tokens: self.prompt_tokens,
            output_tokens: self.completion_tokens,
            class: self.class,
            blocks,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use serde_json::json;

    use super::*;
    use crate::trace::{Slice, Trace};

    struct Folder(tempfile::TempDir);

    impl Folder {
        fn log(&self, lines: &[String]) -> PathBuf {
            let path = self.0.path().join("gateway.log");
            std::fs::write(&path, lines.join("\n")).unwrap();
            path
        }
    }

    fn folder() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    /// A line with `more` instead of or beside what every request has.
    fn line(arrived_ms: u64, prompt_tokens: u64, more: Value) -> String {
        let mut line = json!({
            "timestamp": "2026-01-01T00:00:00Z", "level": "INFO", "message": "request", "request_id": "r",
            "status": 200, "arrived_ms": arrived_ms, "prompt_tokens": prompt_tokens, "completion_tokens": 7,
            "ttft_ms": 1.5, "target": "tandem_gateway::journal::line"
        });
        let more = more.as_object().unwrap().clone();
        line.as_object_mut().unwrap().extend(more);
        line.to_string()
    }

    fn trace_of(recording: &Recording, folder: &Folder) -> Trace {
        let path = folder.0.path().join("t.jsonl");
        recording
            .write(std::fs::File::create(&path).unwrap())
            .unwrap();
        Trace::read(&path, Slice::WHOLE).unwrap()
    }

    #[test]
    fn a_recorded_trace_has_times_lengths_and_the_shared_beginnings() {
        let folder = folder();
        let hashes = |names: &str| json!({ "prefix_hashes": names, "class": "chat" });
        // Lines stand in the order in which requests ended.
        let log = folder.log(&[
            line(5_250, 1_100, hashes("00000000000000aa,00000000000000bb")),
            json!({"message": "a worker has joined", "level": "INFO"}).to_string(),
            "started {\"listen\":\"127.0.0.1:8080\"}".to_owned(),
            line(5_000, 1_024, hashes("00000000000000aa,ffffffffffffffff")),
            line(6_000, 100, hashes("")),
        ]);
        let recording = Recording::read(&[log], false).unwrap();
        let counts = recording.counts();
        assert_eq!((counts.requests, counts.other_lines), (3, 2));
        assert_eq!((counts.blocks, counts.shared_blocks), (4, 1));
        assert_eq!((counts.unnamed, counts.length_ms), (0, 1000));
        let mut written = Vec::new();
        recording.write(&mut written).unwrap();
        let first: Value =
            serde_json::from_slice(written.split(|b| *b == b'\n').next().unwrap()).unwrap();
        assert_eq!(first["timestamp"], 0, "from the first request on");
        let trace = trace_of(&recording, &folder);
        let rows = &trace.rows;
        assert_eq!((rows.len(), trace.block_tokens), (3, 512));
        let at: Vec<u128> = rows.iter().map(|row| row.at.as_millis()).collect();
        assert_eq!(at, [0, 250, 1000]);
        let lengths = |row: &crate::trace::TraceRow| (row.input_tokens, row.output_tokens);
        assert_eq!(
            (lengths(&rows[0]), lengths(&rows[1])),
            ((1024, 7), (1100, 7))
        );
        assert_eq!(&*rows[0].blocks, &[0, 1]);
        assert_eq!(
            &*rows[1].blocks,
            &[0, 2, 3],
            "the rest behind the last whole block is its own"
        );
        assert_eq!(&*rows[2].blocks, &[4]);
        assert_eq!(rows[2].class.as_deref(), Some("chat"));
    }

    #[test]
    fn what_failed_was_never_read_or_is_a_further_answer_is_counted_apart() {
        let folder = folder();
        let log = folder.log(&[
            line(1, 10, json!({})),
            line(2, 10, json!({"error": "client_gone"})),
            line(3, 10, json!({"status": 503, "error": "no_worker"})),
            line(4, 10, json!({"status": 404})),
            line(4, 0, json!({"status": 400, "error": "missing"})),
            line(5, 0, json!({"choice": 1})),
            line(6, 10, json!({"choice": 2})),
        ]);
        let counts = |all| {
            let counts = Recording::read(&[&log], all).unwrap().counts();
            (
                counts.requests,
                counts.failed,
                counts.unread,
                counts.further,
                counts.unnamed,
            )
        };
        assert_eq!(counts(false), (2, 4, 0, 1, 2));
        assert_eq!(counts(true), (5, 0, 1, 1, 5));
        let trace = trace_of(&Recording::read(&[&log], false).unwrap(), &folder);
        assert!(trace.rows.iter().all(|row| row.blocks.is_empty()));
    }

    #[test]
    fn a_broken_line_is_named_by_file_and_number() {
        let good = line(1, 10, json!({}));
        for (broken, says) in [
            ("{\"message\": \"request\"", "EOF"),
            ("{\"message\": INFO", "want a line of JSON"),
            ("{\"message\": \"request\"}", "missing field `arrived_ms`"),
            (
                &line(1, 600, json!({"prefix_hashes": ""})),
                "0 prefix_hashes for 600 prompt_tokens, want 1",
            ),
            (
                &line(1, 600, json!({"prefix_hashes": "x"})),
                "\"x\" is no name",
            ),
            (&line(1, 600, json!({"status": "fine"})), "invalid type"),
        ] {
            let folder = folder();
            let log = folder.log(&[good.clone(), String::new(), broken.to_owned()]);
            let error = Recording::read(&[log], false).unwrap_err().to_string();
            assert!(
                error.contains("gateway.log:3: ") && error.contains(says),
                "{error}"
            );
        }
    }

    #[test]
    fn a_log_without_a_request_is_refused_with_what_is_wanted() {
        let folder = folder();
        let log = folder.log(&["{\"message\": \"ready\"}".to_owned()]);
        let error = Recording::read(&[log], false).unwrap_err().to_string();
        assert!(error.contains("no line of a request among 1"), "{error}");
        let log = folder.log(&[line(1, 0, json!({"status": 500}))]);
        let error = Recording::read(&[log], false).unwrap_err().to_string();
        assert!(error.contains("all 1 requests failed"), "{error}");
    }
}

//! Files that earlier tests wrote.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use tandem_loadtest::input::json_problem;
use tandem_loadtest::record::{Record, keep_slowest};
use tandem_loadtest::results::{FORMAT, Results};

use crate::failure::Failure;

/// What --json wrote.
pub(super) fn results(path: &Path) -> Result<Results, Failure> {
    let wrong = |error: String| Failure::mendable(format!("{}: {error}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let value: serde_json::Value = serde_json::from_str(&text)
        .map_err(|error| wrong(format!("no results of a load test: {error}")))?;
    let format = value["format"].as_str().unwrap_or("none");
    if format != FORMAT {
        return Err(wrong(format!("its format is {format}, want {FORMAT}")));
    }
    serde_json::from_value(value).map_err(|error| wrong(error.to_string()))
}

/// The slowest requests of what --requests-file wrote.
pub(super) fn slowest(path: &Path) -> Result<Vec<Record>, Failure> {
    let file = File::open(path)
        .map_err(|error| Failure::mendable(format!("{}: {error}", path.display())))?;
    let mut slowest = Vec::new();
    for (i, line) in BufReader::new(file).lines().enumerate() {
        let wrong = |error: String| {
            let at = format!("{}:{}", path.display(), i + 1);
            Failure::mendable(format!("{at}: {error}"))
        };
        let line = line.map_err(|error| wrong(error.to_string()))?;
        let record: Record = serde_json::from_str(&line).map_err(|error| {
            wrong(format!(
                "no request of a load test: {}",
                json_problem(&error)
            ))
        })?;
        keep_slowest(&mut slowest, &record);
    }
    Ok(slowest)
}

//! Traces: Mooncake's JSON lines and Azure's CSV, by their columns' names.

use std::path::Path;
use std::time::Duration;

use crate::replay::Arrival;

/// Reads a trace by the ending of its name; what is wrong with it is told with its line.
pub(crate) fn read(path: &Path, page_tokens: u16) -> Result<Vec<Arrival>, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let read = match path.extension().and_then(|e| e.to_str()) {
        Some("jsonl") => mooncake,
        Some("csv") => azure,
        _ => return Err(format!("{}: want .jsonl or .csv", path.display())),
    };
    read(&text, page_tokens).map_err(|(line, why)| format!("{}:{line}: {why}", path.display()))
}

type Wrong = (usize, String);

/// `timestamp` in ms, `input_length`, `output_length`, `hash_ids`: one for each 512 tokens.
fn mooncake(text: &str, _: u16) -> Result<Vec<Arrival>, Wrong> {
    let mut trace = Vec::new();
    for (at, line) in (1..).zip(text.lines()) {
        let value: serde_json::Value =
            serde_json::from_str(line).map_err(|e| (at, e.to_string()))?;
        let number = |name: &str| {
            let number = value[name].as_u64();
            number.ok_or_else(|| (at, format!("no {name}")))
        };
        let ids = value["hash_ids"].as_array();
        let ids = ids.ok_or_else(|| (at, "no hash_ids".to_owned()))?;
        let blocks: Vec<u64> = ids.iter().filter_map(serde_json::Value::as_u64).collect();
        trace.push(Arrival {
            at: Duration::from_millis(number("timestamp")?),
            prompt: number("input_length")?.max(1) as u32,
            answer: number("output_length")?.max(1) as u32,
            // The second block tells conversations apart: the first is a system prompt.
            session: blocks.get(1).copied(),
            blocks,
        });
    }
    Ok(trace)
}

/// `TIMESTAMP`, `ContextTokens`, `GeneratedTokens`; nothing is known of prefixes.
fn azure(text: &str, page_tokens: u16) -> Result<Vec<Arrival>, Wrong> {
    let mut lines = (1..).zip(text.lines());
    let (_, header) = lines.next().ok_or((1, "empty".to_owned()))?;
    let names: Vec<&str> = header.trim().split(',').collect();
    let column = |name: &str| {
        let column = names.iter().position(|other| *other == name);
        column.ok_or_else(|| (1, format!("no column {name}")))
    };
    let (time, prompt, answer) = (
        column("TIMESTAMP")?,
        column("ContextTokens")?,
        column("GeneratedTokens")?,
    );
    let mut trace: Vec<Arrival> = Vec::new();
    let mut begin = None;
    for (at, line) in lines {
        let cells: Vec<&str> = line.trim().split(',').collect();
        let wrong = || (at, format!("{line:?}"));
        let number = |column: usize| {
            let cell: Option<u32> = cells.get(column).and_then(|c| c.parse().ok());
            cell.ok_or_else(wrong)
        };
        let now = cells.get(time).and_then(|c| seconds(c)).ok_or_else(wrong)?;
        let begin = *begin.get_or_insert(now);
        let tokens = number(prompt)?.max(1);
        let own = (at as u64) << 20;
        trace.push(Arrival {
            at: Duration::try_from_secs_f64(now - begin).map_err(|_| wrong())?,
            prompt: tokens,
            answer: number(answer)?.max(1),
            blocks: (0..u64::from(tokens.div_ceil(page_tokens.into())))
                .map(|n| own + n)
                .collect(),
            session: None,
        });
    }
    Ok(trace)
}

/// `2023-11-16 18:17:03.9799600`: seconds of the month.
fn seconds(stamp: &str) -> Option<f64> {
    let (date, time) = stamp.split_once(' ')?;
    let day: f64 = date.rsplit('-').next()?.parse().ok()?;
    let parts: Option<Vec<f64>> = time.split(':').map(|part| part.parse().ok()).collect();
    match parts?.as_slice() {
        [hours, minutes, seconds] => Some(((day * 24.0 + hours) * 60.0 + minutes) * 60.0 + seconds),
        _ => None,
    }
}

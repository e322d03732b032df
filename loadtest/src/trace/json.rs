//! The JSON lines of Mooncake (times in milliseconds, blocks of 512 tokens) and of Qwen-Bailian (seconds,
//! blocks of 16, chats with ids).

use serde::Deserialize;

use super::{RawRow, Reading};
use crate::input::{InputError, json_problem, lines};

#[derive(Deserialize)]
struct Line {
    timestamp: f64,
    input_length: u64,
    output_length: u64,
    #[serde(default)]
    hash_ids: Vec<u64>,
    chat_id: Option<i64>,
    #[serde(rename = "type")]
    class: Option<String>,
}

pub(crate) const MOONCAKE_BLOCK: u32 = 512;
const QWEN_BLOCK: u32 = 16;

/// Reads all lines; the tokens of a block.
pub(super) fn read(reading: &mut Reading<'_>) -> Result<u32, InputError> {
    let path = reading.path;
    // The first line says whose it is.
    let mut block_tokens = None;
    for line in lines(path)? {
        let (number, line) = line?;
        let wrong = |problem: String| InputError::line(path, number, problem);
        let line: Line =
            serde_json::from_str(&line).map_err(|error| wrong(json_problem(&error)))?;
        let qwen = line.chat_id.is_some();
        let whose = if qwen { QWEN_BLOCK } else { MOONCAKE_BLOCK };
        let block = *block_tokens.get_or_insert(whose);
        if block != whose {
            return Err(wrong("chat_id stands in some lines only".to_owned()));
        }
        let blocks = line.input_length.div_ceil(u64::from(block));
        if !line.hash_ids.is_empty() && line.hash_ids.len() as u64 != blocks {
            let found = line.hash_ids.len();
            return Err(wrong(format!(
                "{found} hash_ids for {} tokens, want {blocks} (one for each {block})",
                line.input_length
            )));
        }
        let raw = RawRow {
            seconds: line.timestamp / if qwen { 1.0 } else { 1000.0 },
            input_tokens: line.input_length,
            output_tokens: line.output_length,
            blocks: line.hash_ids,
            class: line.class,
        };
        reading.push(number, raw)?;
    }
    Ok(block_tokens.unwrap_or(MOONCAKE_BLOCK))
}

//! CSV with named columns: Azure's (`TIMESTAMP` as date and time, `ContextTokens`, `GeneratedTokens`) and
//! BurstGPT's (`Timestamp` in seconds, `Request tokens`, `Response tokens`, `Log Type`).

use csv::StringRecord;
use time::PrimitiveDateTime;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;

use super::{RawRow, Reading};
use crate::input::{InputError, open};

const KNOWN: &str = "TIMESTAMP,ContextTokens,GeneratedTokens (Azure) or Timestamp,Request tokens,Response tokens \
                     (BurstGPT)";

struct Columns {
    time: usize,
    input: usize,
    output: usize,
    class: Option<usize>,
    dates: bool,
}

impl Columns {
    fn of(head: &StringRecord) -> Option<Self> {
        let column = |name: &str| head.iter().position(|cell| cell.trim() == name);
        let azure = || {
            Some(Self {
                time: column("TIMESTAMP")?,
                input: column("ContextTokens")?,
                output: column("GeneratedTokens")?,
                class: None,
                dates: true,
            })
        };
        let burst_gpt = || {
            Some(Self {
                time: column("Timestamp")?,
                input: column("Request tokens")?,
                output: column("Response tokens")?,
                class: column("Log Type"),
                dates: false,
            })
        };
        azure().or_else(burst_gpt)
    }

    fn row(&self, record: &StringRecord) -> Result<RawRow, String> {
        let cell = |column: usize| record.get(column).unwrap_or("").trim();
        let tokens = |column: usize| {
            let text = cell(column);
            text.parse::<u64>()
                .map_err(|_| format!("{text:?} is no number of tokens"))
        };
        let time = cell(self.time);
        let seconds = if self.dates {
            date(time)
        } else {
            time.parse::<f64>().ok().filter(|time| time.is_finite())
        };
        Ok(RawRow {
            seconds: seconds.ok_or_else(|| format!("{time:?} is no time"))?,
            input_tokens: tokens(self.input)?,
            output_tokens: tokens(self.output)?,
            blocks: Vec::new(),
            class: self.class.map(|column| cell(column).to_owned()),
        })
    }
}

const DATE: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day] [hour]:[minute]:[second]");

/// Seconds of a date and time in UTC, its fraction of a second with any number of digits.
fn date(text: &str) -> Option<f64> {
    let text = text.trim_end_matches("+00:00").trim_end_matches('Z');
    let (whole, fraction) = match text.split_once('.') {
        Some((whole, digits)) => (whole, format!("0.{digits}").parse::<f64>().ok()?),
        None => (text, 0.0),
    };
    let whole = PrimitiveDateTime::parse(&whole.replace('T', " "), DATE).ok()?;
    Some(whole.assume_utc().unix_timestamp() as f64 + fraction)
}

/// What is wrong with a line, without its number.
fn problem(error: &csv::Error) -> String {
    match error.kind() {
        csv::ErrorKind::UnequalLengths {
            expected_len, len, ..
        } => format!("{len} fields, want {expected_len} as in the line of names"),
        csv::ErrorKind::Utf8 { err, .. } => format!("not UTF-8: {err}"),
        _ => error.to_string(),
    }
}

pub(super) fn read(reading: &mut Reading<'_>) -> Result<(), InputError> {
    let path = reading.path;
    let mut csv = csv::ReaderBuilder::new().from_reader(open(path)?);
    let wrong = |error: csv::Error| match error.position() {
        Some(position) => InputError::line(path, position.line(), problem(&error)),
        None => InputError::file(path, &error),
    };
    let head = csv.headers().map_err(wrong)?;
    let columns = Columns::of(head).ok_or_else(|| {
        let found = head.iter().collect::<Vec<_>>().join(",");
        InputError::line(path, 1, format!("columns {found:?}, want {KNOWN}"))
    })?;
    for record in csv.records() {
        let record = record.map_err(wrong)?;
        let line = record.position().map_or(0, csv::Position::line);
        let row = columns
            .row(&record)
            .map_err(|problem| InputError::line(path, line, problem))?;
        reading.push(line, row)?;
    }
    Ok(())
}

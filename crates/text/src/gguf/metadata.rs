//! A GGUF file's key-value pairs.

use std::collections::HashMap;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use candle_core::quantized::gguf_file::{Content, Value};

use crate::error::TextError;

/// A GGUF file's metadata, whose errors name the file.
pub(super) struct Metadata {
    path: PathBuf,
    values: HashMap<String, Value>,
}

impl Metadata {
    pub(super) fn read(path: &Path) -> Result<Self, TextError> {
        let unreadable = |source| TextError::Read {
            path: path.to_owned(),
            source,
        };
        let mut file = BufReader::new(File::open(path).map_err(unreadable)?);
        let content = Content::read(&mut file).map_err(|error| TextError::Damaged {
            path: path.to_owned(),
            reason: one_line(&error.to_string()),
        })?;
        Ok(Self {
            path: path.to_owned(),
            values: content.metadata,
        })
    }

    pub(super) fn damaged(&self, reason: impl ToString) -> TextError {
        TextError::Damaged {
            path: self.path.clone(),
            reason: one_line(&reason.to_string()),
        }
    }

    pub(super) fn unsupported(&self, what: String) -> TextError {
        TextError::Unsupported {
            path: self.path.clone(),
            what,
        }
    }

    pub(super) fn text(&self, key: &str) -> Result<Option<&str>, TextError> {
        match self.values.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.damaged(format!("'{key}' is not a string"))),
        }
    }

    pub(super) fn number(&self, key: &str) -> Result<Option<u32>, TextError> {
        let Some(value) = self.values.get(key) else {
            return Ok(None);
        };
        integer(value)
            .and_then(|number| u32::try_from(number).ok())
            .map(Some)
            .ok_or_else(|| self.damaged(format!("'{key}' is not a number that fits")))
    }

    pub(super) fn flag(&self, key: &str) -> Result<Option<bool>, TextError> {
        match self.values.get(key) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(_) => Err(self.damaged(format!("'{key}' is not a boolean"))),
        }
    }

    pub(super) fn array(&self, key: &str) -> Result<&[Value], TextError> {
        match self.values.get(key) {
            None => Err(self.damaged(format!("'{key}' is missing"))),
            Some(Value::Array(values)) => Ok(values),
            Some(_) => Err(self.damaged(format!("'{key}' is not an array"))),
        }
    }

    pub(super) fn texts(&self, key: &str) -> Result<Vec<&str>, TextError> {
        self.array(key)?
            .iter()
            .map(|value| match value {
                Value::String(text) => Ok(text.as_str()),
                _ => Err(self.damaged(format!("'{key}' holds something that is not a string"))),
            })
            .collect()
    }
}

/// Any whole number.
pub(super) fn integer(value: &Value) -> Option<i64> {
    Some(match *value {
        Value::U8(number) => number.into(),
        Value::I8(number) => number.into(),
        Value::U16(number) => number.into(),
        Value::I16(number) => number.into(),
        Value::U32(number) => number.into(),
        Value::I32(number) => number.into(),
        Value::U64(number) => i64::try_from(number).ok()?,
        Value::I64(number) => number,
        _ => return None,
    })
}

/// The first line: candle appends a backtrace where one is asked for.
fn one_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().trim().to_owned()
}

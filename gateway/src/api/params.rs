//! A request's fields, each taken out by name and checked; what is left over is refused.

use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use super::error::ApiError;
use super::json::{self, Malformed};
use super::unsupported::Field;

/// The fields of a JSON object that nobody has asked for yet. A field that is null counts as absent.
#[derive(Debug)]
pub(crate) struct Params {
    fields: Map<String, Value>,
    /// Stands before each name in errors: `stream_options.`.
    path: String,
}

impl Params {
    /// Reads a body.
    pub(crate) fn parse(body: &[u8]) -> Result<Self, ApiError> {
        let value = json::parse(body).map_err(|Malformed { message, key }| {
            let error = ApiError::bad(
                "invalid_json",
                format!("The body is not valid JSON: {message}."),
            );
            match key {
                Some(key) => error.with_param(key),
                None => error,
            }
        })?;
        match value {
            Value::Object(fields) => Ok(Self {
                fields,
                path: String::new(),
            }),
            _ => Err(ApiError::bad(
                "invalid_json",
                "The body must be a JSON object.",
            )),
        }
    }

    /// The fields of an object inside.
    pub(crate) fn within(path: &str, value: Value) -> Result<Self, ApiError> {
        match value {
            Value::Object(fields) => Ok(Self {
                fields,
                path: format!("{path}."),
            }),
            other => Err(ApiError::kind_of(path, "an object", &other)),
        }
    }

    /// A field's name as errors show it.
    pub(crate) fn name(&self, field: &str) -> String {
        format!("{}{field}", self.path)
    }

    /// A field, whatever it is.
    pub(crate) fn take(&mut self, field: &str) -> Option<Value> {
        self.fields.remove(field).filter(|value| !value.is_null())
    }

    /// A field that stays for others to take.
    pub(crate) fn peek(&self, field: &str) -> Option<&Value> {
        self.fields.get(field).filter(|value| !value.is_null())
    }

    pub(crate) fn boolean(&mut self, field: &str) -> Result<Option<bool>, ApiError> {
        let Some(value) = self.take(field) else {
            return Ok(None);
        };
        match value {
            Value::Bool(flag) => Ok(Some(flag)),
            other => Err(ApiError::kind_of(self.name(field), "a boolean", &other)),
        }
    }

    pub(crate) fn text(&mut self, field: &str) -> Result<Option<String>, ApiError> {
        let Some(value) = self.take(field) else {
            return Ok(None);
        };
        match value {
            Value::String(text) => Ok(Some(text)),
            other => Err(ApiError::kind_of(self.name(field), "a string", &other)),
        }
    }

    pub(crate) fn integer(
        &mut self,
        field: &str,
        range: RangeInclusive<i64>,
    ) -> Result<Option<i64>, ApiError> {
        let Some(value) = self.take(field) else {
            return Ok(None);
        };
        let name = self.name(field);
        // Beyond 64 bits serde_json reads a float.
        let number = match (value.as_i64(), value.as_u64(), value.as_f64()) {
            (Some(number), _, _) => number,
            (None, Some(_), _) => i64::MAX,
            (None, None, Some(big)) if big.abs() >= 9.2e18 => {
                if big > 0.0 {
                    i64::MAX
                } else {
                    i64::MIN
                }
            }
            _ => return Err(ApiError::kind_of(name, "an integer", &value)),
        };
        let (least, most) = (*range.start(), *range.end());
        if number < least {
            return Err(ApiError::value(name.clone(), below(&name, least, &value)));
        }
        if number > most {
            return Err(ApiError::value(name.clone(), above(&name, most, &value)));
        }
        Ok(Some(number))
    }

    pub(crate) fn number(
        &mut self,
        field: &str,
        range: RangeInclusive<f64>,
    ) -> Result<Option<f32>, ApiError> {
        let Some(value) = self.take(field) else {
            return Ok(None);
        };
        let name = self.name(field);
        let number = value
            .as_f64()
            .ok_or_else(|| ApiError::kind_of(name.clone(), "a number", &value))?;
        if number < *range.start() {
            return Err(ApiError::value(
                name.clone(),
                below(&name, range.start(), &value),
            ));
        }
        if number > *range.end() {
            return Err(ApiError::value(
                name.clone(),
                above(&name, range.end(), &value),
            ));
        }
        // The engine samples in 32 bits.
        Ok(Some(number as f32))
    }

    /// An array, whatever it holds.
    pub(crate) fn array(&mut self, field: &str) -> Result<Option<Vec<Value>>, ApiError> {
        match self.take(field) {
            None => Ok(None),
            Some(Value::Array(entries)) => Ok(Some(entries)),
            Some(other) => Err(ApiError::kind_of(self.name(field), "an array", &other)),
        }
    }

    /// An object, with a path of its own.
    pub(crate) fn object(&mut self, field: &str) -> Result<Option<Self>, ApiError> {
        let name = self.name(field);
        self.take(field)
            .map(|value| Self::within(&name, value))
            .transpose()
    }

    /// A text that has to be there.
    pub(crate) fn needed_text(&mut self, field: &str) -> Result<String, ApiError> {
        let name = self.name(field);
        self.text(field)?.ok_or_else(|| ApiError::missing(&name))
    }

    /// What is left, as an object.
    pub(crate) fn into_rest(self) -> Map<String, Value> {
        self.fields
    }

    /// Whether nothing is left; otherwise says what the first of the rest is: known to OpenAI and
    /// asking for what is not done here, or unknown.
    pub(crate) fn finish(self, unsupported: &[Field]) -> Result<(), ApiError> {
        for (field, value) in self.fields {
            if value.is_null() {
                continue;
            }
            let name = format!("{}{field}", self.path);
            match unsupported.iter().find(|(known, _)| *known == field) {
                Some((_, asks_for_nothing)) if asks_for_nothing(&value) => {}
                Some(_) => return Err(ApiError::unsupported(name, with(&value).as_str())),
                None => return Err(ApiError::unknown(name)),
            }
        }
        Ok(())
    }
}

/// Short values are told; long ones would only echo what the client sent.
fn with(value: &Value) -> String {
    match value {
        Value::Bool(_) | Value::Number(_) => format!(" with value {value}"),
        Value::String(text) if text.len() <= 32 => format!(" with value {value}"),
        _ => String::new(),
    }
}

fn below(name: &str, least: impl std::fmt::Display, found: &Value) -> String {
    format!("Invalid '{name}': expected a value >= {least}, but got {found} instead.")
}

fn above(name: &str, most: impl std::fmt::Display, found: &Value) -> String {
    format!("Invalid '{name}': expected a value <= {most}, but got {found} instead.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(json: &str) -> Params {
        Params::parse(json.as_bytes()).unwrap()
    }

    #[test]
    fn what_is_no_object_is_no_request() {
        for bad in [
            "",
            "{",
            "[]",
            "1",
            "\"x\"",
            "{\"a\":}",
            "{} x",
            "\u{feff}{}",
        ] {
            let error = Params::parse(bad.as_bytes()).unwrap_err();
            assert_eq!(
                (error.status.as_u16(), error.code.as_str()),
                (400, "invalid_json"),
                "{bad}"
            );
        }
        assert_eq!(
            Params::parse(b"{\"a\":\"\xff\"}").unwrap_err().code,
            "invalid_json"
        );
    }

    #[test]
    fn wrong_types_and_ranges_name_the_field() {
        for (json, code) in [
            (r#"{"n":"1"}"#, "invalid_type"),
            (r#"{"n":1.5}"#, "invalid_type"),
            (r#"{"n":true}"#, "invalid_type"),
            (r#"{"n":0}"#, "invalid_value"),
            (r#"{"n":-3}"#, "invalid_value"),
            (r#"{"n":11}"#, "invalid_value"),
            (r#"{"n":18446744073709551615}"#, "invalid_value"),
            (r#"{"n":1e30}"#, "invalid_value"),
        ] {
            let error = params(json).integer("n", 1..=10).unwrap_err();
            assert_eq!(
                (error.code.as_str(), error.param.as_deref()),
                (code, Some("n")),
                "{json}"
            );
        }
        assert_eq!(params(r#"{"n":null}"#).integer("n", 1..=10).unwrap(), None);
        assert_eq!(params("{}").integer("n", 1..=10).unwrap(), None);
        assert_eq!(
            params(r#"{"n":10}"#).integer("n", 1..=10).unwrap(),
            Some(10)
        );
    }

    #[test]
    fn nothing_is_ignored() {
        let table: [Field; 1] = [("n", |v| *v == 1)];
        assert!(params(r#"{"n":1,"m":null}"#).finish(&table).is_ok());
        let error = params(r#"{"n":2}"#).finish(&table).unwrap_err();
        assert_eq!(error.code, "unsupported_parameter");
        assert_eq!(error.message, "Unsupported parameter: 'n' with value 2.");
        let error = params(r#"{"m":2}"#).finish(&table).unwrap_err();
        assert_eq!(
            (error.code.as_str(), error.param.as_deref()),
            ("unknown_parameter", Some("m"))
        );
    }
}

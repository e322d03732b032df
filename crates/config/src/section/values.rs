//! Single values: what they look like in a file and in messages.

use std::fmt::{self, Display};
use std::net::SocketAddr;

use toml::de::DeValue;

use crate::error::nearest;

/// What a socket address looks like, for messages.
pub(crate) const SOCKET: &str = "an address and port such as \"127.0.0.1:8080\"";

/// What a path looks like, for messages.
pub(crate) const PATH: &str = "a path, relative to this file's folder or absolute";

/// An IP address with a port.
pub(crate) fn socket(value: &DeValue<'_>) -> Option<SocketAddr> {
    value.as_str()?.parse().ok()
}

/// Text that is not empty.
pub(crate) fn text<'v>(value: &'v DeValue<'_>) -> Option<&'v str> {
    value.as_str().filter(|text| !text.trim().is_empty())
}

/// What a name looks like, for messages.
pub(crate) const NAME: &str = "1 to 128 letters, digits or any of -_.:@/";

/// A name that can stand in a log line and a metric's label.
pub(crate) fn name(value: &DeValue<'_>) -> Option<String> {
    value
        .as_str()
        .filter(|name| is_name(name))
        .map(str::to_owned)
}

/// Whether `text` can be the name of a tenant, a class or a model.
#[must_use]
pub fn is_name(text: &str) -> bool {
    (1..=128).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.:@/".contains(&byte))
}

/// A whole number that is not negative.
pub(crate) fn integer(value: &DeValue<'_>) -> Option<u64> {
    let integer = value.as_integer()?;
    u64::from_str_radix(integer.as_str(), integer.radix()).ok()
}

/// A number with or without a fraction.
pub(crate) fn real(value: &DeValue<'_>) -> Option<f32> {
    let number = double(value)? as f32;
    number.is_finite().then_some(number)
}

/// The same, in double precision.
pub(crate) fn double(value: &DeValue<'_>) -> Option<f64> {
    match value {
        DeValue::Float(number) => number.as_str().parse().ok(),
        other => integer(other).map(|n| n as f64),
    }
    .filter(|number: &f64| number.is_finite())
}

pub(super) fn choose<T: Copy>(value: &DeValue<'_>, choices: &[(&str, T)]) -> Option<T> {
    let word = value.as_str()?;
    choices
        .iter()
        .find(|(name, _)| *name == word)
        .map(|(_, choice)| *choice)
}

/// What follows a value that is none of the words, and near one of them.
pub(super) fn hint<T>(value: &DeValue<'_>, choices: &[(&str, T)]) -> String {
    let names = choices.iter().map(|(name, _)| *name);
    let meant = value.as_str().and_then(|word| nearest(word, names));
    meant.map_or_else(String::new, |name| format!("; did you mean \"{name}\"?"))
}

/// Words that are known, for messages.
pub(super) struct Choices<'a, T>(pub(super) &'a [(&'a str, T)]);

impl<T> Display for Choices<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, _)) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}\"{name}\"")?;
        }
        Ok(())
    }
}

/// A value as it can stand in a message: short, and with its type.
pub(super) struct Shown<'v, 'a>(pub(super) &'v DeValue<'a>);

impl Display for Shown<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            DeValue::String(text) if text.chars().count() > 40 => {
                let start: String = text.chars().take(40).collect();
                write!(f, "the text {start:?}…")
            }
            DeValue::String(text) => write!(f, "the text {text:?}"),
            DeValue::Integer(number) => write!(f, "{number}"),
            DeValue::Float(number) => write!(f, "{number}"),
            DeValue::Boolean(flag) => write!(f, "{flag}"),
            DeValue::Datetime(date) => write!(f, "the date {date}"),
            DeValue::Array(_) => f.write_str("a list"),
            DeValue::Table(_) => f.write_str("a table"),
        }
    }
}

//! A file's tables with the line of each value, and one table as its reader sees it: a reader asks
//! for each key it knows, and what nobody asked for is an unknown key.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::net::SocketAddr;
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::de::{DeTable, DeValue};

use crate::error::{Problem, Problems, unknown};
use crate::size::{format_bytes, parse_bytes};

/// Every table of the schema, in the order in which a file has them.
pub(crate) const SECTIONS: &[&str] = &[
    "gateway",
    "http",
    "tls",
    "auth",
    "admin",
    "admission",
    "policy",
    "worker",
    "fabric",
    "topology",
    "identity",
    "control",
    "telemetry",
    "log",
];

/// A value and the line it stands on, from 1.
pub(crate) struct Located<T> {
    pub(crate) line: usize,
    pub(crate) span: Range<usize>,
    pub(crate) value: T,
}

/// A parsed file whose tables are taken out one by one.
pub(crate) struct Document<'a> {
    text: &'a str,
    path: &'a Path,
    sections: BTreeMap<String, Located<DeValue<'a>>>,
    problems: Vec<Problem>,
}

impl<'a> Document<'a> {
    /// Parses, and refuses text that is no TOML; tables other than `sections` are noted.
    pub(crate) fn parse(
        text: &'a str,
        path: &'a Path,
        sections: &[&'static str],
    ) -> Result<Self, Problems> {
        let (table, errors) = DeTable::parse_recoverable(text);
        let mut document = Self {
            text,
            path,
            sections: BTreeMap::new(),
            problems: Vec::new(),
        };
        for error in &errors {
            document.problem_at(error.span(), error.message().replace('\n', "; "));
        }
        if !errors.is_empty() {
            return Err(Problems::new(document.problems));
        }
        document.sections = document.locate(table.into_inner());
        let strangers: Vec<_> = document
            .sections
            .iter()
            .filter(|(name, _)| !sections.contains(&name.as_str()))
            .map(|(name, entry)| (name.clone(), entry.span.clone(), entry.value.is_table()))
            .collect();
        for (name, span, is_table) in strangers {
            let kind = if is_table {
                "table"
            } else {
                "key outside a table:"
            };
            document.problem_at(Some(span), unknown(kind, &name, "", sections));
        }
        Ok(document)
    }

    /// Whether the file has this table.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.sections.contains_key(name)
    }

    /// Takes a table out, with its line.
    pub(crate) fn take(&mut self, name: &str) -> Option<Located<DeValue<'a>>> {
        self.sections.remove(name)
    }

    /// Reads one table with `read`; one that is not there is read as if it were empty.
    pub(crate) fn section<T>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(&mut Section<'_, 'a>) -> T,
    ) -> T {
        let (line, entries) = match self.take(name) {
            None => (None, BTreeMap::new()),
            Some(Located {
                line,
                value: DeValue::Table(table),
                ..
            }) => (Some(line), self.locate(table)),
            Some(Located { span, value, .. }) => {
                let found = Shown(&value).to_string();
                self.problem_at(Some(span), format!("want a table [{name}], found {found}"));
                (None, BTreeMap::new())
            }
        };
        let mut section = Section {
            name: name.to_owned(),
            line,
            entries,
            known: Vec::new(),
            document: self,
        };
        let read = read(&mut section);
        section.refuse_unknown();
        read
    }

    /// Reads each table of a list with `read`; one that is not there is read as if it were empty.
    pub(crate) fn tables<T>(
        &mut self,
        name: &str,
        shown: &'static str,
        read: impl Fn(&mut Section<'_, 'a>) -> T,
    ) -> Vec<T> {
        let entries = match self.take(name) {
            None => return Vec::new(),
            Some(Located {
                value: DeValue::Array(entries),
                ..
            }) => entries,
            Some(Located { span, value, .. }) => {
                let found = Shown(&value).to_string();
                self.problem_at(Some(span), format!("want tables [{shown}], found {found}"));
                return Vec::new();
            }
        };
        let mut all = Vec::new();
        for entry in entries {
            let span = entry.span();
            let DeValue::Table(table) = entry.into_inner() else {
                self.problem_at(Some(span), format!("want tables [{shown}]"));
                continue;
            };
            let mut section = Section {
                name: shown.to_owned(),
                line: Some(self.line_of(span.start)),
                entries: self.locate(table),
                known: Vec::new(),
                document: self,
            };
            all.push(read(&mut section));
            section.refuse_unknown();
        }
        all
    }

    /// Notes something that is wrong at these bytes of the text.
    pub(crate) fn problem_at(&mut self, span: Option<Range<usize>>, message: String) {
        let line = span.map(|span| self.line_of(span.start));
        self.problem(line, message);
    }

    fn problem(&mut self, line: Option<usize>, message: String) {
        self.problems.push(Problem {
            path: self.path.to_owned(),
            line,
            message,
        });
    }

    /// All that was noted, if anything was.
    pub(crate) fn finish(self) -> Result<(), Problems> {
        if self.problems.is_empty() {
            Ok(())
        } else {
            Err(Problems::new(self.problems))
        }
    }

    fn line_of(&self, at: usize) -> usize {
        let before = &self.text.as_bytes()[..at.min(self.text.len())];
        1 + before.iter().filter(|byte| **byte == b'\n').count()
    }

    fn locate(&self, table: DeTable<'a>) -> BTreeMap<String, Located<DeValue<'a>>> {
        table
            .into_iter()
            .map(|(key, value)| {
                let located = Located {
                    line: self.line_of(key.span().start),
                    span: key.span(),
                    value: value.into_inner(),
                };
                (key.into_inner().into_owned(), located)
            })
            .collect()
    }
}

/// One table while it is read.
pub(crate) struct Section<'d, 'a> {
    name: String,
    /// Of the table's header; `None` where the file has no such table.
    line: Option<usize>,
    entries: BTreeMap<String, Located<DeValue<'a>>>,
    known: Vec<&'static str>,
    document: &'d mut Document<'a>,
}

impl<'a> Section<'_, 'a> {
    /// The value of `key` as `parse` takes it. `None` where it is absent, or is not what is wanted,
    /// which is then noted.
    pub(crate) fn read<T>(
        &mut self,
        key: &'static str,
        want: impl Display,
        parse: impl FnOnce(&DeValue<'_>) -> Option<T>,
    ) -> Option<T> {
        self.known.push(key);
        let entry = self.entries.remove(key)?;
        let parsed = parse(&entry.value);
        if parsed.is_none() {
            let found = Shown(&entry.value).to_string();
            let message = format!("[{}] {key}: want {want}, found {found}", self.name);
            self.document.problem(Some(entry.line), message);
        }
        parsed
    }

    /// Like [`Section::read`], for what may be a secret by mistake: what was found is not shown.
    pub(crate) fn read_hidden<T>(
        &mut self,
        key: &'static str,
        want: impl Display,
        parse: impl FnOnce(&DeValue<'_>) -> Option<T>,
    ) -> Option<T> {
        self.known.push(key);
        let entry = self.entries.remove(key)?;
        let parsed = parse(&entry.value);
        if parsed.is_none() {
            let message = format!("[{}] {key}: want {want}, found something else", self.name);
            self.document.problem(Some(entry.line), message);
        }
        parsed
    }

    /// Like [`Section::read`], and notes it where the key is absent from a table that is there.
    pub(crate) fn need<T>(
        &mut self,
        key: &'static str,
        want: impl Display,
        parse: impl FnOnce(&DeValue<'_>) -> Option<T>,
    ) -> Option<T> {
        if self.line.is_some() && !self.entries.contains_key(key) {
            let message = format!("[{}] needs `{key}`: {want}", self.name);
            self.document.problem(self.line, message);
        }
        self.read(key, want, parse)
    }

    /// Reads the table `key` inside this one; `None` where there is none.
    pub(crate) fn table<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&mut Section<'_, 'a>) -> T,
    ) -> Option<T> {
        self.known.push(key);
        let entry = self.entries.remove(key)?;
        self.inner(key, entry, read)
    }

    /// Reads the tables inside the table `key`, each with its name, in the order of their names.
    pub(crate) fn tables<T>(
        &mut self,
        key: &'static str,
        mut read: impl FnMut(&mut Section<'_, 'a>) -> T,
    ) -> Vec<(String, T)> {
        let tables = self.table(key, |outer| {
            let entries = std::mem::take(&mut outer.entries);
            let one = |(name, entry): (String, _)| {
                let table = outer.inner(&name, entry, &mut read)?;
                Some((name, table))
            };
            entries.into_iter().filter_map(one).collect()
        });
        tables.unwrap_or_default()
    }

    fn inner<T>(
        &mut self,
        key: &str,
        entry: Located<DeValue<'a>>,
        read: impl FnOnce(&mut Section<'_, 'a>) -> T,
    ) -> Option<T> {
        let name = format!("{}.{key}", self.name);
        let DeValue::Table(table) = entry.value else {
            let found = Shown(&entry.value).to_string();
            let message = format!("want a table [{name}], found {found}");
            self.document.problem(Some(entry.line), message);
            return None;
        };
        let mut section = Section {
            name,
            line: Some(entry.line),
            entries: self.document.locate(table),
            known: Vec::new(),
            document: self.document,
        };
        let read = read(&mut section);
        section.refuse_unknown();
        Some(read)
    }

    /// Notes something that is wrong with the value of `key` beside other values.
    pub(crate) fn refuse(&mut self, line: Option<usize>, message: &str) {
        let message = format!("[{}] {message}", self.name);
        self.document.problem(line.or(self.line), message);
    }

    /// The line of the table; `None` where the file has none.
    pub(crate) const fn line(&self) -> Option<usize> {
        self.line
    }

    /// The line of `key`, while it has not been read.
    pub(crate) fn line_of(&self, key: &str) -> Option<usize> {
        self.entries.get(key).map(|entry| entry.line)
    }

    /// A whole number within `range`.
    pub(crate) fn number<N>(&mut self, key: &'static str, range: RangeInclusive<N>) -> Option<N>
    where
        N: TryFrom<u64> + PartialOrd + Display,
    {
        let want = format!("a whole number from {} to {}", range.start(), range.end());
        self.read(key, want, |value| {
            integer(value)
                .and_then(|n| N::try_from(n).ok())
                .filter(|n| range.contains(n))
        })
    }

    /// Milliseconds within `range`.
    pub(crate) fn millis(
        &mut self,
        key: &'static str,
        range: RangeInclusive<u64>,
        default_ms: u64,
    ) -> Duration {
        Duration::from_millis(self.number(key, range).unwrap_or(default_ms))
    }

    /// A size in bytes within `range`, as a number or as text with a unit.
    pub(crate) fn bytes(&mut self, key: &'static str, range: RangeInclusive<u64>) -> Option<u64> {
        let want = format!(
            "a size from {} to {}, such as \"64MiB\"",
            format_bytes(*range.start()),
            format_bytes(*range.end())
        );
        self.read(key, want, |value| {
            let bytes = match value {
                DeValue::String(text) => parse_bytes(text),
                other => integer(other),
            };
            bytes.filter(|bytes| range.contains(bytes))
        })
    }

    /// A list of names, at least one.
    pub(crate) fn names(&mut self, key: &'static str) -> Option<Vec<String>> {
        let want = format!("a list of names, each of {NAME}");
        self.read(key, want, |value| {
            let names = value.as_array()?.iter();
            let names: Option<Vec<_>> = names.map(|entry| name(entry.get_ref())).collect();
            names.filter(|names| !names.is_empty())
        })
    }

    /// A number with or without a fraction, within `range`.
    pub(crate) fn real(&mut self, key: &'static str, range: RangeInclusive<f32>) -> Option<f32> {
        let want = format!("a number from {} to {}", range.start(), range.end());
        self.read(key, want, |value| real(value).filter(|n| range.contains(n)))
    }

    /// `true` or `false`.
    pub(crate) fn flag(&mut self, key: &'static str) -> Option<bool> {
        self.read(key, "true or false", |value| value.as_bool())
    }

    /// One of a few words.
    pub(crate) fn choice<T: Copy>(
        &mut self,
        key: &'static str,
        choices: &[(&str, T)],
    ) -> Option<T> {
        self.read(key, Choices(choices), |value| choose(value, choices))
    }

    /// One of a few words, which must be given.
    pub(crate) fn need_choice<T: Copy>(
        &mut self,
        key: &'static str,
        choices: &[(&str, T)],
    ) -> Option<T> {
        self.need(key, Choices(choices), |value| choose(value, choices))
    }

    /// Turns a path relative to the file's folder into one relative to where the process runs.
    pub(crate) fn in_folder(&self, path: impl AsRef<Path>) -> PathBuf {
        match self.document.path.parent() {
            Some(folder) => folder.join(path),
            None => path.as_ref().to_owned(),
        }
    }

    fn refuse_unknown(self) {
        let place = format!(" in [{}]", self.name);
        for (key, entry) in self.entries {
            let message = unknown("key", &key, &place, &self.known);
            self.document.problem(Some(entry.line), message);
        }
    }
}

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
    match value {
        DeValue::Float(number) => number.as_str().parse().ok(),
        other => integer(other).map(|n| n as f32),
    }
    .filter(|number: &f32| number.is_finite())
}

fn choose<T: Copy>(value: &DeValue<'_>, choices: &[(&str, T)]) -> Option<T> {
    let word = value.as_str()?;
    choices
        .iter()
        .find(|(name, _)| *name == word)
        .map(|(_, choice)| *choice)
}

struct Choices<'a, T>(&'a [(&'a str, T)]);

impl<T> Display for Choices<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("one of ")?;
        for (index, (name, _)) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}\"{name}\"")?;
        }
        Ok(())
    }
}

/// A value as it can stand in a message: short, and with its type.
struct Shown<'v, 'a>(&'v DeValue<'a>);

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
            DeValue::Datetime(_) => f.write_str("a date"),
            DeValue::Array(_) => f.write_str("a list"),
            DeValue::Table(_) => f.write_str("a table"),
        }
    }
}

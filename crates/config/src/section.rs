//! One table as its reader sees it: a reader asks for each key it knows, and what nobody asked for is an
//! unknown key.

mod document;
mod values;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::de::DeValue;

use crate::error::unknown;
use crate::size::{format_bytes, parse_bytes};

pub(crate) use document::{Document, SECTIONS};
pub use values::is_name;
pub(crate) use values::{NAME, PATH, SOCKET, double, integer, name, real, socket, text};

use document::Located;
use values::{Choices, Shown, choose, hint};

/// One table while it is read.
pub(crate) struct Section<'d, 'a> {
    name: String,
    /// Of the table's header; `None` where the file has no such table.
    line: Option<usize>,
    entries: BTreeMap<String, Located<DeValue<'a>>>,
    known: Vec<&'static str>,
    document: &'d mut Document<'a>,
}

impl<'d, 'a> Section<'d, 'a> {
    fn new(
        name: String,
        line: Option<usize>,
        entries: BTreeMap<String, Located<DeValue<'a>>>,
        document: &'d mut Document<'a>,
    ) -> Self {
        Self {
            name,
            line,
            entries,
            known: Vec::new(),
            document,
        }
    }

    /// The value of `key` as `parse` takes it. `None` where it is absent, or is not what is wanted,
    /// which is then noted.
    pub(crate) fn read<T>(
        &mut self,
        key: &'static str,
        want: impl Display,
        parse: impl FnOnce(&DeValue<'_>) -> Option<T>,
    ) -> Option<T> {
        self.parse(key, want, parse, |value| Shown(value).to_string())
    }

    /// Like [`Section::read`], for what may be a secret by mistake: what was found is not shown.
    pub(crate) fn read_hidden<T>(
        &mut self,
        key: &'static str,
        want: impl Display,
        parse: impl FnOnce(&DeValue<'_>) -> Option<T>,
    ) -> Option<T> {
        self.parse(key, want, parse, |_| "something else".to_owned())
    }

    fn parse<T>(
        &mut self,
        key: &'static str,
        want: impl Display,
        parse: impl FnOnce(&DeValue<'_>) -> Option<T>,
        show: impl FnOnce(&DeValue<'_>) -> String,
    ) -> Option<T> {
        self.known.push(key);
        let entry = self.entries.remove(key)?;
        let parsed = parse(&entry.value);
        if parsed.is_none() {
            let found = show(&entry.value);
            let message = format!("[{}] {key}: want {want}, found {found}", self.name);
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
        self.needs(key, &want);
        self.read(key, want, parse)
    }

    /// Notes it where the key is absent from a table that is there.
    pub(crate) fn needs(&mut self, key: &str, want: &dyn Display) {
        if self.line.is_some() && !self.entries.contains_key(key) {
            let message = format!("[{}] needs `{key}`: {want}", self.name);
            self.document.problem(self.line, message);
        }
    }

    /// A list of what `one` takes. Where it takes one of them not, that one is shown.
    pub(crate) fn list<T>(
        &mut self,
        key: &'static str,
        want: impl Display,
        one: impl Fn(&DeValue<'_>) -> Option<T>,
    ) -> Option<Vec<T>> {
        self.list_with(key, want, one, |_| String::new())
    }

    /// A list of some of a few words, at least one.
    pub(crate) fn choices<T: Copy>(
        &mut self,
        key: &'static str,
        choices: &[(&str, T)],
    ) -> Option<Vec<T>> {
        let want = format!("a list of at least one of {}", Choices(choices));
        let line = self.line_of(key);
        let one = |value: &DeValue<'_>| choose(value, choices);
        let list = self.list_with(key, &want, one, |value| hint(value, choices));
        let empty = list.as_ref().is_some_and(Vec::is_empty);
        if empty {
            self.refuse(line, &format!("{key}: want {want}, found an empty list"));
        }
        list.filter(|_| !empty)
    }

    fn list_with<T>(
        &mut self,
        key: &'static str,
        want: impl Display,
        one: impl Fn(&DeValue<'_>) -> Option<T>,
        hint: impl Fn(&DeValue<'_>) -> String,
    ) -> Option<Vec<T>> {
        let all = |value: &DeValue<'_>| {
            let entries = value.as_array()?.iter();
            entries.map(|entry| one(entry.get_ref())).collect()
        };
        let show = |value: &DeValue<'_>| {
            let mut entries = value.as_array().into_iter().flatten();
            match entries.find(|entry| one(entry.get_ref()).is_none()) {
                Some(bad) => {
                    let bad = bad.get_ref();
                    format!("{} in it{}", Shown(bad), hint(bad))
                }
                None => Shown(value).to_string(),
            }
        };
        self.parse(key, want, all, show)
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
        let line = Some(entry.line);
        Some(self.document.read_table(name, line, table, read))
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

    /// Whether the value of `key`, while it has not been read, is a list.
    pub(crate) fn is_list(&self, key: &str) -> bool {
        let entry = self.entries.get(key);
        entry.is_some_and(|entry| entry.value.is_array())
    }

    /// A whole number within `range`.
    pub(crate) fn number<N>(&mut self, key: &'static str, range: RangeInclusive<N>) -> Option<N>
    where
        N: TryFrom<u64> + PartialOrd + Display,
    {
        let want = whole_number(&range);
        self.read(key, want, |value| within(value, &range))
    }

    /// Like [`Section::number`], and notes it where the key is absent from a table that is there.
    pub(crate) fn need_number<N>(
        &mut self,
        key: &'static str,
        range: RangeInclusive<N>,
    ) -> Option<N>
    where
        N: TryFrom<u64> + PartialOrd + Display,
    {
        let want = whole_number(&range);
        self.need(key, want, |value| within(value, &range))
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
        let line = self.line_of(key);
        let names = self.list(key, &want, name);
        let empty = names.as_ref().is_some_and(Vec::is_empty);
        if empty {
            self.refuse(line, &format!("{key}: want {want}, found an empty list"));
        }
        names.filter(|_| !empty)
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
        let want = format!("one of {}", Choices(choices));
        let show = |value: &DeValue<'_>| format!("{}{}", Shown(value), hint(value, choices));
        self.parse(key, want, |value| choose(value, choices), show)
    }

    /// One of a few words, which must be given.
    pub(crate) fn need_choice<T: Copy>(
        &mut self,
        key: &'static str,
        choices: &[(&str, T)],
    ) -> Option<T> {
        self.needs(key, &format!("one of {}", Choices(choices)));
        self.choice(key, choices)
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

fn whole_number<N: Display>(range: &RangeInclusive<N>) -> String {
    format!("a whole number from {} to {}", range.start(), range.end())
}

fn within<N>(value: &DeValue<'_>, range: &RangeInclusive<N>) -> Option<N>
where
    N: TryFrom<u64> + PartialOrd,
{
    let number = N::try_from(integer(value)?).ok()?;
    range.contains(&number).then_some(number)
}

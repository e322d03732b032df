//! A file's tables with the line of each value.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use toml::de::{DeTable, DeValue};

use super::Section;
use super::values::Shown;
use crate::error::{Problem, Problems, unknown};

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
    "engine",
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
    pub(super) path: &'a Path,
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

    /// The line of a table's key, while the table has not been taken out.
    pub(crate) fn line_of_key(&self, section: &str, key: &str) -> Option<usize> {
        let table = self.sections.get(section)?.value.as_table()?;
        let (key, _) = table.iter().find(|(name, _)| name.get_ref() == key)?;
        Some(self.line_of(key.span().start))
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
        let (line, table) = match self.take(name) {
            None => (None, DeTable::new()),
            Some(Located {
                line,
                value: DeValue::Table(table),
                ..
            }) => (Some(line), table),
            Some(Located { span, value, .. }) => {
                let found = Shown(&value).to_string();
                self.problem_at(Some(span), format!("want a table [{name}], found {found}"));
                (None, DeTable::new())
            }
        };
        self.read_table(name.to_owned(), line, table, read)
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
            let line = Some(self.line_of(span.start));
            all.push(self.read_table(shown.to_owned(), line, table, &read));
        }
        all
    }

    /// Reads a table that was taken out, and notes what nobody asked for. `line` is that of its header.
    pub(super) fn read_table<T>(
        &mut self,
        name: String,
        line: Option<usize>,
        table: DeTable<'a>,
        read: impl FnOnce(&mut Section<'_, 'a>) -> T,
    ) -> T {
        let entries = self.locate(table);
        let mut section = Section::new(name, line, entries, self);
        let read = read(&mut section);
        section.refuse_unknown();
        read
    }

    /// Notes something that is wrong at these bytes of the text.
    pub(crate) fn problem_at(&mut self, span: Option<Range<usize>>, message: String) {
        let line = span.map(|span| self.line_of(span.start));
        self.problem(line, message);
    }

    pub(crate) fn problem(&mut self, line: Option<usize>, message: String) {
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

//! The file of API keys: one `[[key]]` for each, with a hash in the key's place.
//!
//! A file of its own, so that keys can be exchanged (and kept) apart from the rest, and so that a new
//! entry can be put at its end.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

use time::{Date, Month, OffsetDateTime};
use toml::de::DeValue;

use crate::admin::hash;
use crate::admission::limits;
use crate::api_key::is_id;
use crate::section::{Document, NAME, Section, name};
use crate::{ConfigError, Limits, Problems, Sha256, Unreadable};

/// All keys of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyFile {
    /// None of them has another's id.
    pub keys: Vec<KeyEntry>,
}

/// What is kept of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyEntry {
    /// The part of the key that is no secret.
    pub id: String,
    /// Whose it is; a tenant may have several.
    pub tenant: String,
    /// What its owner calls it.
    pub name: Option<String>,
    /// Of the whole key.
    pub hash: Sha256,
    /// Seconds since 1970 from which it opens nothing; `None`: never.
    pub expires: Option<u64>,
    /// The SLO class of its requests that name none; `None`: the configuration's.
    pub class: Option<String>,
    /// SLO classes that it may ask for; `None`: every one.
    pub classes: Option<Vec<String>>,
    /// Models that it may use; `None`: every one.
    pub models: Option<Vec<String>>,
    /// What it may use at once and over time.
    pub limits: Limits,
}

impl KeyFile {
    /// Reads a file.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|error| Unreadable {
            path: path.to_owned(),
            error,
        })?;
        Ok(Self::parse(&text, path)?)
    }

    /// Reads the text of a file that stands, or would stand, at `path`.
    pub fn parse(text: &str, path: &Path) -> Result<Self, Problems> {
        let mut document = Document::parse(text, path, &["key"])?;
        let ids = std::cell::RefCell::new(BTreeSet::new());
        let keys = document.tables("key", "[key]", |section| {
            let line = section.line_of("id");
            let entry = read(section);
            if let Some(entry) = &entry
                && !ids.borrow_mut().insert(entry.id.clone())
            {
                section.refuse(line, &format!("id: {} is there twice", entry.id));
            }
            entry
        });
        document.finish()?;
        let keys = keys.into_iter().flatten().collect();
        Ok(Self { keys })
    }
}

fn read(section: &mut Section<'_, '_>) -> Option<KeyEntry> {
    let id = section.need("id", "12 hexadecimal digits", |value| {
        value.as_str().filter(|id| is_id(id)).map(str::to_owned)
    });
    let tenant = section.need("tenant", NAME, name);
    let own = section.read("name", NAME, name);
    let want = "\"sha256:\" and 64 hexadecimal digits";
    if section.line_of("hash").is_none() {
        section.refuse(None, &format!("needs `hash`: {want}"));
    }
    let hash = section.read_hidden("hash", want, hash);
    let expires = section.read("expires", EXPIRY, |value| match value {
        DeValue::Datetime(found) => moment(found),
        _ => None,
    });
    let class_line = section.line_of("class");
    let class = section.read("class", NAME, name);
    let classes = section.names("classes");
    if let (Some(class), Some(classes)) = (&class, &classes)
        && !classes.contains(class)
    {
        section.refuse(
            class_line,
            &format!("class: {class} is none of its classes"),
        );
    }
    let models = section.names("models");
    let limits = limits(section);
    Some(KeyEntry {
        id: id?,
        tenant: tenant?,
        name: own,
        hash: hash?,
        expires,
        class,
        classes,
        models,
        limits,
    })
}

/// What a key's end looks like, for messages.
const EXPIRY: &str = "a day such as 2027-01-31, or a moment such as 2027-01-31T12:00:00Z";

/// Text that says no end of a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("want {EXPIRY}, found {0:?}")]
pub struct InvalidExpiry(pub String);

/// Seconds since 1970 at which a key ends, as a file's `expires` has it.
///
/// # Errors
/// [`InvalidExpiry`].
pub fn parse_expiry(text: &str) -> Result<u64, InvalidExpiry> {
    let found = text.trim().parse().ok();
    found
        .and_then(|found| moment(&found))
        .ok_or_else(|| InvalidExpiry(text.to_owned()))
}

/// Seconds since 1970; of a day, those at which it begins in UTC.
fn moment(found: &toml::value::Datetime) -> Option<u64> {
    let date = found.date?;
    let month = Month::try_from(date.month).ok()?;
    let date = Date::from_calendar_date(i32::from(date.year), month, date.day).ok()?;
    let day = match (found.time, found.offset) {
        (None, None) => date.midnight().assume_utc().unix_timestamp(),
        (Some(time), Some(offset)) => {
            let minutes = match offset {
                toml::value::Offset::Z => 0,
                toml::value::Offset::Custom { minutes } => i64::from(minutes),
            };
            // A leap second is the next minute's first.
            let seconds = i64::from(time.hour) * 3600
                + i64::from(time.minute) * 60
                + i64::from(time.second.unwrap_or(0));
            date.midnight().assume_utc().unix_timestamp() + seconds - minutes * 60
        }
        _ => return None,
    };
    u64::try_from(day).ok()
}

impl KeyEntry {
    /// When it ends, as the file has it; `None`: never.
    #[must_use]
    pub fn shown_expiry(&self) -> Option<String> {
        self.expires.map(shown)
    }

    /// The entry as a file has it, to be put at its end.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let quoted = |text: &String| toml::Value::String(text.clone());
        let list = |names: &[String]| toml::Value::Array(names.iter().map(quoted).collect());
        let mut text = format!(
            "[[key]]\nid = \"{}\"\ntenant = {}\nhash = \"sha256:{}\"\n",
            self.id,
            quoted(&self.tenant),
            self.hash
        );
        let mut line = |key: &str, value: Option<String>| {
            if let Some(value) = value {
                let _ = writeln!(text, "{key} = {value}");
            }
        };
        line(
            "name",
            self.name.as_ref().map(|name| quoted(name).to_string()),
        );
        line("expires", self.expires.map(shown));
        line(
            "class",
            self.class.as_ref().map(|name| quoted(name).to_string()),
        );
        line(
            "classes",
            self.classes.as_deref().map(|names| list(names).to_string()),
        );
        line(
            "models",
            self.models.as_deref().map(|names| list(names).to_string()),
        );
        let limits = self.limits;
        let number = |n: Option<u32>| n.map(|n| n.to_string());
        let tokens = limits.tokens_per_minute.map(|n| n.to_string());
        line("requests_per_second", number(limits.requests_per_second));
        line("tokens_per_minute", tokens);
        line("concurrency", number(limits.concurrency));
        text
    }
}

/// The moment as TOML has it.
fn shown(seconds: u64) -> String {
    let moment = i64::try_from(seconds)
        .ok()
        .and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok());
    let Some(moment) = moment else {
        return "9999-12-31".to_owned();
    };
    let (hour, minute, second) = moment.to_hms();
    format!("{}T{hour:02}:{minute:02}:{second:02}Z", moment.date())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<KeyFile, Vec<String>> {
        let problems = |e: Problems| e.list().iter().map(ToString::to_string).collect();
        KeyFile::parse(text, Path::new("keys.toml")).map_err(problems)
    }

    fn entry() -> impl Strategy<Value = KeyEntry> {
        let name = "[a-zA-Z0-9._:@/-]{1,20}";
        let names = proptest::option::of(proptest::collection::vec(name, 1..4));
        let limit = || proptest::option::of(1..=1_000_000u32);
        let expires = proptest::option::of(0..=253_402_300_799u64);
        (
            (
                "[0-9a-f]{12}",
                name,
                proptest::option::of(name),
                any::<[u8; 32]>(),
            ),
            (expires, names.clone(), names),
            (limit(), limit(), limit()),
        )
            .prop_map(|(head, tail, limits)| KeyEntry {
                id: head.0,
                tenant: head.1,
                name: head.2,
                hash: Sha256(head.3),
                expires: tail.0,
                class: tail
                    .1
                    .as_ref()
                    .map(|classes: &Vec<String>| classes[0].clone()),
                classes: tail.1,
                models: tail.2,
                limits: Limits {
                    requests_per_second: limits.0,
                    tokens_per_minute: limits.1.map(u64::from),
                    concurrency: limits.2,
                },
            })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(mut keys in proptest::collection::vec(entry(), 0..6)) {
            keys.sort_by(|a, b| a.id.cmp(&b.id));
            keys.dedup_by(|a, b| a.id == b.id);
            let text: String = keys.iter().map(|key| key.to_toml() + "\n").collect();
            prop_assert_eq!(parse(&text), Ok(KeyFile { keys }), "{}", text);
        }

        #[test]
        fn a_spoilt_file_is_read_or_refused_line_by_line(
            keys in proptest::collection::vec(entry(), 1..3),
            edits in proptest::collection::vec((any::<u16>(), any::<u8>()), 1..5),
        ) {
            let text: String = keys.iter().map(KeyEntry::to_toml).collect();
            let mut bytes = text.into_bytes();
            for (at, byte) in edits {
                let at = usize::from(at) % bytes.len();
                bytes[at] = byte;
            }
            if let Err(problems) = parse(&String::from_utf8_lossy(&bytes)) {
                prop_assert!(!problems.is_empty());
                for problem in problems {
                    prop_assert!(problem.starts_with("keys.toml:") && !problem.contains('\n'), "{}", problem);
                }
            }
        }
    }

    #[test]
    fn what_is_wrong_with_a_key_is_located() {
        let hash = format!("sha256:{}", "ab".repeat(32));
        let text = format!(
            "[[key]]\nid = \"0123456789ab\"\ntenant = \"a b\"\nhash = \"{hash}\"\n\
             [[key]]\nid = \"0123456789ac\"\ntenant = \"t\"\nexpires = 2027-01-31T00:00:00\nmodells = [\"x\"]\n\
             [[key]]\nid = \"0123456789ad\"\ntenant = \"t\"\nhash = \"{hash}\"\n\
             [[key]]\nid = \"0123456789ad\"\ntenant = \"t\"\nhash = \"{hash}\"\n"
        );
        let want = [
            "keys.toml:3: [[key]] tenant: want 1 to 128 letters, digits or any of -_.:@/, found the text \"a b\"",
            "keys.toml:5: [[key]] needs `hash`: \"sha256:\" and 64 hexadecimal digits",
            "keys.toml:8: [[key]] expires: want a day such as 2027-01-31, or a moment such as \
             2027-01-31T12:00:00Z, found the date 2027-01-31T00:00:00",
            "keys.toml:9: unknown key `modells` in [[key]]; did you mean `models`?",
            "keys.toml:15: [[key]] id: 0123456789ad is there twice",
        ];
        assert_eq!(parse(&text).unwrap_err(), want);
        // Whoever put the key itself there does not find it in the log.
        let bare = text.replace(&hash, "tandem-0123456789ab-geheim");
        let wrong = parse(&bare).unwrap_err().join("\n");
        assert!(
            wrong.contains("found something else") && !wrong.contains("geheim"),
            "{wrong}"
        );
        let wrong = parse("[key]\nid = 1\n").unwrap_err();
        assert_eq!(wrong, ["keys.toml:1: want tables [[key]], found a table"]);
    }

    #[test]
    fn a_day_begins_at_midnight_of_utc_and_a_moment_knows_its_offset() {
        let expires = |text: &str| {
            let hash = "ab".repeat(32);
            let text = format!(
                "[[key]]\nid = \"0123456789ab\"\ntenant = \"t\"\nhash = \"sha256:{hash}\"\nexpires = {text}\n"
            );
            parse(&text).map(|file| file.keys[0].expires.unwrap())
        };
        assert_eq!(expires("1970-01-02"), Ok(86_400));
        assert_eq!(expires("1970-01-02T01:00:00+01:00"), Ok(86_400));
        assert_eq!(expires("2000-01-01T00:00:30Z"), Ok(946_684_830));
        assert!(expires("1969-12-31").is_err());
        assert!(expires("\"2000-01-01\"").is_err());
    }

    #[test]
    fn an_end_is_read_as_a_file_has_it_and_nothing_else_is() {
        assert_eq!(parse_expiry("1970-01-02"), Ok(86_400));
        assert_eq!(parse_expiry(" 1970-01-02 01:00:00+01:00"), Ok(86_400));
        for bad in [
            "",
            "tomorrow",
            "2027-02-30",
            "2027-01-31T12:00:00",
            "12:00:00",
            "1969-12-31",
            "2027-01-31\nx = 1",
        ] {
            let error = parse_expiry(bad).unwrap_err().to_string();
            assert!(error.ends_with(&format!("found {bad:?}")), "{error}");
        }
    }
}

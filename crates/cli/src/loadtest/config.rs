//! `--config FILE`: flags from a TOML file, by their names. What the command line says goes before the file.
//!
//! The file becomes flags before the command line is read, so that all rules about flags hold for both.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, Args, Command};
use toml::Value;

use super::args::LoadtestArgs;
use crate::failure::Failure;

/// The subcommand whose flags these are.
const COMMAND: &str = "loadtest";
const CONFIG: &str = "config";
/// The flag whose value is an object: in the file it may be a table.
const BODY: &str = "body";

/// Which lines of a file set which flags: what is wrong with a value often shows only once all of them are together.
#[derive(Debug, Default)]
pub(crate) struct Origins {
    path: PathBuf,
    /// By the flags' names, without --.
    lines: BTreeMap<String, usize>,
}

impl Origins {
    /// Names file and line, where the failure is about a flag that they set.
    pub(crate) fn locate(&self, failure: Failure) -> Failure {
        let name = failure.flag().and_then(|flag| flag.strip_prefix("--"));
        let Some((name, line)) = name.and_then(|name| self.lines.get_key_value(name)) else {
            return failure;
        };
        let path = self.path.display();
        failure.set_at(&format!("--config {path}:{line}: {name}"))
    }
}

/// The arguments of this process, with what the file of `tandem loadtest --config FILE` says among them, and where it
/// says so.
pub(crate) fn arguments(
    given: impl Iterator<Item = OsString>,
) -> Result<(Vec<OsString>, Origins), Failure> {
    let mut all: Vec<OsString> = given.collect();
    let Some(path) = file(&all) else {
        return Ok((all, Origins::default()));
    };
    let text = std::fs::read_to_string(&path)
        .map_err(|error| Failure::mendable(format!("--config {}: {error}", path.display())))?;
    let (more, lines) = flags(&path, &text, &all[2..])?;
    all.splice(2..2, more.into_iter().map(OsString::from));
    Ok((all, Origins { path, lines }))
}

fn command() -> Command {
    LoadtestArgs::augment_args(Command::new(COMMAND))
}

/// The file that is named, where the arguments are those of a test.
fn file(all: &[OsString]) -> Option<PathBuf> {
    let given = all.get(2..)?;
    let is_test = all[1] == COMMAND && command().find_subcommand(given.first()?).is_none();
    let mut given = given.iter().take_while(|argument| *argument != "--");
    while let Some(argument) = given.by_ref().next().filter(|_| is_test) {
        let argument = argument.to_str().unwrap_or_default();
        if let Some(path) = argument.strip_prefix("--config=") {
            return Some(path.into());
        }
        if argument == "--config" {
            return given.next().map(PathBuf::from);
        }
    }
    None
}

/// A key of the file.
struct Key<'a> {
    path: &'a Path,
    line: usize,
    name: &'a str,
}

impl Key<'_> {
    fn wrong(&self, problem: impl std::fmt::Display) -> Failure {
        let (path, line, name) = (self.path.display(), self.line, self.name);
        Failure::mendable(format!("--config {path}:{line}: {name}: {problem}"))
    }
}

/// The flags that a file sets and the command line does not, and the lines of their names.
fn flags(
    path: &Path,
    text: &str,
    given: &[OsString],
) -> Result<(Vec<String>, BTreeMap<String, usize>), Failure> {
    let command = command();
    let values: toml::Table = toml::from_str(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        let (path, line) = (path.display(), line_of(text, at));
        Failure::mendable(format!("--config {path}:{line}: {}", error.message()))
    })?;
    // The same once more, for its keys' places.
    let places = toml::de::DeTable::parse(text).map_err(Failure::mendable)?;
    let (mut flags, mut lines) = (Vec::new(), BTreeMap::new());
    for key in places.get_ref().keys() {
        let name: &str = key.get_ref();
        let line = line_of(text, key.span().start);
        let key = Key { path, line, name };
        let argument = known(&command, name).ok_or_else(|| key.wrong(unknown(&command, name)))?;
        let own = values
            .get(name)
            .map_or(Ok(Vec::new()), |value| shown(&key, argument, value))?;
        check(&command, &key, &own)?;
        if !is_decided(&command, argument, given) {
            flags.extend(own);
            lines.insert(name.to_owned(), line);
        }
    }
    Ok((flags, lines))
}

fn line_of(text: &str, at: usize) -> usize {
    1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count()
}

/// The flags that a file may set.
fn settable(command: &Command) -> impl Iterator<Item = (&str, &Arg)> {
    let named = |argument: &Arg| !matches!(argument.get_long(), None | Some(CONFIG));
    let arguments = command.get_arguments().filter(move |one| named(one));
    arguments.filter_map(|argument| Some((argument.get_long()?, argument)))
}

fn known<'a>(command: &'a Command, name: &str) -> Option<&'a Arg> {
    let mut all = settable(command);
    Some(all.find(|(long, _)| *long == name)?.1)
}

fn unknown(command: &Command, name: &str) -> String {
    let near = |long: &str| strsim::jaro_winkler(long, name);
    let all = settable(command).map(|(long, _)| (near(long), long));
    match all.max_by(|a, b| a.0.total_cmp(&b.0)) {
        Some((likeness, long)) if likeness > 0.8 => format!("no such flag, did you mean {long}?"),
        _ => "no such flag: want names of the flags of `tandem loadtest`, without --".to_owned(),
    }
}

/// A value as flags.
fn shown(key: &Key<'_>, argument: &Arg, value: &Value) -> Result<Vec<String>, Failure> {
    let name = key.name;
    if let ArgAction::SetTrue = argument.get_action() {
        return match value {
            Value::Boolean(true) => Ok(vec![format!("--{name}")]),
            Value::Boolean(false) => Ok(Vec::new()),
            other => Err(key.wrong(format!("{}: want true or false", other.type_str()))),
        };
    }
    let one = |value: &Value| match value {
        Value::String(text) => Ok(format!("--{name}={text}")),
        Value::Integer(number) => Ok(format!("--{name}={number}")),
        Value::Float(number) => Ok(format!("--{name}={number}")),
        Value::Table(_) if name == BODY => {
            let json = serde_json::to_string(value).map_err(|error| key.wrong(error))?;
            Ok(format!("--{name}={json}"))
        }
        other => Err(key.wrong(format!("{}: want text or a number", other.type_str()))),
    };
    match value {
        Value::Array(values) if matches!(argument.get_action(), ArgAction::Append) => {
            values.iter().map(one).collect()
        }
        value => Ok(vec![one(value)?]),
    }
}

/// Refuses values that the flag does not take, by file and line.
fn check(command: &Command, key: &Key<'_>, flags: &[String]) -> Result<(), Failure> {
    let arguments = std::iter::once(COMMAND).chain(flags.iter().map(String::as_str));
    let Err(error) = command.clone().try_get_matches_from(arguments) else {
        return Ok(());
    };
    // What one flag alone lacks the others may have.
    let values = [ErrorKind::ValueValidation, ErrorKind::InvalidValue];
    if !values.contains(&error.kind()) {
        return Ok(());
    }
    let text = error.to_string();
    let first = text.lines().next().unwrap_or_default();
    Err(key.wrong(first.trim_start_matches("error: ")))
}

/// Whether the command line says this, or what cannot be together with it.
fn is_decided(command: &Command, argument: &Arg, given: &[OsString]) -> bool {
    let excludes = |one: &Arg, other: &Arg| {
        let others = command.get_arg_conflicts_with(one);
        others.iter().any(|found| found.get_id() == other.get_id())
    };
    let others = settable(command).filter(|(long, _)| is_given(long, given));
    others.into_iter().any(|(_, other)| {
        other.get_id() == argument.get_id()
            || excludes(argument, other)
            || excludes(other, argument)
    })
}

fn is_given(long: &str, given: &[OsString]) -> bool {
    let before = given.iter().take_while(|argument| *argument != "--");
    let mut named = before.filter_map(|argument| argument.to_str()?.strip_prefix("--"));
    named.any(|argument| argument.split('=').next() == Some(long))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str, given: &str) -> Result<Vec<String>, String> {
        let given: Vec<OsString> = given.split_whitespace().map(OsString::from).collect();
        let found = flags(Path::new("t.toml"), text, &given);
        found
            .map(|(flags, _)| flags)
            .map_err(|failure| failure.to_string())
    }

    #[test]
    fn names_and_values_become_flags_and_the_command_line_goes_before() {
        let text = "rate = \"4@30s,8\"\nrequests = 100\nignore-eos = true\nhttp2 = false\n\
                    slo = [\"ttft=1s\", \"chat:tpot=5ms\"]\n[body]\ntemperature = 0.5\n";
        let all = of(text, "").unwrap();
        for flag in [
            "--rate=4@30s,8",
            "--requests=100",
            "--ignore-eos",
            "--slo=chat:tpot=5ms",
            "--body={\"temperature\":0.5}",
        ] {
            assert!(all.iter().any(|found| found == flag), "{flag}: {all:?}");
        }
        assert_eq!(all.len(), 6, "{all:?}");
        let all = of(text, "--requests 5 --rate=3 --slo x").unwrap();
        assert_eq!(all.len(), 2, "{all:?}");
    }

    #[test]
    fn what_cannot_be_together_with_a_flag_is_left_out() {
        let text = "rate = 4\ninput = 5\nramp-up = \"1s\"\n";
        assert_eq!(
            of(text, "--concurrency 7").unwrap(),
            ["--input=5", "--ramp-up=1s"]
        );
        assert_eq!(
            of("concurrency = 3\n", "--rate 7").unwrap(),
            [""; 0],
            "whichever of the two names the other"
        );
    }

    #[test]
    fn what_is_wrong_is_named_by_file_and_line() {
        for (text, says) in [
            (
                "rate = 1\nspede = 2",
                "t.toml:2: spede: no such flag, did you mean speed?",
            ),
            ("\nxyz = 2", "t.toml:2: xyz: no such flag: want names"),
            ("config = \"x\"", "t.toml:1: config: no such flag"),
            ("rate = \"1\nseed = 2", "t.toml:1: "),
            ("seed = 1\nseed = 2", "t.toml:2: duplicate key"),
            ("\n\nseed = \"x\"", "t.toml:3: seed: invalid value 'x'"),
            ("repeats = 1000", "t.toml:1: repeats: invalid value '1000'"),
            ("api = \"soap\"", "t.toml:1: api: invalid value 'soap'"),
            ("quiet = 1", "t.toml:1: quiet: integer: want true or false"),
            (
                "rate = true",
                "t.toml:1: rate: boolean: want text or a number",
            ),
            (
                "rate = [1, 2]",
                "t.toml:1: rate: array: want text or a number",
            ),
        ] {
            let error = of(text, "").unwrap_err();
            assert!(error.contains(says), "{says}: {error}");
        }
        assert!(
            of("think = \"1s\"", "").is_ok(),
            "the other flag may be elsewhere"
        );
    }

    #[test]
    fn only_a_test_has_a_file() {
        let file = |text: &str| {
            let all: Vec<OsString> = text.split_whitespace().map(OsString::from).collect();
            file(&all)
        };
        let found = Some(PathBuf::from("f"));
        assert_eq!(file("tandem loadtest --config f --rate 5"), found);
        assert_eq!(file("tandem loadtest --rate 5 --config=f"), found);
        assert_eq!(file("tandem loadtest --rate 5"), None);
        assert_eq!(file("tandem loadtest merge --config f"), None);
        assert_eq!(file("tandem gateway --config f"), None);
        assert_eq!(file("tandem loadtest"), None);
        assert_eq!(file("tandem"), None);
    }
}

//! How a command ends when it does not end well.

use std::fmt::{self, Display};
use std::process::ExitCode;

use tandem_config::ConfigError;

use crate::console;

/// One line for each thing that is wrong, and the exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    lines: Vec<String>,
    code: u8,
    /// The flag whose value is wrong, such as `--rate`, where it is one flag's.
    flag: Option<&'static str>,
}

impl Failure {
    /// What the one who typed the command can mend: configuration, model, port. Exit code 2.
    pub(crate) fn mendable(message: impl Display) -> Self {
        Self::with_code(2, message)
    }

    /// Several such things, a line each. Exit code 2.
    pub(crate) fn mendable_all(messages: impl IntoIterator<Item = String>) -> Self {
        Self {
            lines: messages
                .into_iter()
                .map(|message| one_line(&message))
                .collect(),
            code: 2,
            flag: None,
        }
    }

    /// Anything else. Exit code 1.
    pub(crate) fn fault(message: impl Display) -> Self {
        Self::with_code(1, message)
    }

    /// With the exit code of the process that failed.
    pub(crate) fn with_code(code: u8, message: impl Display) -> Self {
        Self {
            lines: vec![one_line(&message.to_string())],
            code,
            flag: None,
        }
    }

    /// About the value of this flag.
    pub(crate) fn about(mut self, flag: &'static str) -> Self {
        self.flag = Some(flag);
        self
    }

    /// The flag whose value is wrong, where it is one flag's.
    pub(crate) const fn flag(&self) -> Option<&'static str> {
        self.flag
    }

    /// Names the place where the flag was set, instead of the flag.
    pub(crate) fn set_at(mut self, place: &str) -> Self {
        let flag = self.flag.map_or(String::new(), |flag| format!("{flag} "));
        for line in &mut self.lines {
            *line = format!("{place}: {}", line.strip_prefix(&flag).unwrap_or(line));
        }
        self
    }

    /// Says what is wrong on standard error.
    pub(crate) fn report(self) -> ExitCode {
        for line in &self.lines {
            console::complain(line);
        }
        ExitCode::from(self.code)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.lines.join("\n"))
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        match error {
            ConfigError::Unreadable(error) => Self::mendable(error),
            ConfigError::Problems(problems) => {
                let lines = problems
                    .list()
                    .iter()
                    .map(|problem| one_line(&problem.to_string()));
                Self {
                    lines: lines.collect(),
                    code: 2,
                    flag: None,
                }
            }
        }
    }
}

fn one_line(message: &str) -> String {
    message
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join("; ")
}

//! `[log]`: what a process says on standard error.

use std::fmt;

use crate::section::Section;

/// How much a process logs, and in which form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// What is logged. Default `info`.
    pub level: LogLevel,
    /// How a line looks. Default `text`.
    pub format: LogFormat,
}

/// Each level includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// What went wrong.
    Error,
    /// What may go wrong.
    Warn,
    /// What the process does.
    Info,
    /// What each request does.
    Debug,
    /// Everything.
    Trace,
}

/// The form of a line of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object.
    Json,
}

impl LogLevel {
    /// As written in configuration, and as `tracing` reads it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

impl fmt::Display for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            level: LogLevel::Info,
            format: LogFormat::Text,
        }
    }
}

const LEVELS: [(&str, LogLevel); 5] = [
    (LogLevel::Error.as_str(), LogLevel::Error),
    (LogLevel::Warn.as_str(), LogLevel::Warn),
    (LogLevel::Info.as_str(), LogLevel::Info),
    (LogLevel::Debug.as_str(), LogLevel::Debug),
    (LogLevel::Trace.as_str(), LogLevel::Trace),
];

pub(crate) fn read(section: &mut Section<'_, '_>) -> LogConfig {
    let default = LogConfig::default();
    LogConfig {
        level: section.choice("level", &LEVELS).unwrap_or(default.level),
        format: section
            .choice(
                "format",
                &[("text", LogFormat::Text), ("json", LogFormat::Json)],
            )
            .unwrap_or(default.format),
    }
}

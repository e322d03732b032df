//! A process's log, on standard error.

use std::io;

use tandem_config::{LogConfig, LogFormat, LogLevel};
use tracing_subscriber::EnvFilter;

/// Starts it. `RUST_LOG`, where it is set, decides what is logged instead of the configuration.
pub(crate) fn start(config: LogConfig) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(own(config)));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr);
    // A second start fails, and the first goes on.
    let _ = match config.format {
        LogFormat::Text => builder.with_ansi(false).try_init(),
        // What an event says stands beside its time and level, not below them.
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
}

/// Libraries speak up about trouble only, unless everything is wanted.
fn own(config: LogConfig) -> String {
    match config.level {
        LogLevel::Trace => "trace".to_owned(),
        LogLevel::Error => "error".to_owned(),
        level => format!("warn,tandem={level}"),
    }
}

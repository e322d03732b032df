//! A process's log, on standard error.

use std::io;
use std::sync::OnceLock;

use tandem_config::{LogConfig, LogFormat, LogLevel};
use tracing_subscriber::EnvFilter;

/// Exchanges the filter of the log that was started.
static CHANGE: OnceLock<Box<dyn Fn(EnvFilter) + Send + Sync>> = OnceLock::new();

/// Starts it. `RUST_LOG`, where it is set, decides what is logged instead of the configuration.
pub(crate) fn start(config: LogConfig) {
    let given = EnvFilter::try_from_default_env().ok();
    let is_given = given.is_some();
    let filter = given.unwrap_or_else(|| EnvFilter::new(own(config)));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr);
    // A second start fails, and the first goes on.
    let change: Box<dyn Fn(EnvFilter) + Send + Sync> = match config.format {
        LogFormat::Text => {
            let builder = builder.with_ansi(false).with_filter_reloading();
            let handle = builder.reload_handle();
            let _ = builder.try_init();
            Box::new(move |filter| drop(handle.reload(filter)))
        }
        LogFormat::Json => {
            // What an event says stands beside its time and level, not below them.
            let builder = builder.json().flatten_event(true).with_filter_reloading();
            let handle = builder.reload_handle();
            let _ = builder.try_init();
            Box::new(move |filter| drop(handle.reload(filter)))
        }
    };
    if !is_given {
        let _ = CHANGE.set(change);
    }
}

/// Logs at another level from now on, unless `RUST_LOG` decides.
pub(crate) fn change(config: LogConfig) {
    if let Some(change) = CHANGE.get() {
        change(EnvFilter::new(own(config)));
    }
}

/// Libraries speak up about trouble only, unless everything is wanted.
fn own(config: LogConfig) -> String {
    match config.level {
        LogLevel::Trace => "trace".to_owned(),
        LogLevel::Error => "error".to_owned(),
        level => format!("warn,tandem={level}"),
    }
}

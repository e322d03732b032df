//! `[control]`: QUIC connections.

use std::time::Duration;

use crate::section::Section;

/// Timing of control connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlConfig {
    /// Time between signs of life on a quiet connection. Default 500 ms.
    pub keep_alive: Duration,
    /// A connection that has been quiet for so long is lost; more than twice `keep_alive`.
    /// Default 3 s.
    pub idle_timeout: Duration,
}

impl Default for ControlConfig {
    fn default() -> Self {
        Self {
            keep_alive: Duration::from_millis(500),
            idle_timeout: Duration::from_secs(3),
        }
    }
}

pub(crate) fn read(section: &mut Section<'_, '_>) -> ControlConfig {
    let line = section
        .line_of("idle_timeout_ms")
        .or(section.line_of("keep_alive_ms"));
    let keep_alive = section.millis("keep_alive_ms", 10..=60_000, 500);
    let idle_timeout = section.millis("idle_timeout_ms", 30..=600_000, 3_000);
    if idle_timeout <= 2 * keep_alive {
        let message = format!(
            "idle_timeout_ms: want more than twice keep_alive_ms ({}), found {}",
            keep_alive.as_millis(),
            idle_timeout.as_millis()
        );
        section.refuse(line, &message);
    }
    ControlConfig {
        keep_alive,
        idle_timeout,
    }
}

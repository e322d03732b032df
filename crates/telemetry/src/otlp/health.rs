//! Whether a collector takes what it is sent: said once when that changes.

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Of one collector.
#[derive(Debug)]
pub(super) struct Health {
    endpoint: Arc<str>,
}

/// Of one kind of what it is sent.
#[derive(Debug)]
pub(super) struct HealthOf {
    endpoint: Arc<str>,
    what: &'static str,
    failing: AtomicBool,
}

impl Health {
    pub(super) fn new(endpoint: String) -> Self {
        Self {
            endpoint: endpoint.into(),
        }
    }

    pub(super) fn of(&self, what: &'static str) -> HealthOf {
        HealthOf {
            endpoint: Arc::clone(&self.endpoint),
            what,
            failing: AtomicBool::new(false),
        }
    }
}

impl HealthOf {
    /// What became of a try. Whether it was a change.
    pub(super) fn tried(&self, result: Result<(), &impl Display>) -> bool {
        let failed = result.is_err();
        let changed = self.failing.swap(failed, Ordering::Relaxed) != failed;
        match result {
            Err(error) if changed => {
                tracing::warn!(endpoint = %self.endpoint, what = self.what, %error,
                    "the collector takes no telemetry: it is dropped");
            }
            Ok(()) if changed => {
                tracing::info!(endpoint = %self.endpoint, what = self.what,
                    "the collector takes telemetry again");
            }
            Ok(()) | Err(_) => {}
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_change_is_said() {
        let health = Health::new("http://collector".to_owned()).of("spans");
        let (good, bad) = (Ok::<(), &&str>(()), Err(&"refused"));
        let said: Vec<bool> = [good, good, bad, bad, bad, good, good, bad]
            .into_iter()
            .map(|result| health.tried(result))
            .collect();
        assert_eq!(said, [false, false, true, false, false, true, false, true]);
    }
}

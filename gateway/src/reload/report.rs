//! How reloads went: for the log, for metrics and for the admin listener.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::files::Digest;

/// Digits of a hash that are shown.
const DIGITS: usize = 12;

/// What asked for a reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trigger {
    /// SIGHUP.
    Signal,
    /// A file has changed.
    File,
    /// The admin listener.
    Admin,
}

impl Trigger {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Signal => "signal",
            Self::File => "file",
            Self::Admin => "admin",
        }
    }
}

/// How one went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// In force, but for what needs a restart.
    Reloaded {
        /// Keys, and files beside the configuration file, that say something else than before.
        changed: Vec<String>,
        /// Keys that say something else than at the start and are not followed.
        restart: Vec<String>,
    },
    /// The files say what they said.
    Unchanged,
    /// Nothing was changed, and why. One line each.
    Failed {
        /// At least one.
        problems: Vec<String>,
    },
}

impl Outcome {
    pub(crate) const fn as_str(&self) -> &'static str {
        match self {
            Self::Reloaded { .. } => "reloaded",
            Self::Unchanged => "unchanged",
            Self::Failed { .. } => "failed",
        }
    }

    pub(crate) fn log(&self, trigger: Trigger, file: &Path) {
        let (trigger, file) = (trigger.as_str(), file.display());
        match self {
            Self::Reloaded { changed, restart } => {
                tracing::info!(%file, trigger, changed = changed.join(", "), "configuration reloaded");
                if !restart.is_empty() {
                    tracing::warn!(%file, "needs a restart: {}", restart.join(", "));
                }
            }
            Self::Unchanged => tracing::info!(%file, trigger, "configuration unchanged"),
            Self::Failed { problems } => {
                for problem in problems {
                    tracing::error!("{problem}");
                }
                tracing::error!(%file, trigger, "configuration not reloaded: the old one stays in force");
            }
        }
    }

    pub(crate) fn json(&self) -> Value {
        let mut value = json!({"result": self.as_str()});
        match self {
            Self::Reloaded { changed, restart } => {
                value["changed"] = json!(changed);
                value["needs_restart"] = json!(restart);
            }
            Self::Unchanged => {}
            Self::Failed { problems } => value["problems"] = json!(problems),
        }
        value
    }
}

/// What is in force, and how it came to be.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    file: PathBuf,
    /// Of what is in force, the configuration file first.
    digests: Vec<Digest>,
    /// The configuration that is in force, with its defaults.
    toml: String,
    pub(crate) reloaded: u64,
    pub(crate) unchanged: u64,
    pub(crate) failed: u64,
    /// The latest one: when (seconds since 1970), by what, and how it went.
    last: Option<(u64, Trigger, Outcome)>,
    restart: Vec<String>,
}

impl Report {
    pub(crate) fn at_start(file: &Path, digests: &[Digest]) -> Self {
        Self {
            file: file.to_owned(),
            digests: digests.to_vec(),
            toml: String::new(),
            reloaded: 0,
            unchanged: 0,
            failed: 0,
            last: None,
            restart: Vec::new(),
        }
    }

    pub(crate) fn note(&mut self, by: Trigger, outcome: &Outcome, digests: &[Digest], now: u64) {
        match outcome {
            Outcome::Reloaded { restart, .. } => {
                self.reloaded += 1;
                self.digests = digests.to_vec();
                self.restart.clone_from(restart);
            }
            Outcome::Unchanged => self.unchanged += 1,
            Outcome::Failed { .. } => self.failed += 1,
        }
        self.last = Some((now, by, outcome.clone()));
    }

    pub(crate) fn set_toml(&mut self, toml: String) {
        self.toml = toml;
    }

    /// The first digits of the configuration file's SHA-256.
    pub(crate) fn hash(&self) -> &str {
        let digest = self
            .digests
            .first()
            .and_then(|(_, digest)| digest.as_deref());
        short(digest)
    }

    /// Whether the latest reload succeeded, or there was none.
    pub(crate) fn success(&self) -> bool {
        !matches!(self.last, Some((_, _, Outcome::Failed { .. })))
    }

    /// Keys that the file has and the gateway does not follow.
    pub(crate) fn restart(&self) -> &[String] {
        &self.restart
    }

    /// The tables of the configuration that is in force, secrets left out.
    pub(crate) fn tables(&self) -> Value {
        let table: toml::Table = self.toml.parse().unwrap_or_default();
        let mut tables = serde_json::to_value(table).unwrap_or_default();
        if let Some(hash) = tables.pointer_mut("/admin/key_hash") {
            *hash = json!("(not shown)");
        }
        tables
    }

    pub(crate) fn json(&self) -> Value {
        let files = self
            .digests
            .iter()
            .map(|(path, digest)| json!({"path": path.display().to_string(), "sha256": digest}));
        let last = self.last.as_ref().map(|(when, trigger, outcome)| {
            let mut value = outcome.json();
            value["at"] = json!(when);
            value["by"] = json!(trigger.as_str());
            value
        });
        json!({
            "file": self.file.display().to_string(),
            "hash": self.hash(),
            "files": files.collect::<Vec<_>>(),
            "needs_restart": self.restart,
            "last_reload": last,
        })
    }
}

fn short(digest: Option<&str>) -> &str {
    digest.and_then(|digest| digest.get(..DIGITS)).unwrap_or("")
}

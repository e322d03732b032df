//! Exchanging the configuration of a running gateway.
//!
//! Owns the file that the gateway was started from, and the order of a reload: read and check all of
//! it, have every part of the gateway make ready what it needs (new keys are read, a policy is built),
//! and only where nothing failed put all of it in force. A reload that fails changes nothing. The clients'
//! and the operators' certificates are looked at with the rest.
//!
//! A signal, the admin listener, or a change of one of the files asks for it. A file's change is taken
//! once all files have been left alone for one [`LOOK_EVERY`], so that no half-written one is read.

mod files;
mod report;

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tandem_config::{Config, ConfigError, GatewayConfig, LogConfig, Unreadable, changed_keys};
use tandem_wire::task::{Task, spawn};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{MissedTickBehavior, interval};

use crate::app::unix_seconds;
use crate::http::{NextCertificate, Tls};
use files::Files;

pub(crate) use report::{Outcome, Report, Trigger};

/// Between two looks at the files.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Callers of the admin listener that may wait for a reload.
const WAITING: usize = 8;

/// The keys, and tables of keys, whose change needs no restart. A part that comes to follow the
/// configuration adds its own.
const RELOADABLE: &[&str] = &[
    "gateway.workers",
    "gateway.request_timeout_ms",
    "gateway.header_timeout_ms",
    "gateway.max_body_bytes",
    "gateway.max_connections",
    "gateway.queue_limit",
    "gateway.default_max_tokens",
    "gateway.max_choices",
    "gateway.drain_timeout_ms",
    "gateway.drain_pause_ms",
    "http.idle_timeout_ms",
    "http.min_body_bytes_per_s",
    "http.max_streams",
    "auth",
    "admin.key_hash",
    "admission",
    "policy",
    "log.level",
];

/// Where a gateway's configuration came from, and what its process does when it changes.
pub struct Origin {
    /// The file.
    file: PathBuf,
    /// What it said at the start.
    text: String,
    /// Each message asks for a reload.
    hangups: mpsc::Receiver<()>,
    /// Changes what is logged.
    set_log: Box<dyn Fn(LogConfig) + Send + Sync>,
    /// A configuration with all defaults, as TOML.
    describe: fn(&Config) -> String,
}

impl std::fmt::Debug for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Origin")
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

impl Origin {
    /// Reads a file that will be followed. Each message of `hangups` asks for a reload, `set_log` is told
    /// what to log from then on, `describe` writes a configuration with all its defaults as TOML.
    ///
    /// # Errors
    /// [`ConfigError`]: the file cannot be read, or something in it is wrong.
    pub fn load(
        file: &Path,
        hangups: mpsc::Receiver<()>,
        set_log: impl Fn(LogConfig) + Send + Sync + 'static,
        describe: fn(&Config) -> String,
    ) -> Result<(Config, Self), ConfigError> {
        let (config, text) = read(file)?;
        let origin = Self {
            file: file.to_owned(),
            text,
            hangups,
            set_log: Box::new(set_log),
            describe,
        };
        Ok((config, origin))
    }
}

fn read(file: &Path) -> Result<(Config, String), ConfigError> {
    let text = std::fs::read_to_string(file).map_err(|error| Unreadable {
        path: file.to_owned(),
        error,
    })?;
    Ok((Config::parse(&text, file)?, text))
}

/// What puts a part's new settings in force. Cannot fail.
pub(crate) type Commit = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A part of the gateway that follows the configuration.
pub(crate) trait Part: Send + Sync {
    /// Makes ready what `new` asks for and changes nothing yet: another part may fail. `None` where it
    /// is what `old` asked for. May read files. The error is for the operator, and starts with the key.
    fn prepare(&self, old: &GatewayConfig, new: &GatewayConfig) -> Result<Option<Commit>, String>;
}

impl<F> Part for F
where
    F: Fn(&GatewayConfig, &GatewayConfig) -> Result<Option<Commit>, String> + Send + Sync,
{
    fn prepare(&self, old: &GatewayConfig, new: &GatewayConfig) -> Result<Option<Commit>, String> {
        self(old, new)
    }
}

/// Asks for reloads, and knows how they went. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Reloads {
    asks: mpsc::Sender<oneshot::Sender<Outcome>>,
    report: watch::Receiver<Arc<Report>>,
}

impl Reloads {
    /// Reloads now. `None` where the gateway ends first.
    pub(crate) async fn now(&self) -> Option<Outcome> {
        let (answer, answered) = oneshot::channel();
        self.asks.send(answer).await.ok()?;
        answered.await.ok()
    }

    pub(crate) fn report(&self) -> Arc<Report> {
        Arc::clone(&self.report.borrow())
    }
}

/// Follows the file until the handle is dropped.
pub(crate) fn follow(
    origin: Origin,
    config: &GatewayConfig,
    parts: Vec<Box<dyn Part>>,
    tls: Vec<Tls>,
) -> (Reloads, Task<()>) {
    let (asks, asked) = mpsc::channel(WAITING);
    let files = Files::of(&origin.file, config);
    let mut report = Report::at_start(&origin.file, files.digests());
    report.set_toml(describe(&origin));
    tracing::info!(file = %origin.file.display(), hash = report.hash(), "configuration");
    let (publish, subscriber) = watch::channel(Arc::new(report));
    let follower = Follower {
        started_with: origin.text.clone(),
        live_text: origin.text.clone(),
        live: Arc::new(config.clone()),
        parts: parts.into(),
        tls,
        files,
        origin,
        publish,
    };
    let reloads = Reloads {
        asks,
        report: subscriber,
    };
    (reloads, spawn("reload", follower.run(asked)))
}

fn describe(origin: &Origin) -> String {
    Config::parse(&origin.text, &origin.file)
        .map_or_else(|_| String::new(), |c| (origin.describe)(&c))
}

/// What the task owns.
struct Follower {
    origin: Origin,
    started_with: String,
    live_text: String,
    live: Arc<GatewayConfig>,
    parts: Arc<[Box<dyn Part>]>,
    /// Certificates that others see, which watches of their own look at too, and less often.
    tls: Vec<Tls>,
    files: Files,
    publish: watch::Sender<Arc<Report>>,
}

/// All that a reload needs to go on once nothing can fail any more.
struct Prepared {
    config: Config,
    gateway: GatewayConfig,
    text: String,
    files: Files,
    commits: Vec<Commit>,
    certificates: Vec<(Tls, NextCertificate)>,
}

impl Follower {
    async fn run(mut self, mut asked: mpsc::Receiver<oneshot::Sender<Outcome>>) {
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut signals = true;
        loop {
            tokio::select! {
                hangup = self.origin.hangups.recv(), if signals => match hangup {
                    Some(()) => drop(self.reload(Trigger::Signal).await),
                    None => signals = false,
                },
                ask = asked.recv() => match ask {
                    Some(answer) => {
                        let outcome = self.reload(Trigger::Admin).await;
                        let _ = answer.send(outcome);
                    }
                    None => return,
                },
                _ = looks.tick() => if self.files.have_settled() {
                    self.reload(Trigger::File).await;
                },
            }
        }
    }

    async fn reload(&mut self, trigger: Trigger) -> Outcome {
        let (file, live, parts, tls) = (
            self.origin.file.clone(),
            Arc::clone(&self.live),
            Arc::clone(&self.parts),
            self.tls.clone(),
        );
        let preparing = tokio::task::spawn_blocking(move || prepare(&file, &live, &parts, &tls));
        let prepared = match preparing.await {
            Ok(prepared) => prepared,
            Err(_) => Err(vec!["the configuration could not be read".to_owned()]),
        };
        let outcome = match prepared {
            Err(problems) => {
                self.files.note();
                Outcome::Failed { problems }
            }
            Ok(prepared)
                if prepared.files.digests() == self.files.digests()
                    && prepared.certificates.is_empty() =>
            {
                self.files = prepared.files;
                Outcome::Unchanged
            }
            Ok(prepared) => self.commit(prepared).await,
        };
        outcome.log(trigger, &self.origin.file);
        let digests = self.files.digests().to_vec();
        let toml = (self.origin.describe, &self.live_text);
        self.publish.send_modify(|report| {
            let mut next = Report::clone(report);
            next.note(trigger, &outcome, &digests, unix_seconds());
            if matches!(outcome, Outcome::Reloaded { .. })
                && let Ok(config) = Config::parse(toml.1, &self.origin.file)
            {
                next.set_toml((toml.0)(&config));
            }
            *report = Arc::new(next);
        });
        outcome
    }

    async fn commit(&mut self, prepared: Prepared) -> Outcome {
        for commit in prepared.commits {
            commit.await;
        }
        let certificates = prepared.certificates.into_iter().map(|(tls, next)| {
            tls.take(next);
            tls.config().certificate.display().to_string()
        });
        let certificates: Vec<String> = certificates.collect();
        (self.origin.set_log)(prepared.config.log);
        let mut changed = changed_keys(&self.live_text, &prepared.text).unwrap_or_default();
        let aside = self.files.changed_beside(&prepared.files);
        changed.extend(aside.iter().map(|path| path.display().to_string()));
        changed.extend(certificates);
        let since_start = changed_keys(&self.started_with, &prepared.text).unwrap_or_default();
        let restart = since_start
            .into_iter()
            .filter(|key| !is_reloadable(key))
            .collect();
        self.live_text = prepared.text;
        self.live = Arc::new(prepared.gateway);
        self.files = prepared.files;
        Outcome::Reloaded { changed, restart }
    }
}

/// Reads and checks everything. The problems are one line each.
fn prepare(
    file: &Path,
    live: &GatewayConfig,
    parts: &[Box<dyn Part>],
    tls: &[Tls],
) -> Result<Prepared, Vec<String>> {
    let lines = |text: String| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let (config, text) = read(file).map_err(|error| lines(error.to_string()))?;
    let Some(gateway) = config.gateway.clone() else {
        return Err(vec![format!("{}: has no [gateway]", file.display())]);
    };
    // Before what is in them is read: a later change is then seen as one.
    let files = Files::of(file, &gateway);
    let mut commits = Vec::new();
    let mut problems = Vec::new();
    for part in parts {
        match part.prepare(live, &gateway) {
            Ok(commit) => commits.extend(commit),
            Err(problem) => problems.extend(lines(problem)),
        }
    }
    let mut certificates = Vec::new();
    for tls in tls {
        match tls.look() {
            Ok(next) => certificates.extend(next.map(|next| (tls.clone(), next))),
            Err(error) => problems.push(format!("[{}] {error}", tls.whom().table())),
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    Ok(Prepared {
        config,
        gateway,
        text,
        files,
        commits,
        certificates,
    })
}

fn is_reloadable(key: &str) -> bool {
    RELOADABLE.iter().any(|reloadable| {
        key.strip_prefix(reloadable)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_reloadable_with_all_that_is_in_it_and_nothing_beside() {
        for key in [
            "auth",
            "auth.keys",
            "policy.decode.choose",
            "log.level",
            "gateway.workers",
        ] {
            assert!(is_reloadable(key), "{key}");
        }
        for key in [
            "gateway.listen",
            "admin",
            "admin.listen",
            "http.max_headers",
            "authority",
            "log.format",
            "gateway",
        ] {
            assert!(!is_reloadable(key), "{key}");
        }
    }
}

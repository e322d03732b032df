//! One life of one process: from its start to its end.

use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child as TokioChild, ChildStdout, Command};

use super::plan::Member;
use crate::lifetime::PARENT;
use crate::started::Started;
use crate::supervisor;

/// A process that runs, or has ended and was not waited for. Dropped, it is killed.
pub(super) struct Child {
    process: TokioChild,
    pid: u32,
    lines: Option<Lines<BufReader<ChildStdout>>>,
    log: PathBuf,
}

/// What happened to a child.
pub(super) enum Happened {
    /// It listens.
    Started(Started),
    /// It has ended.
    Ended(Ended),
}

/// How a process ended.
#[derive(Debug)]
pub(super) struct Ended {
    /// Its exit code; 1 where a signal ended it.
    pub(super) code: u8,
    /// In words, with its own last word where it had one.
    pub(super) how: String,
}

impl Child {
    /// Starts `member` in a process group of its own, so that a Ctrl-C reaches it only through
    /// this process. What it logs is added to `log`.
    pub(super) fn spawn(member: &Member, log: PathBuf) -> std::io::Result<Self> {
        let log_file = File::options().create(true).append(true).open(&log)?;
        let subcommand = if member.is_gateway() {
            "gateway"
        } else {
            "worker"
        };
        let mut process = Command::new(std::env::current_exe()?)
            .arg(subcommand)
            .arg("--config")
            .arg(member.path())
            .env(PARENT, std::process::id().to_string())
            // A manager's word is with this process, not with its parts.
            .env_remove(supervisor::SOCKET)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log_file)
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let pid = process.id().unwrap_or_default();
        let lines = process.stdout.take().map(|out| BufReader::new(out).lines());
        Ok(Self {
            process,
            pid,
            lines,
            log,
        })
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// Waits for the next thing that happens. May be dropped and called again.
    pub(super) async fn next(&mut self) -> Happened {
        loop {
            tokio::select! {
                line = next_line(&mut self.lines) => match line {
                    Some(line) => {
                        if let Some(started) = Started::read(&line) {
                            return Happened::Started(started);
                        }
                    }
                    None => self.lines = None,
                },
                status = self.process.wait() => {
                    return Happened::Ended(match status {
                        Ok(status) => self.explain(status),
                        Err(error) => Ended { code: 1, how: format!("was lost: {error}") },
                    });
                }
            }
        }
    }

    /// Asks it to end.
    pub(super) fn terminate(&mut self) {
        // Only a process that was not waited for: its id is nobody else's yet.
        if let Some(pid) = self
            .process
            .id()
            .and_then(|pid| Pid::from_raw(pid.cast_signed()))
        {
            let _ = kill_process(pid, Signal::TERM);
        }
    }

    /// Ends it.
    pub(super) fn kill(&mut self) {
        let _ = self.process.start_kill();
    }

    fn explain(&self, status: ExitStatus) -> Ended {
        let (code, how) = match (status.code(), status.signal()) {
            (Some(code), _) => (code, format!("ended with exit code {code}")),
            (None, signal) => (1, format!("was ended by signal {}", signal.unwrap_or(0))),
        };
        let how = match self.last_word() {
            Some(word) if code != 0 => format!("{how}: {word}"),
            _ => how,
        };
        Ended {
            code: u8::try_from(code).unwrap_or(1),
            how,
        }
    }

    /// Why it ended, in its own words: its log's last line, if it is such a one.
    fn last_word(&self) -> Option<String> {
        let log = std::fs::read(&self.log).ok()?;
        let log = String::from_utf8_lossy(&log);
        log.lines()
            .next_back()?
            .strip_prefix("tandem: ")
            .map(str::to_owned)
    }
}

/// For ever, once there are no more.
async fn next_line(lines: &mut Option<Lines<BufReader<ChildStdout>>>) -> Option<String> {
    match lines {
        Some(lines) => lines.next_line().await.ok().flatten(),
        None => std::future::pending().await,
    }
}

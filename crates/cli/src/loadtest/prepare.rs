//! The same runs on servers that differ: before each value a command of the operator's makes it so.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::args::LoadtestArgs;
use super::interrupt::Stop;
use super::requests::wrong;
use crate::failure::Failure;

/// A server that loads a large model is ready within this.
const WITHIN: Duration = Duration::from_mins(30);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// More is a mistake.
const MOST_VALUES: usize = 1000;

/// Values of something, and the command that makes the server so.
pub(super) struct Settings<'a> {
    name: &'a str,
    pub(super) values: Vec<&'a str>,
    command: &'a str,
}

/// What the command line asks for; `None` where the server stays as it is.
pub(super) fn settings(args: &LoadtestArgs) -> Result<Option<Settings<'_>>, Failure> {
    let (Some(text), Some(command)) = (&args.vary, &args.prepare) else {
        return Ok(None);
    };
    let want = || {
        let want = format!("{text:?}: want a name and values such as policy=random,kv_cost");
        wrong("--vary", want)
    };
    let (name, values) = text.split_once('=').ok_or_else(want)?;
    let values: Vec<&str> = values.split(',').map(str::trim).collect();
    let distinct: std::collections::BTreeSet<_> = values.iter().collect();
    if name.is_empty() || values.iter().any(|value| value.is_empty()) {
        return Err(want());
    }
    if distinct.len() < values.len() || values.len() > MOST_VALUES {
        let want = format!("{text:?}: want each value once, and {MOST_VALUES} at most");
        return Err(wrong("--vary", want));
    }
    Ok(Some(Settings {
        name,
        values,
        command,
    }))
}

impl Settings<'_> {
    /// As results call it.
    pub(super) fn label(&self, value: &str) -> String {
        format!("{}={value}", self.name)
    }

    /// Runs the command, to its end.
    pub(super) fn prepare(&self, value: &str, stop: &Stop) -> Result<(), Failure> {
        let label = self.label(value);
        let failed = |what: String| Failure::mendable(format!("--prepare for {label}: {what}"));
        let mut child = Command::new("sh")
            .args(["-c", self.command])
            .env("VALUE", value)
            .stdin(Stdio::null())
            // What it prints is no result.
            .stdout(std::io::stderr())
            // What it leaves running is the server, which Ctrl-C is not meant for.
            .process_group(0)
            .spawn()
            .map_err(|error| failed(error.to_string()))?;
        let until = Instant::now() + WITHIN;
        while Instant::now() < until {
            let ended = child
                .try_wait()
                .map_err(|error| failed(error.to_string()))?;
            if let Some(status) = ended {
                return said(status).map_err(failed);
            }
            if stop.is_asked() {
                end(child);
                return Err(failed("interrupted".to_owned()));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        end(child);
        Err(failed(format!(
            "no end within {} minutes",
            WITHIN.as_secs() / 60
        )))
    }
}

fn said(status: ExitStatus) -> Result<(), String> {
    match status.success() {
        true => Ok(()),
        false => Err(format!("the command failed: {status}")),
    }
}

/// With all that it started.
fn end(mut child: Child) {
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    // Not waited for yet: its id is nobody else's.
    if let Some(group) = group {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.kill();
    let _ = child.wait();
}

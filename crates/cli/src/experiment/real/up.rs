//! A fleet's processes.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tandem_plan::FleetPlan;

use super::super::ExperimentArgs;
use super::super::r1::PROFILE;
use crate::failure::Failure;
use crate::lifetime::PARENT;

const READY_WITHIN: Duration = Duration::from_secs(120);
/// `up` ends within five seconds of a signal.
const ENDS_WITHIN: Duration = Duration::from_secs(10);

/// How `tandem up` is told of its workers.
fn fleet(plan: &FleetPlan) -> Vec<String> {
    let decode = plan.decode.workers.to_string();
    let told = match &plan.prefill {
        Some(prefill) => vec![
            "--prefill".to_owned(),
            prefill.workers.to_string(),
            "--decode".to_owned(),
        ],
        None => vec!["--aggregated".to_owned()],
    };
    told.into_iter().chain([decode]).collect()
}

/// A running `tandem up`. It ends when this is dropped, and with this process.
pub(super) struct Up {
    process: Child,
    pub(super) url: String,
    /// Its workers, as `tandem up` was told of them.
    pub(super) fleet: String,
    _state: tempfile::TempDir,
}

impl Up {
    /// Starts one, and waits until it is ready. `policy` is a configuration with a `[policy]`.
    pub(super) fn start(
        args: &ExperimentArgs,
        plan: &FleetPlan,
        policy: Option<&str>,
    ) -> Result<Self, Failure> {
        let state = tempfile::tempdir().map_err(Failure::fault)?;
        let one = &plan.decode;
        let mut command = Command::new(std::env::current_exe().map_err(Failure::fault)?);
        command
            .args(["up", "--timed", PROFILE, "--listen", "127.0.0.1:0"])
            .args(["--time-scale", &args.scale().to_string()])
            .args(["--chunk-tokens", &one.chunk_tokens.to_string()])
            .args(["--max-batch", &one.max_batch.to_string()])
            .args(["--page-tokens", &one.page_tokens.to_string()])
            .arg("--state-dir")
            .arg(state.path())
            .args(fleet(plan))
            .env(PARENT, std::process::id().to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        if let Some(model) = &args.model {
            command.arg("--model").arg(model);
        }
        if let Some(policy) = policy {
            let path = state.path().join("policy.toml");
            std::fs::write(&path, policy).map_err(Failure::fault)?;
            command.arg("--policy").arg(path);
        }
        let mut process = command.spawn().map_err(Failure::fault)?;
        let out = process.stdout.take();
        let mut up = Self {
            process,
            url: String::new(),
            fleet: fleet(plan).join(" "),
            _state: state,
        };
        let (found, url) = mpsc::channel();
        // Reads on, so that `up` never waits for a reader; ends with it.
        std::thread::spawn(move || {
            let lines = out.map(|out| BufReader::new(out).lines());
            for line in lines.into_iter().flatten().map_while(Result::ok) {
                if let Some(url) = line.strip_prefix("ready ") {
                    let _ = found.send(url.to_owned());
                }
            }
        });
        let not_ready = |_| Failure::fault(format!("`tandem up {}` did not start", up.fleet));
        up.url = url.recv_timeout(READY_WITHIN).map_err(not_ready)?;
        Ok(up)
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let pid = i32::try_from(self.process.id())
            .ok()
            .and_then(Pid::from_raw);
        // Not waited for yet: its id is nobody else's.
        if let Some(pid) = pid {
            let _ = kill_process(pid, Signal::TERM);
        }
        let until = Instant::now() + ENDS_WITHIN;
        while Instant::now() < until {
            if !matches!(self.process.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

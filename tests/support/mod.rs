//! A fleet of real processes, started by `tandem up`, and gone when the test is over.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a part of it serves each test, and what it unwraps fails the test"
)]

pub mod known;

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tandem_loadtest::Client;

/// Time for a fleet to be ready on a slow and busy machine.
const START: Duration = Duration::from_secs(120);

/// A running `tandem up`.
pub struct Fleet {
    up: Child,
    state: tempfile::TempDir,
    address: SocketAddr,
}

/// A port that was free a moment ago.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

/// The model that the tests run.
pub fn model() -> PathBuf {
    let path = std::env::var_os("TANDEM_TEST_MODEL").map_or_else(
        || {
            let home = std::env::var_os("HOME").expect("HOME is set");
            Path::new(&home).join(".cache/tandem/models/SmolLM2-135M-Instruct.Q4_1.gguf")
        },
        PathBuf::from,
    );
    assert!(
        path.exists(),
        "{} is missing: run `make model`",
        path.display()
    );
    path
}

/// Sends a signal, such as `-INT`, to a process that the test started and has not waited for.
pub fn send(pid: u32, signal: &str) {
    let sent = Command::new("kill")
        .args([signal, &pid.to_string()])
        .status()
        .unwrap();
    assert!(sent.success());
}

/// The binary under test.
pub fn tandem() -> Command {
    Command::new(env!("CARGO_BIN_EXE_tandem"))
}

impl Fleet {
    /// Starts `tandem up` with `arguments` and waits until it is ready.
    pub fn up(arguments: &[&str]) -> Self {
        let state = tempfile::tempdir().unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let mut up = tandem()
            .arg("up")
            .args(["--listen", &address.to_string()])
            .arg("--state-dir")
            .arg(state.path())
            .arg("--model")
            .arg(model())
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let lines = BufReader::new(up.stdout.take().unwrap()).lines();
        let (ready, is_ready) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if line.starts_with("ready ") {
                    let _ = ready.send(());
                }
            }
        });
        let fleet = Self { up, state, address };
        is_ready.recv_timeout(START).unwrap_or_else(|_| {
            fleet.show_logs();
            panic!("`tandem up {arguments:?}` was not ready within {START:?}");
        });
        fleet
    }

    pub fn client(&self) -> Client {
        Client::new(self.address)
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its certificates, configuration and logs.
    pub fn state_dir(&self) -> &Path {
        self.state.path()
    }

    pub fn pid(&self) -> u32 {
        self.up.id()
    }

    /// The process id of the fleet's process of that name (`prefill-0`).
    pub fn pid_of(&self, name: &str) -> Option<u32> {
        children(self.pid()).into_iter().find(|pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(&format!("{name}.toml"))
        })
    }

    /// Sends a signal to a process of this fleet.
    pub fn signal(&self, pid: u32, signal: &str) {
        assert!(
            pid == self.pid() || children(self.pid()).contains(&pid),
            "only our own"
        );
        send(pid, signal);
    }

    /// Sends SIGINT, as Ctrl-C does, and waits for the end.
    pub fn interrupt(mut self) -> (ExitStatus, Duration, Vec<u32>) {
        let processes = children(self.pid());
        let asked = Instant::now();
        self.signal(self.pid(), "-INT");
        let status = self.up.wait().unwrap();
        let took = asked.elapsed();
        let left = processes.into_iter().filter(|pid| is_alive(*pid)).collect();
        (status, took, left)
    }

    pub fn show_logs(&self) {
        for entry in std::fs::read_dir(self.state.path().join("logs"))
            .into_iter()
            .flatten()
        {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            let tail = lines[lines.len().saturating_sub(40)..].join("\n");
            eprintln!("--- {}\n{tail}", path.display());
        }
    }

    /// Waits until `check` says yes of the gateway's status.
    pub async fn wait_for(&self, what: &str, within: Duration, check: impl Fn(&Value) -> bool) {
        let deadline = Instant::now() + within;
        loop {
            let status = self.status().await;
            if check(&status) {
                return;
            }
            if Instant::now() > deadline {
                self.show_logs();
                panic!("not within {within:?}: {what}: {status:#}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub async fn status(&self) -> Value {
        self.client()
            .get("/tandem/status")
            .await
            .unwrap()
            .json()
            .unwrap()
    }

    /// All samples of a metric, with their labels.
    pub async fn metric(&self, name: &str) -> Vec<(String, f64)> {
        let answer = self.client().get("/metrics").await.unwrap();
        let text = String::from_utf8(answer.body.to_vec()).unwrap();
        text.lines()
            .filter_map(|line| line.strip_prefix(name))
            .filter(|rest| rest.starts_with([' ', '{']))
            .map(|rest| {
                let (labels, value) = rest.rsplit_once(' ').unwrap();
                (labels.to_owned(), value.parse().unwrap())
            })
            .collect()
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        if let Ok(None) = self.up.try_wait() {
            let _ = Command::new("kill")
                .args(["-TERM", &self.up.id().to_string()])
                .status();
            let deadline = Instant::now() + Duration::from_secs(10);
            while Instant::now() < deadline && matches!(self.up.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(20));
            }
            let _ = self.up.kill();
            let _ = self.up.wait();
        }
    }
}

/// Whether every worker's pages are free and nothing is in flight.
pub fn at_rest(status: &Value) -> bool {
    let workers = status["workers"].as_array().unwrap();
    let free = |w: &Value| {
        w["pages"]["free"] == w["pages"]["total"] && w["pages"]["total"].as_u64() > Some(0)
    };
    status["gateway"]["in_flight"] == 0 && !workers.is_empty() && workers.iter().all(free)
}

/// A chat request of one user message.
pub fn chat(text: &str, max_tokens: u32) -> Value {
    json!({
        "model": "SmolLM2-135M-Instruct",
        "messages": [{"role": "user", "content": text}],
        "temperature": 0,
        "max_tokens": max_tokens,
    })
}

fn children(parent: u32) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let pids = processes.filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| parent_of(*pid) == Some(parent)).collect()
}

fn parent_of(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything.
    stat.rsplit_once(')')?
        .1
        .split_whitespace()
        .nth(1)?
        .parse()
        .ok()
}

fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')')
        .is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

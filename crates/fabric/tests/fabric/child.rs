//! A second process: this test binary, started again to play one part.

use std::io::{BufRead, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Which part the child plays.
const ROLE: &str = "TANDEM_FABRIC_TEST_ROLE";
/// Marks the child's lines among the test harness's own.
const MARK: &str = "@@ ";

/// A child that is killed when dropped.
pub(crate) struct Process {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Process {
    pub(crate) fn start(role: &str, variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args([
                "--exact",
                "child::plays_its_part",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(ROLE, role)
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self {
            child,
            input,
            output,
        }
    }

    /// The child's next line.
    pub(crate) fn line(&mut self) -> String {
        for line in (&mut self.output).lines() {
            if let Some((_, text)) = line.unwrap().split_once(MARK) {
                return text.to_owned();
            }
        }
        panic!("the child ended early");
    }

    pub(crate) fn tell(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its end; true where it went well.
    pub(crate) fn wait(&mut self) -> bool {
        self.child.wait().unwrap().success()
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = tandem_fabric::shm::remove_leftovers();
    }
}

/// Says a line to the parent.
pub(crate) fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{MARK}{line}").unwrap();
    out.flush().unwrap();
}

/// The parent's next line.
pub(crate) fn hear() -> String {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

/// Not a test: where children begin. Without a role it does nothing.
#[test]
fn plays_its_part() {
    match std::env::var(ROLE).as_deref() {
        Ok("receive") => crate::remote::receive(),
        Ok("send") => crate::processes::send(),
        Ok("visit") => crate::visits::visit(),
        Ok("open") => crate::opening::open_and_tell(),
        Ok(other) => panic!("no part {other}"),
        Err(_) => {}
    }
}

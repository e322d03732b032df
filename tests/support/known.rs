//! A server of known behaviour, and the command that measures it.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use tandem_loadtest::known_server::{Asked, Behaviour, KnownServer, Script};
use tandem_loadtest::results::Results;
use tokio::runtime::Runtime;

use super::tandem;

/// A server on a runtime of its own.
pub struct Server {
    _runtime: Runtime,
    pub known: KnownServer,
}

/// Four tokens, quickly.
pub const SCRIPT: Script = Script {
    first: Duration::from_millis(10),
    gap: Duration::from_millis(2),
    tokens: 4,
    tokens_per_event: 1,
    fault: None,
};

impl Server {
    pub fn start(
        key: Option<&str>,
        answer: impl Fn(&Asked) -> Script + Send + Sync + 'static,
    ) -> Self {
        let runtime = Runtime::new().unwrap();
        let behaviour = Behaviour {
            models: vec!["known".to_owned()],
            key: key.map(str::to_owned),
            chunk_usage: true,
            notes: true,
            answer: Box::new(answer),
        };
        let known = runtime
            .block_on(KnownServer::start("127.0.0.1:0", behaviour))
            .unwrap();
        Self {
            _runtime: runtime,
            known,
        }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.known.address())
    }
}

/// On a machine that runs other tests too, nobody is held to be quick.
const PATIENT: [&str; 4] = ["--max-lateness", "5s", "--max-cpu", "100%"];

/// `tandem loadtest` in a folder, against a server.
pub fn loadtest(at: &Path, url: &str, arguments: &[&str]) -> Command {
    let mut command = tandem();
    command
        .current_dir(at)
        .args(["loadtest", "--url", url])
        .args(PATIENT)
        .args(arguments)
        .env_remove("OPENAI_API_KEY")
        .stdin(Stdio::null());
    command
}

pub fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

/// A file of results.
pub fn results(path: &Path) -> Results {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

pub fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

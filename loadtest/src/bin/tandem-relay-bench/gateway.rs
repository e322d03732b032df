//! The gateway under measurement, in a process of its own, and what the system says of it.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tandem_loadtest::Client;
use tandem_wire::identity::{Authority, PeerRole};

use crate::Error;

const START: Duration = Duration::from_secs(30);
/// The kernel's clock of CPU times (`USER_HZ`, the same on every Linux).
const TICKS_PER_SECOND: f64 = 100.0;

pub(crate) struct Gateway {
    pub(crate) address: SocketAddr,
    child: Child,
}

impl Gateway {
    pub(crate) async fn start(
        folder: &Path,
        tokenizer: &Path,
        worker: SocketAddr,
    ) -> Result<Self, Error> {
        Authority::open_or_create(folder)?.issue(&PeerRole::Gateway)?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let file = folder.join("gateway.toml");
        let text = format!(
            "[gateway]\nlisten = \"{address}\"\ntokenizer = {tokenizer:?}\nworkers = [\"{worker}\"]\n\
             max_connections = 8192\nrequest_timeout_ms = 600000\n\n[log]\nlevel = \"warn\"\n\n\
             [identity]\ndirectory = {folder:?}\n"
        );
        std::fs::write(&file, text)?;
        let binary = std::env::current_exe()?.with_file_name("tandem");
        let child = Command::new(binary)
            .args(["gateway", "--config"])
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()?;
        let gateway = Self { address, child };
        let client = Client::new(address);
        let deadline = Instant::now() + START;
        loop {
            if let Ok(ready) = client.get("/ready").await
                && ready.status == 200
            {
                return Ok(gateway);
            }
            if Instant::now() > deadline {
                return Err("the gateway did not become ready".into());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// CPU time that it has used, in seconds.
    pub(crate) fn cpu_seconds(&self) -> Result<f64, Error> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        // The name, in parentheses, may hold spaces.
        let rest = stat.rsplit_once(')').ok_or("no name in stat")?.1;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let ticks = |at: usize| -> Result<f64, Error> {
            Ok(fields.get(at).ok_or("a short stat")?.parse::<f64>()?)
        };
        Ok((ticks(11)? + ticks(12)?) / TICKS_PER_SECOND)
    }

    /// Memory that it holds, in bytes.
    pub(crate) fn resident(&self) -> Result<f64, Error> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
        let kib = line.and_then(|l| l.split_whitespace().next());
        Ok(kib.ok_or("no VmRSS")?.parse::<f64>()? * 1024.0)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let pid = self.child.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
        let _ = self.child.wait();
    }
}

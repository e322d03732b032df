//! What `deploy/` holds, tried with the programs that it is for.

#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, and tells its story in one go"
)]

mod support;

use std::collections::BTreeSet;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use support::{Fleet, chat, free_port};
use tandem_loadtest::Client;

const PATIENCE: Duration = Duration::from_secs(60);

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

/// `prometheus` or `promtool`; `scripts/prometheus` fetches them.
fn tool(name: &str) -> Command {
    let script = deploy().join("../scripts/prometheus");
    let found = Command::new(script).output().unwrap();
    assert!(
        found.status.success(),
        "{}",
        String::from_utf8_lossy(&found.stderr)
    );
    let folder = String::from_utf8(found.stdout).unwrap();
    Command::new(Path::new(folder.trim()).join(name))
}

fn succeeds(command: &mut Command) {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {text}");
}

#[test]
fn promtool_accepts_configuration_and_alerts_and_each_alert_fires_when_it_should() {
    let folder = deploy().join("prometheus");
    for arguments in [
        ["check", "config", "prometheus.yml"],
        ["test", "rules", "alerts_test.yml"],
    ] {
        succeeds(tool("promtool").args(arguments).current_dir(&folder));
    }
    // No alert is left untried.
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let (alerts, tests) = (read("alerts.yml"), read("alerts_test.yml"));
    for alert in alerts
        .lines()
        .filter_map(|l| l.trim().strip_prefix("- alert: "))
    {
        assert!(tests.contains(&format!("alertname: {alert}\n")), "{alert}");
    }
}

#[test]
fn an_alerts_runbook_is_a_section_of_the_operations_guide() {
    let alerts = std::fs::read_to_string(deploy().join("prometheus/alerts.yml")).unwrap();
    let guide = std::fs::read_to_string(deploy().join("../docs/OPERATIONS.md")).unwrap();
    let anchors: BTreeSet<String> = guide
        .lines()
        .filter(|line| line.starts_with('#'))
        .map(|line| {
            let title = line.trim_start_matches('#').trim().to_lowercase();
            let kept = title
                .chars()
                .filter(|c| c.is_alphanumeric() || " -".contains(*c));
            kept.collect::<String>().replace(' ', "-")
        })
        .collect();
    for line in alerts.lines().filter(|l| l.contains("runbook:")) {
        let anchor = line.split('#').nth(1).unwrap().trim_end_matches('"');
        assert!(anchors.contains(anchor), "no section {anchor}: {anchors:?}");
    }
}

#[test]
fn systemd_accepts_the_units() {
    let units = ["tandem-gateway", "tandem-worker@", "tandem-engine@"];
    for unit in units {
        let path = deploy().join(format!("systemd/{unit}.service"));
        let output = Command::new("systemd-analyze")
            .arg("verify")
            .arg(&path)
            .output()
            .expect("systemd-analyze, of Debian's package systemd");
        let text = String::from_utf8_lossy(&output.stderr);
        // The program stands where the units want it only on a machine that it was installed on.
        let complaints: Vec<&str> = text
            .lines()
            .filter(|l| {
                l.contains("tandem") && !l.contains("/usr/local/bin/tandem is not executable")
            })
            .collect();
        assert!(complaints.is_empty(), "{complaints:?}");
        let unit = std::fs::read_to_string(&path).unwrap();
        assert!(
            unit.contains("\nType=notify\n") && unit.contains("\nExecStart=/usr/local/bin/tandem ")
        );
    }
}

/// All metric names that a Prometheus expression asks for.
fn names(expression: &str) -> impl Iterator<Item = String> {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    expression
        .split(move |c| !word(c))
        .filter(|w| w.starts_with("tandem_"))
        .map(str::to_owned)
        .collect::<Vec<_>>()
        .into_iter()
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn query(prometheus: &Client, expression: &str) -> Vec<Value> {
    let escaped: String = expression
        .bytes()
        .map(|b| {
            if b.is_ascii_alphanumeric() {
                char::from(b).to_string()
            } else {
                format!("%{b:02X}")
            }
        })
        .collect();
    let path = format!("/api/v1/query?query={escaped}");
    let answer = prometheus.get(&path).await.unwrap().json().unwrap();
    assert_eq!(answer["status"], "success", "{expression}: {answer}");
    answer["data"]["result"].as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prometheus_scrapes_the_gateway_and_has_all_that_dashboard_and_alerts_ask_for() {
    let fleet = Fleet::up(&[]);
    let answer = fleet
        .client()
        .post("/v1/chat/completions", &chat("Hi", 4))
        .await
        .unwrap();
    assert_eq!(answer.status, 200);

    let folder = tempfile::tempdir().unwrap();
    let source = deploy().join("prometheus");
    std::fs::copy(source.join("alerts.yml"), folder.path().join("alerts.yml")).unwrap();
    let config = std::fs::read_to_string(source.join("prometheus.yml")).unwrap();
    let config = config
        .replace("127.0.0.1:8080", &fleet.address().to_string())
        .replace("scrape_interval: 5s", "scrape_interval: 1s")
        .replace("evaluation_interval: 15s", "evaluation_interval: 1s");
    assert!(config.contains("interval: 1s") && !config.contains(":8080"));
    let file = folder.path().join("prometheus.yml");
    std::fs::write(&file, config).unwrap();
    let port = free_port();
    let _prometheus = Running(
        tool("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                folder.path().join("data").display()
            ))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let prometheus = Client::new(([127, 0, 0, 1], port).into());
    let deadline = Instant::now() + PATIENCE;
    loop {
        let up = prometheus.get("/api/v1/query?query=up").await;
        let scraped = up.is_ok_and(|answer| {
            let value = answer.json().unwrap_or_default();
            value["data"]["result"][0]["value"][1] == "1"
        });
        if scraped {
            break;
        }
        assert!(Instant::now() < deadline, "nothing was scraped");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }

    let alerts = std::fs::read_to_string(source.join("alerts.yml")).unwrap();
    let board = std::fs::read_to_string(deploy().join("grafana/tandem.json")).unwrap();
    let board: Value = serde_json::from_str(&board).unwrap();
    let targets = board["panels"].as_array().unwrap().iter();
    let targets = targets.flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let expressions: Vec<&str> = targets.map(|t| t["expr"].as_str().unwrap()).collect();
    assert!(expressions.len() > 10);
    for expression in &expressions {
        let plain = expression
            .replace("$instance", ".*")
            .replace("$__rate_interval", "1m");
        query(&prometheus, &plain).await;
    }
    let wanted: BTreeSet<String> = expressions
        .into_iter()
        .chain([alerts.as_str()])
        .flat_map(names)
        .collect();
    for name in wanted {
        assert!(!query(&prometheus, &name).await.is_empty(), "no {name}");
    }
}

/// What begins a family.
const HEADS: &[char] = &['#', ' ', 'H', 'E', 'L', 'P', 'T', 'Y'];

#[test]
fn promtool_finds_nothing_wrong_with_the_metrics() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let fleet = Fleet::up(&["--aggregated"]);
    let metrics = runtime.block_on(async {
        let client = fleet.client();
        client
            .post("/v1/chat/completions", &chat("Hi", 2))
            .await
            .unwrap();
        client.get("/metrics").await.unwrap().body
    });
    let mut promtool = tool("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // vLLM's names have a colon in them, which promtool wants to see in recording rules only.
    let metrics = String::from_utf8(metrics.to_vec()).unwrap();
    let own: String = metrics
        .split_inclusive('\n')
        .filter(|line| !line.trim_start_matches(HEADS).starts_with("vllm:"))
        .collect();
    std::io::Write::write_all(&mut promtool.stdin.take().unwrap(), own.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.trim().is_empty(), "{text}");
}

#[test]
fn a_service_manager_hears_when_a_process_is_ready_and_when_it_stops() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("notify");
    let manager = UnixDatagram::bind(&socket).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    succeeds(
        support::tandem()
            .arg("--version")
            .env("NOTIFY_SOCKET", &socket),
    );
    let state = folder.path().join("state");
    let mut up = Running(
        support::tandem()
            .args(["up", "--aggregated", "--listen"])
            .arg(format!("127.0.0.1:{}", free_port()))
            .arg("--state-dir")
            .arg(&state)
            .arg("--model")
            .arg(support::model())
            .env("NOTIFY_SOCKET", &socket)
            .stdout(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let hear = || {
        let mut word = [0; 256];
        let length = manager.recv(&mut word).unwrap();
        String::from_utf8(word[..length].to_vec()).unwrap()
    };
    assert_eq!(hear().trim(), "READY=1");
    let ready = tandem_ready(&state);
    assert!(ready, "it said so before it was");
    succeeds(Command::new("kill").args(["-TERM", &up.0.id().to_string()]));
    assert_eq!(hear().trim(), "STOPPING=1");
    assert!(up.0.wait().unwrap().success());
}

/// Whether the fleet of a state folder serves.
fn tandem_ready(state: &Path) -> bool {
    let config = std::fs::read_to_string(state.join("config/gateway.toml")).unwrap();
    let line = config.lines().find(|l| l.starts_with("listen")).unwrap();
    let address = line.split('"').nth(1).unwrap().parse().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let answer = runtime.block_on(Client::new(address).get("/ready"));
    answer.unwrap().status == 200
}

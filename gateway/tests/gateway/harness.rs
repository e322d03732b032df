//! A running gateway.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use tandem_config::{
    AdmissionSettings, ControlConfig, GatewayConfig, IdentityConfig, PolicySettings,
    TelemetryConfig,
};
use tandem_gateway::{StartError, run};
use tandem_wire::identity::{Authority, PeerRole};
use tandem_wire::proto;
use tandem_wire::task::{Task, spawn};
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};

use crate::client;
use crate::scripted_worker::{MODEL, ScriptedWorker, welcome};

pub(crate) const CHAT: &str = "/v1/chat/completions";
pub(crate) const COMPLETIONS: &str = "/v1/completions";

pub(crate) struct Gateway {
    pub(crate) address: SocketAddr,
    stop: oneshot::Sender<()>,
    task: Task<Result<(), StartError>>,
}

pub(crate) fn model_file() -> PathBuf {
    std::env::var_os("TANDEM_TEST_MODEL").map_or_else(
        || {
            let home = std::env::var_os("HOME").expect("HOME");
            PathBuf::from(home).join(".cache/tandem/models/SmolLM2-135M-Instruct.Q4_1.gguf")
        },
        PathBuf::from,
    )
}

/// A folder with an authority and the gateway's certificate.
pub(crate) fn pki() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    Authority::open_or_create(folder.path())
        .unwrap()
        .issue(&PeerRole::Gateway)
        .unwrap();
    folder
}

pub(crate) fn config(pki: &TempDir, workers: Vec<SocketAddr>) -> GatewayConfig {
    GatewayConfig {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        tokenizer: model_file(),
        workers,
        max_body_bytes: 1 << 20,
        queue_limit: 4,
        request_timeout: Duration::from_secs(30),
        header_timeout: Duration::from_secs(2),
        max_connections: 64,
        tokenizer_threads: 2,
        default_max_tokens: None,
        drain_timeout: Duration::from_secs(1),
        policy: PolicySettings::default(),
        admission: AdmissionSettings::one_class(1_000_000),
        identity: IdentityConfig {
            directory: pki.path().to_owned(),
            name: "gateway".into(),
        },
        control: ControlConfig::default(),
        telemetry: TelemetryConfig::default(),
    }
}

impl Gateway {
    pub(crate) async fn start(config: GatewayConfig) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let (tell, told) = oneshot::channel();
        let shutdown = async move {
            let _ = stopped.await;
        };
        let started = move |address| tell.send(address).unwrap();
        let task = spawn("gateway", run(config, shutdown, started));
        let address = told.await.expect("the gateway starts");
        Self {
            address,
            stop,
            task,
        }
    }

    /// Waits until both roles are filled.
    pub(crate) async fn ready(&self) {
        eventually("ready", || async {
            client::get(self.address, "/ready").await.status == 200
        })
        .await;
    }

    pub(crate) async fn status(&self) -> Value {
        client::get(self.address, "/tandem/status").await.json()
    }

    /// The value of a sample in `/metrics`; `None` where there is none.
    pub(crate) async fn metric(&self, sample: &str) -> Option<f64> {
        let text = client::get(self.address, "/metrics").await.body;
        let value = text
            .lines()
            .find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
        value.map(|value| value.parse().unwrap())
    }

    /// Waits until no request is in flight.
    pub(crate) async fn at_rest(&self) {
        eventually("at rest", || async {
            let status = self.status().await;
            status["gateway"] == json!({"in_flight": 0, "queued": 0})
        })
        .await;
        assert_eq!(self.metric("tandem_requests_in_flight").await, Some(0.0));
        assert_eq!(self.metric("tandem_requests_queued").await, Some(0.0));
    }

    /// Asks it to stop, and waits for its end.
    pub(crate) async fn stop(self) -> Duration {
        let started = Instant::now();
        let _ = self.stop.send(());
        let ended = timeout(Duration::from_secs(10), self.task.join()).await;
        ended.expect("an end in time").unwrap().unwrap();
        started.elapsed()
    }
}

/// A gateway with one worker of role `both`.
pub(crate) async fn with_one_worker() -> (TempDir, Gateway, ScriptedWorker) {
    with_one_worker_and(|_| {}).await
}

pub(crate) async fn with_one_worker_and(
    change: impl FnOnce(&mut GatewayConfig),
) -> (TempDir, Gateway, ScriptedWorker) {
    let pki = pki();
    let worker = ScriptedWorker::start(pki.path(), welcome("both-0", proto::Role::Both));
    let mut config = config(&pki, vec![worker.address]);
    change(&mut config);
    let gateway = Gateway::start(config).await;
    gateway.ready().await;
    (pki, gateway, worker)
}

pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, check: impl Fn() -> F) {
    let deadline = Instant::now() + Duration::from_secs(15);
    while !check().await {
        assert!(Instant::now() < deadline, "not {what} in time");
        sleep(Duration::from_millis(20)).await;
    }
}

pub(crate) fn chat() -> Value {
    json!({"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 8})
}

/// `value` with further members.
pub(crate) fn with(mut value: Value, members: Value) -> Value {
    for (name, member) in members.as_object().unwrap() {
        value[name] = member.clone();
    }
    value
}

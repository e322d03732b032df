//! A running gateway.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tandem_config::{
    AdmissionSettings, AuthConfig, Config, ControlConfig, GatewayConfig, HttpConfig,
    IdentityConfig, LogConfig, PolicySettings, TelemetryConfig,
};
use tandem_gateway::{Origin, StartError, Started};
use tandem_text::testing::model_file;
use tandem_wire::identity::{Authority, PeerRole};
use tandem_wire::proto;
use tandem_wire::task::{Task, spawn};
use tempfile::TempDir;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout};

use crate::client;
use crate::scripted_worker::{MODEL, ScriptedWorker, welcome};

pub(crate) const CHAT: &str = "/v1/chat/completions";
pub(crate) const COMPLETIONS: &str = "/v1/completions";
pub(crate) const RESPONSES: &str = "/v1/responses";
pub(crate) const MESSAGES: &str = "/v1/messages";

pub(crate) struct Gateway {
    pub(crate) address: SocketAddr,
    admin: Option<SocketAddr>,
    stop: oneshot::Sender<()>,
    task: Task<Result<(), StartError>>,
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
        max_choices: 8,
        tool_dialect: None,
        reasoning_dialect: None,
        drain_timeout: Duration::from_secs(1),
        drain_pause: Duration::ZERO,
        auth: AuthConfig::Unsaid,
        admin: None,
        http: HttpConfig {
            // What tests that write bytes call it.
            hosts: vec!["g".into(), "gateway".into()],
            ..HttpConfig::default()
        },
        tls: None,
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
        Self::start_as(tandem_gateway::Gateway::new(config)).await
    }

    /// From a file, which it then follows.
    pub(crate) async fn start_from(file: &Path) -> (Self, Follows) {
        let (hangups, heard) = mpsc::channel(1);
        let levels = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&levels);
        let set_log = move |log| seen.lock().unwrap().push(log);
        let (config, origin) = Origin::load(file, heard, set_log, describe).unwrap();
        let config = config.gateway.expect("a gateway");
        let gateway = tandem_gateway::Gateway::new(config).following(origin);
        let follows = Follows { hangups, levels };
        (Self::start_as(gateway).await, follows)
    }

    async fn start_as(gateway: tandem_gateway::Gateway) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let (tell, told) = oneshot::channel();
        let shutdown = async move {
            let _ = stopped.await;
        };
        let started = move |started| tell.send(started).unwrap();
        let task = spawn("gateway", gateway.run(shutdown, started));
        let Started { address, admin } = told.await.expect("the gateway starts");
        Self {
            address,
            admin,
            stop,
            task,
        }
    }

    /// Where operators ask.
    pub(crate) fn admin(&self) -> SocketAddr {
        self.admin.expect("a listener for operators")
    }

    /// Waits for the end that somebody else asked for.
    pub(crate) async fn ended(self) {
        let ended = timeout(Duration::from_secs(10), self.task.join()).await;
        ended.expect("an end in time").unwrap().unwrap();
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

/// What the process around a gateway does.
pub(crate) struct Follows {
    hangups: mpsc::Sender<()>,
    /// What was to be logged, after each reload.
    pub(crate) levels: Arc<Mutex<Vec<LogConfig>>>,
}

impl Follows {
    /// As SIGHUP does.
    pub(crate) async fn hang_up(&self) {
        self.hangups.send(()).await.unwrap();
    }
}

/// A few settings, as TOML.
fn describe(config: &Config) -> String {
    let gateway = config.gateway.as_ref().unwrap();
    let hashes: Vec<_> = gateway.admin.iter().flat_map(|a| &a.key_hashes).collect();
    format!(
        "[gateway]\nqueue_limit = {}\n[admin]\nkey_hash = {:?}\n[policy.decode]\nchoose = {:?}\n",
        gateway.queue_limit,
        hashes.iter().map(ToString::to_string).collect::<Vec<_>>(),
        gateway.policy.decode.choose.as_str(),
    )
}

/// A configuration file in `folder`, where the certificates are too.
pub(crate) fn config_file(folder: &Path, workers: &[SocketAddr], rest: &str) -> PathBuf {
    let workers: Vec<_> = workers.iter().map(ToString::to_string).collect();
    let model = model_file();
    let text = format!(
        "[gateway]\nlisten = \"127.0.0.1:0\"\ntokenizer = {model:?}\nworkers = {workers:?}\n\
         drain_timeout_ms = 1000\n{rest}\n[identity]\ndirectory = {folder:?}\n",
    );
    let file = folder.join("gateway.toml");
    // As programs that care do: whole or not at all.
    let beside = folder.join("gateway.toml.new");
    std::fs::write(&beside, text).unwrap();
    std::fs::rename(&beside, &file).unwrap();
    file
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

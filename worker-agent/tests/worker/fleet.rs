//! Workers of a tiny random model, and a gateway's side of their streams.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tandem_config::{Config, WorkerConfig};
use tandem_core::WorkerId;
use tandem_engine::testing::TinyLlama;
use tandem_wire::identity::{Authority, PeerRole};
use tandem_wire::proto::generate_reply::Kind;
use tandem_wire::task::Task;
use tandem_wire::{Channel, Connection, ControlOptions, Endpoint, Identity, proto, task};
use tandem_worker_agent::{StartError, Started};
use tokio::sync::oneshot;

/// Longer than any healthy machine takes.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A folder with a model and certificates, and a gateway.
pub(crate) struct Fleet {
    folder: tempfile::TempDir,
    gateway: Endpoint,
    next: AtomicU64,
}

type Life = (oneshot::Sender<()>, Task<Result<(), StartError>>);

/// A running worker.
pub(crate) struct Worker {
    pub(crate) id: String,
    pub(crate) address: SocketAddr,
    connection: Connection,
    pub(crate) welcome: proto::Welcome,
    /// Where it runs in this process: what stops it, and how it ends.
    life: Option<Life>,
}

/// What a request brought.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) tokens: Vec<u32>,
    /// Tokens that the decode worker held.
    pub(crate) held: u32,
    /// Tokens that nobody computed.
    pub(crate) cached: u32,
}

pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, future).await.expect("in time")
}

impl Fleet {
    pub(crate) fn new(model: TinyLlama) -> Self {
        let folder = tempfile::tempdir().unwrap();
        model.write_gguf(&folder.path().join("tiny.gguf")).unwrap();
        let pki = folder.path().join("pki");
        let authority = Authority::open_or_create(&pki).unwrap();
        authority.issue(&PeerRole::Gateway).unwrap();
        let identity = Identity::load(&pki, "gateway").unwrap();
        let local = SocketAddr::from(([127, 0, 0, 1], 0));
        let gateway = Endpoint::bind(local, &identity, ControlOptions::default()).unwrap();
        Self {
            folder,
            gateway,
            next: AtomicU64::new(1),
        }
    }

    fn pki(&self) -> PathBuf {
        self.folder.path().join("pki")
    }

    /// Starts a worker whose tables `[worker]` and `[fabric]` hold these lines beside the needed ones.
    pub(crate) async fn start(&self, role: &str, worker: &str, fabric: &str) -> Worker {
        let id = self.issue(role);
        let config = self.config(&id, role, worker, fabric);
        self.run(id, config).await
    }

    /// Starts a worker that takes the time of the profile in the folder's `profile.toml`, with these lines
    /// in `[worker]` and `[engine]`.
    pub(crate) async fn start_timed(&self, role: &str, worker: &str, engine: &str) -> Worker {
        let id = self.issue(role);
        let config = self.timed(&id, role, worker, engine);
        self.run(id, config).await
    }

    fn timed(&self, id: &str, role: &str, worker: &str, engine: &str) -> WorkerConfig {
        let head = Self::head(id, role);
        let engine = format!("kind = \"timed\"\nprofile = \"profile.toml\"\n{engine}");
        self.parsed(&format!("{head}{worker}\n[engine]\n{engine}\n"))
    }

    /// The error of a timed worker that cannot start.
    pub(crate) async fn timed_fails_to_start(&self, engine: &str) -> StartError {
        let config = self.timed(&self.issue("both"), "both", "", engine);
        let run = tandem_worker_agent::run(config, std::future::pending(), |_| ());
        within(run).await.unwrap_err()
    }

    async fn run(&self, id: String, config: WorkerConfig) -> Worker {
        let (stop, stopped) = oneshot::channel::<()>();
        let (started, is_started) = oneshot::channel::<Started>();
        let running = task::spawn("worker", async move {
            let shutdown = async {
                let _ = stopped.await;
            };
            tandem_worker_agent::run(config, shutdown, |told| drop(started.send(told))).await
        });
        let told = match within(is_started).await {
            Ok(told) => told,
            Err(_) => panic!("{id} does not start: {:?}", running.join().await),
        };
        Worker {
            life: Some((stop, running)),
            ..self.meet(&id, told.address).await
        }
    }

    /// Connects to a worker that runs somewhere.
    pub(crate) async fn meet(&self, id: &str, address: SocketAddr) -> Worker {
        let connection = within(self.gateway.connect(address)).await.unwrap();
        Worker {
            id: id.to_owned(),
            address,
            welcome: greet(&connection).await,
            connection,
            life: None,
        }
    }

    /// The error of a worker that cannot start.
    pub(crate) async fn fails_to_start(
        &self,
        role: &str,
        worker: &str,
        fabric: &str,
    ) -> StartError {
        let config = self.config(&self.issue(role), role, worker, fabric);
        let run = tandem_worker_agent::run(config, std::future::pending(), |_| ());
        within(run).await.unwrap_err()
    }

    /// A certificate for one more worker, whose name it returns.
    pub(crate) fn issue(&self, role: &str) -> String {
        let n = self.next.fetch_add(1, Ordering::Relaxed);
        let id = format!("{role}-{n}");
        let authority = Authority::open_or_create(&self.pki()).unwrap();
        let name = WorkerId::new(id.clone()).unwrap();
        authority.issue(&PeerRole::Worker(name)).unwrap();
        id
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn config(&self, id: &str, role: &str, worker: &str, fabric: &str) -> WorkerConfig {
        self.parsed(&self.text(id, role, worker, fabric))
    }

    fn parsed(&self, text: &str) -> WorkerConfig {
        let path = self.folder.path().join("worker.toml");
        let config = Config::parse(text, &path).unwrap();
        config.worker.unwrap()
    }

    fn head(id: &str, role: &str) -> String {
        format!(
            "[worker]\nid = {id:?}\nrole = {role:?}\nlisten = \"127.0.0.1:0\"\nmodel = \"tiny.gguf\"\n"
        )
    }

    /// A worker's configuration file.
    pub(crate) fn text(&self, id: &str, role: &str, worker: &str, fabric: &str) -> String {
        let head = Self::head(id, role);
        format!("{head}threads = 1\n{worker}\n[fabric]\n{fabric}\n")
    }
}

async fn greet(connection: &Connection) -> proto::Welcome {
    let mut channel = within(connection.open()).await.unwrap();
    hello(&mut channel).await
}

async fn hello(channel: &mut Channel) -> proto::Welcome {
    let hello = proto::Hello {
        version: tandem_wire::PROTOCOL_VERSION,
        name: "gateway".into(),
        incarnation: 1,
    };
    let kind = Some(proto::open::Kind::Control(hello));
    channel.send.send(&proto::Open { kind }).await.unwrap();
    within(channel.recv.expect()).await.unwrap()
}

impl Worker {
    /// Who computes a prompt, for a decode worker.
    pub(crate) fn peer(&self) -> proto::Peer {
        proto::Peer {
            worker: self.id.clone(),
            incarnation: self.welcome.incarnation,
            address: self.address.to_string(),
            geometry: self.welcome.geometry.clone(),
        }
    }

    /// Asks for an answer.
    pub(crate) async fn ask(&self, generate: proto::Generate) -> Channel {
        let mut channel = within(self.connection.open()).await.unwrap();
        let kind = Some(proto::open::Kind::Generate(generate));
        channel.send.send(&proto::Open { kind }).await.unwrap();
        channel
    }

    /// The tokens of a greedy answer.
    pub(crate) async fn tokens(&self, generate: proto::Generate) -> Result<Vec<u32>, String> {
        self.answer(generate).await.map(|a| a.tokens)
    }

    /// A greedy answer.
    pub(crate) async fn answer(&self, generate: proto::Generate) -> Result<Answer, String> {
        let mut channel = self.ask(generate).await;
        let mut answer = Answer::default();
        loop {
            let reply = within(channel.recv.expect::<proto::GenerateReply>()).await;
            match reply.map_err(|e| e.to_string())?.kind {
                Some(Kind::Token(token)) => answer.tokens.push(token.token),
                Some(Kind::Finished(finished)) => {
                    answer.cached = finished.cached_tokens;
                    return Ok(answer);
                }
                Some(Kind::Reserved(reserved)) => answer.held = reserved.held_tokens,
                Some(Kind::Started(_)) => {}
                other => return Err(format!("{other:?}")),
            }
        }
    }

    /// The blocks that the worker reports to hold, to one who has just come.
    pub(crate) async fn cached_blocks(&self) -> usize {
        let mut channel = within(self.connection.open()).await.unwrap();
        hello(&mut channel).await;
        loop {
            let beat: proto::Beat = within(channel.recv.expect()).await.unwrap();
            if let Some(report) = beat.cache {
                assert!(report.reset, "the first report is of everything");
                return report.changes.len();
            }
        }
    }

    /// A fresh report.
    pub(crate) async fn load(&self) -> proto::Load {
        greet(&self.connection).await.load.unwrap()
    }

    /// Waits until every page is free.
    pub(crate) async fn at_rest(&self) {
        within(async {
            loop {
                let load = self.load().await;
                let pages = load.pages.unwrap();
                if pages.free == pages.total && load.requests == 0 {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    }

    /// Drops everything at once, as if the process had died.
    pub(crate) fn abort(self) {
        drop(self.life);
    }

    /// How it ended by itself.
    pub(crate) async fn ended(self) -> Result<(), StartError> {
        let (_stop, running) = self.life.unwrap();
        running.join().await.unwrap()
    }

    pub(crate) async fn stop(self) {
        let (stop, running) = self.life.unwrap();
        let _ = stop.send(());
        running.join().await.unwrap().unwrap();
    }
}

/// A greedy request of `new_tokens` tokens.
pub(crate) fn generate(
    request: u128,
    tokens: &[u32],
    new_tokens: u32,
    prefill: Option<proto::Peer>,
) -> proto::Generate {
    proto::Generate {
        request: request.to_be_bytes().to_vec().into(),
        tokens: tokens.to_vec(),
        generated: 0,
        sampling: Some(proto::Sampling {
            temperature: 0.0,
            top_p: 1.0,
            ..proto::Sampling::default()
        }),
        stop: Some(proto::Stop {
            max_tokens: new_tokens,
            texts: Vec::new(),
            ignore_eos: true,
            ..proto::Stop::default()
        }),
        prefill,
        time_left_ms: 60_000,
        ..proto::Generate::default()
    }
}

//! A test double of a worker process: real QUIC, real certificates, real messages, and answers that
//! the test gives one by one.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tandem_core::WorkerId;
use tandem_core::geometry::{KvDtype, KvGeometry, KvKind, KvOrder};
use tandem_core::layout::WorkerLayout;
use tandem_wire::identity::{Authority, PeerRole};
use tandem_wire::proto::generate_reply::Kind;
use tandem_wire::task::{Task, spawn};
use tandem_wire::{Channel, ChannelError, Connection, ControlOptions, Endpoint, Identity, proto};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
pub(crate) const MODEL: &str = "SmolLM2-135M-Instruct";
pub(crate) const PAGES: u32 = 64;
pub(crate) const PAGE_TOKENS: u32 = 16;

pub(crate) struct ScriptedWorker {
    pub(crate) address: SocketAddr,
    endpoint: Endpoint,
    load: watch::Sender<proto::Load>,
    calls: mpsc::Receiver<Call>,
    cache: Cache,
    _task: Task<()>,
}

/// What it says of its cache, one report with each beat; and whether it was asked to tell everything.
#[derive(Clone, Default)]
struct Cache {
    reports: Arc<Mutex<VecDeque<proto::CacheReport>>>,
    anew: Arc<AtomicBool>,
}

/// One generate stream.
pub(crate) struct Call {
    pub(crate) generate: proto::Generate,
    channel: Channel,
}

pub(crate) fn free_pages(free: u32) -> proto::Load {
    let pages = proto::Pages {
        total: PAGES,
        free,
        leased: PAGES - free,
        ..Default::default()
    };
    proto::Load {
        sequence: 1,
        pages: Some(pages),
        ..Default::default()
    }
}

/// Prompt tokens that every answer says were cached.
pub(crate) const CACHED_TOKENS: u32 = 3;

fn geometry() -> proto::Geometry {
    let geometry = KvGeometry {
        layers: 30,
        kv_heads: 3,
        head_dim: 64,
        page_tokens: PAGE_TOKENS as u16,
        dtype: KvDtype::F16,
        kind: KvKind::Heads,
        order: KvOrder::Together,
        context_bytes: 0,
    };
    let layout = WorkerLayout::tensor_parallel(geometry, PAGES, 1).unwrap();
    proto::Geometry::from(&layout)
}

pub(crate) fn welcome(id: &str, role: proto::Role) -> proto::Welcome {
    proto::Welcome {
        version: tandem_wire::PROTOCOL_VERSION,
        worker: id.into(),
        incarnation: 7,
        role: role.into(),
        model: Some(proto::Model {
            name: MODEL.into(),
            fingerprint: "0123456789abcdef".into(),
            context_length: 8192,
            vocabulary: 49152,
        }),
        geometry: Some(geometry()),
        provider: Some(proto::Provider {
            name: "tcp".into(),
            library: "1.17".into(),
            software: true,
            wire: "tcp".into(),
        }),
        load: Some(free_pages(PAGES)),
        ..proto::Welcome::default()
    }
}

impl ScriptedWorker {
    pub(crate) fn start(pki: &Path, welcome: proto::Welcome) -> Self {
        let id = WorkerId::new(welcome.worker.clone()).unwrap();
        Self::start_as(pki, &id, welcome)
    }

    /// With the certificate of `id`, whatever the welcome says.
    pub(crate) fn start_as(pki: &Path, id: &WorkerId, welcome: proto::Welcome) -> Self {
        let authority = Authority::open_or_create(pki).unwrap();
        authority.issue(&PeerRole::Worker(id.clone())).unwrap();
        let identity = Identity::load(pki, id.as_str()).unwrap();
        let local = SocketAddr::from(([127, 0, 0, 1], 0));
        let endpoint = Endpoint::bind(local, &identity, ControlOptions::default()).unwrap();
        let (load, reports) = watch::channel(welcome.load.unwrap_or_default());
        let (calls_in, calls) = mpsc::channel(64);
        let accepting = endpoint.clone();
        let cache = Cache::default();
        let caches = cache.clone();
        let task = spawn("scripted-worker", async move {
            let mut tasks = Vec::new();
            while let Some(incoming) = accepting.accept().await {
                let Ok(connection) = incoming.accept().await else {
                    continue;
                };
                assert!(connection.is_gateway());
                let (welcome, reports) = (welcome.clone(), reports.clone());
                let told = (reports, caches.clone());
                let serving = serve(connection, welcome, told, calls_in.clone());
                tasks.push(spawn("connection", serving));
            }
        });
        Self {
            address: endpoint.address(),
            endpoint,
            load,
            calls,
            cache,
            _task: task,
        }
    }

    /// The next request that the gateway sends.
    pub(crate) async fn call(&mut self) -> Call {
        timeout(PATIENCE, self.calls.recv())
            .await
            .expect("a call in time")
            .unwrap()
    }

    /// The next request, however long it takes.
    pub(crate) async fn maybe_call(&mut self) -> Option<Call> {
        self.calls.recv().await
    }

    /// Whether no request comes for a while.
    pub(crate) async fn is_left_alone(&mut self, wait: Duration) -> bool {
        timeout(wait, self.calls.recv()).await.is_err()
    }

    pub(crate) fn report(&self, load: proto::Load) {
        self.load.send_replace(load);
    }

    /// Reports this of its cache with one of the next beats.
    pub(crate) fn report_cache(&self, report: proto::CacheReport) {
        self.cache.reports.lock().unwrap().push_back(report);
    }

    /// Whether the gateway asked for everything since the last call.
    pub(crate) fn was_asked_anew(&self) -> bool {
        self.cache.anew.swap(false, Ordering::Relaxed)
    }

    /// Ends as a killed process does.
    pub(crate) fn die(self) {
        self.endpoint.close();
    }
}

async fn serve(
    connection: Connection,
    welcome: proto::Welcome,
    told: (watch::Receiver<proto::Load>, Cache),
    calls: mpsc::Sender<Call>,
) {
    let mut controls = Vec::new();
    while let Ok(mut channel) = connection.accept().await {
        let Ok(open) = channel.recv.expect::<proto::Open>().await else {
            continue;
        };
        match open.kind {
            Some(proto::open::Kind::Control(hello)) => {
                assert_eq!(hello.version, tandem_wire::PROTOCOL_VERSION);
                controls.push(spawn(
                    "control",
                    control(channel, welcome.clone(), told.clone()),
                ));
            }
            Some(proto::open::Kind::Generate(generate)) => {
                let _ = calls.send(Call { generate, channel }).await;
            }
            other => panic!("a gateway opened {other:?}"),
        }
    }
}

async fn control(
    mut channel: Channel,
    welcome: proto::Welcome,
    (mut reports, cache): (watch::Receiver<proto::Load>, Cache),
) {
    let mut sequence = 1;
    channel.send.send(&welcome).await.unwrap();
    let Channel { mut send, mut recv } = channel;
    let anew = Arc::clone(&cache.anew);
    let _listening = spawn("listening", async move {
        while let Ok(Some(beat)) = recv.next::<proto::Beat>().await {
            if beat.cache_anew {
                anew.store(true, Ordering::Relaxed);
            }
        }
    });
    loop {
        // At once where there is something new.
        let _ = timeout(Duration::from_millis(100), reports.changed()).await;
        sequence += 1;
        let load = proto::Load {
            sequence,
            ..*reports.borrow_and_update()
        };
        let beat = proto::Beat {
            load: Some(load),
            cache: cache.reports.lock().unwrap().pop_front(),
            cache_anew: false,
        };
        if send.send(&beat).await.is_err() {
            return;
        }
    }
}

impl Call {
    pub(crate) async fn say(&mut self, kind: Kind) {
        self.channel
            .send
            .send(&proto::GenerateReply { kind: Some(kind) })
            .await
            .unwrap();
    }

    /// Whether it could be said.
    pub(crate) async fn try_say(&mut self, kind: Kind) -> bool {
        self.channel
            .send
            .send(&proto::GenerateReply { kind: Some(kind) })
            .await
            .is_ok()
    }

    pub(crate) async fn try_say_token(&mut self, token: u32, text: &str) -> bool {
        let text = text.into();
        let logprobs = vec![];
        self.try_say(Kind::Token(proto::Token {
            token,
            text,
            logprobs,
        }))
        .await
    }

    pub(crate) async fn reserve(&mut self) {
        self.say(Kind::Reserved(proto::Reserved {
            pages: 1,
            held_tokens: 0,
        }))
        .await;
    }

    pub(crate) async fn start(&mut self) {
        self.reserve().await;
        let started = proto::Started {
            transfer_us: 1500,
            prompt_tokens: 3,
            cached_tokens: CACHED_TOKENS,
        };
        self.say(Kind::Started(started)).await;
    }

    pub(crate) async fn token(&mut self, token: u32, text: &str) {
        self.say(Kind::Token(proto::Token {
            token,
            text: text.into(),
            logprobs: vec![],
        }))
        .await;
    }

    pub(crate) async fn finish(&mut self, text: &str, reason: proto::FinishReason) {
        let finished = proto::Finished {
            text: text.into(),
            reason: reason.into(),
            cached_tokens: CACHED_TOKENS,
            ..proto::Finished::default()
        };
        self.say(Kind::Finished(finished)).await;
    }

    /// A whole answer of a few tokens, one for each text.
    pub(crate) async fn answer(&mut self, texts: &[&str], reason: proto::FinishReason) {
        self.start().await;
        for (token, text) in (1..).zip(texts) {
            self.token(token, text).await;
        }
        self.finish("", reason).await;
    }

    pub(crate) async fn refuse(&mut self, reason: proto::refusal::Reason, message: &str) {
        let refusal = proto::Refusal {
            reason: reason.into(),
            message: message.into(),
        };
        self.say(Kind::Refused(refusal)).await;
    }

    pub(crate) async fn fail(&mut self, code: &str, retry_elsewhere: bool) {
        let failure = proto::Failure {
            blame: proto::failure::Blame::Decode.into(),
            code: code.into(),
            message: "it broke".into(),
            retry_elsewhere,
        };
        self.say(Kind::Failed(failure)).await;
    }

    /// Waits for the gateway's Cancel, and confirms it.
    pub(crate) async fn cancelled(&mut self) {
        let cancel: Result<Option<proto::Cancel>, ChannelError> =
            timeout(PATIENCE, self.channel.recv.next())
                .await
                .expect("a cancel in time");
        assert_eq!(cancel.unwrap(), Some(proto::Cancel {}));
        self.fail("cancelled", false).await;
    }
}

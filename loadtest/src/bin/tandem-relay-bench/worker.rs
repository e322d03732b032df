//! A made worker: real QUIC, real messages, no model. It answers every request with tokens whose text is
//! the time at which they were sent.
//!
//! All its answers go on together, one token each, whenever the measurement takes a step: as a decode
//! worker's batch does.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tandem_core::WorkerId;
use tandem_core::geometry::{KvDtype, KvGeometry, KvKind, KvOrder};
use tandem_core::layout::WorkerLayout;
use tandem_wire::identity::{Authority, PeerRole};
use tandem_wire::proto::generate_reply::Kind;
use tandem_wire::task::{Task, spawn};
use tandem_wire::{Channel, ChannelError, Connection, ControlOptions, Endpoint, Identity, proto};
use tokio::sync::watch;

use crate::{Error, now_ns};

const NAME: &str = "made-0";
const PAGES: u32 = 1 << 20;
const REPORT: Duration = Duration::from_millis(200);

pub(crate) struct MadeWorker {
    pub(crate) address: SocketAddr,
    steps: watch::Sender<u64>,
    sent: Arc<AtomicU64>,
    _task: Task<()>,
}

impl MadeWorker {
    pub(crate) fn start(pki: &Path, model: &str) -> Result<Self, Error> {
        let id = WorkerId::new(NAME)?;
        Authority::open_or_create(pki)?.issue(&PeerRole::Worker(id))?;
        let identity = Identity::load(pki, NAME)?;
        let local = SocketAddr::from(([127, 0, 0, 1], 0));
        let endpoint = Endpoint::bind(local, &identity, ControlOptions::default())?;
        let address = endpoint.address();
        let (steps, taken) = watch::channel(0);
        let sent = Arc::new(AtomicU64::new(0));
        let shared = Shared {
            welcome: welcome(model)?,
            taken,
            sent: Arc::clone(&sent),
        };
        let task = spawn("made-worker", accept(endpoint, shared));
        Ok(Self {
            address,
            steps,
            sent,
            _task: task,
        })
    }

    /// Every open answer goes on by one token.
    pub(crate) fn step(&self) {
        self.steps.send_modify(|step| *step += 1);
    }

    /// Whoever wants to go on with the answers.
    pub(crate) fn steps(&self) -> watch::Receiver<u64> {
        self.steps.subscribe()
    }

    /// Tokens sent so far.
    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

#[derive(Clone)]
struct Shared {
    welcome: proto::Welcome,
    taken: watch::Receiver<u64>,
    sent: Arc<AtomicU64>,
}

async fn accept(endpoint: Endpoint, shared: Shared) {
    let mut connections = Vec::new();
    while let Some(incoming) = endpoint.accept().await {
        if let Ok(connection) = incoming.accept().await {
            connections.push(spawn("connection", serve(connection, shared.clone())));
        }
    }
}

async fn serve(connection: Connection, shared: Shared) {
    let mut streams = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            channel = connection.accept() => match channel {
                Ok(channel) => {
                    streams.spawn(stream(channel, shared.clone()));
                }
                Err(_) => return,
            },
            Some(_) = streams.join_next() => {}
        }
    }
}

async fn stream(mut channel: Channel, shared: Shared) {
    // The gateway's end is the only one that matters here.
    let _ = match channel.recv.expect::<proto::Open>().await {
        Ok(proto::Open {
            kind: Some(proto::open::Kind::Control(_)),
        }) => report(channel, shared).await,
        Ok(proto::Open {
            kind: Some(proto::open::Kind::Generate(generate)),
        }) => answer(channel, generate, shared).await,
        Ok(_) | Err(_) => Ok(()),
    };
}

async fn report(mut channel: Channel, shared: Shared) -> Result<(), ChannelError> {
    let load = shared.welcome.load.unwrap_or_default();
    channel.send.send(&shared.welcome).await?;
    for sequence in 2.. {
        tokio::time::sleep(REPORT).await;
        let load = Some(proto::Load { sequence, ..load });
        let beat = proto::Beat {
            load,
            ..proto::Beat::default()
        };
        channel.send.send(&beat).await?;
    }
    Ok(())
}

async fn answer(
    channel: Channel,
    generate: proto::Generate,
    mut shared: Shared,
) -> Result<(), ChannelError> {
    let Channel { mut send, mut recv } = channel;
    let writing = async {
        let reply = |kind| proto::GenerateReply { kind: Some(kind) };
        let reserved = proto::Reserved {
            pages: 1,
            held_tokens: 0,
        };
        send.send(&reply(Kind::Reserved(reserved))).await?;
        send.send(&reply(Kind::Started(proto::Started::default())))
            .await?;
        let most = generate.stop.map_or(1, |stop| stop.max_tokens);
        for count in 0..most {
            // The first one does not wait: time to first token is not what is measured here.
            if count > 0 && shared.taken.changed().await.is_err() {
                break;
            }
            let token = proto::Token {
                token: 100,
                text: format!(" {}", now_ns()),
                logprobs: Vec::new(),
            };
            send.send(&reply(Kind::Token(token))).await?;
            shared.sent.fetch_add(1, Ordering::Relaxed);
            shared.taken.mark_unchanged();
        }
        let finished = proto::Finished {
            reason: proto::FinishReason::Length.into(),
            ..proto::Finished::default()
        };
        send.send(&reply(Kind::Finished(finished))).await?;
        send.finish();
        send.drained().await;
        Ok(())
    };
    tokio::select! {
        written = writing => written,
        _ = recv.next::<proto::Cancel>() => Ok(()),
    }
}

fn welcome(model: &str) -> Result<proto::Welcome, Error> {
    let geometry = KvGeometry {
        layers: 1,
        kv_heads: 1,
        head_dim: 8,
        page_tokens: 16,
        dtype: KvDtype::F16,
        kind: KvKind::Heads,
        order: KvOrder::Together,
        context_bytes: 0,
    };
    let layout = WorkerLayout::tensor_parallel(geometry, PAGES, 1)?;
    let pages = proto::Pages {
        total: PAGES,
        free: PAGES,
        ..proto::Pages::default()
    };
    Ok(proto::Welcome {
        version: tandem_wire::PROTOCOL_VERSION,
        worker: NAME.into(),
        incarnation: 1,
        role: proto::Role::Both.into(),
        model: Some(proto::Model {
            name: model.into(),
            fingerprint: "made".into(),
            context_length: 1 << 20,
            vocabulary: 1 << 20,
        }),
        geometry: Some(proto::Geometry::from(&layout)),
        provider: Some(proto::Provider::default()),
        load: Some(proto::Load {
            sequence: 1,
            pages: Some(pages),
            ..proto::Load::default()
        }),
        ..proto::Welcome::default()
    })
}

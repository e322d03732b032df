//! Answering those who dial: gateways and decode workers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tandem_wire::proto::open::Kind;
use tandem_wire::{Channel, Connection, Endpoint, proto};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::cache::CacheLog;
use crate::load::Gauges;
use crate::start::Facts;
use crate::{decode, prefill};

/// How long a peer may take to say what it opened a stream for.
const FIRST_WORD: Duration = Duration::from_secs(5);
/// Reports go out at least this often,
const SLOWEST_BEAT: Duration = Duration::from_millis(500);
/// and at most this often.
const FASTEST_BEAT: Duration = Duration::from_millis(20);
/// Peers at once.
const CONNECTIONS: usize = 1024;

/// What streams may ask of this worker.
#[derive(Clone)]
pub(crate) struct Services {
    /// Where peers connect.
    pub(crate) endpoint: Endpoint,
    pub(crate) facts: Arc<Facts>,
    pub(crate) gauges: Arc<Gauges>,
    pub(crate) cache: Arc<CacheLog>,
    pub(crate) decode: Option<decode::Handle>,
    pub(crate) prefill: Option<prefill::Handle>,
}

impl Services {
    /// What is reported to gateways.
    fn load(&self) -> proto::Load {
        proto::Load {
            certificate_expiry: self.endpoint.expiry(),
            ..self.gauges.report(&self.facts)
        }
    }
}

/// Accepts connections until the endpoint is closed.
pub(crate) async fn run(services: Services) {
    let endpoint = services.endpoint.clone();
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            incoming = endpoint.accept() => {
                let Some(incoming) = incoming else { break };
                if connections.len() >= CONNECTIONS {
                    tracing::warn!(limit = CONNECTIONS, "too many peers: one was turned away");
                    continue;
                }
                let services = services.clone();
                connections.spawn(async move {
                    match incoming.accept().await {
                        Ok(connection) => serve(connection, services).await,
                        Err(error) => tracing::warn!(%error, "a peer was turned away"),
                    }
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Serves one connection. Its streams end with it.
async fn serve(connection: Connection, services: Services) {
    let mut streams = JoinSet::new();
    loop {
        tokio::select! {
            channel = connection.accept() => {
                let Ok(channel) = channel else { break };
                let (connection, services) = (connection.clone(), services.clone());
                streams.spawn(async move { stream(&connection, &services, channel).await });
            }
            Some(_) = streams.join_next() => {}
        }
    }
    // The streams see the loss themselves and report it; that takes no time.
    let _ = tokio::time::timeout(FIRST_WORD, streams.join_all()).await;
}

async fn stream(connection: &Connection, services: &Services, mut channel: Channel) {
    let open = match tokio::time::timeout(FIRST_WORD, channel.recv.expect::<proto::Open>()).await {
        Ok(Ok(open)) => open,
        Ok(Err(error)) => {
            return tracing::debug!(%error, "a stream without a first message");
        }
        Err(_) => return tracing::debug!("a stream without a first message"),
    };
    match open.kind {
        Some(Kind::Control(hello)) if connection.is_gateway() => {
            control(services, hello, channel).await
        }
        Some(Kind::Generate(generate)) if connection.is_gateway() => match &services.decode {
            Some(task) => {
                decode::generate::serve(&services.facts, task.clone(), generate, channel).await;
            }
            None => channel.send.reset(),
        },
        Some(Kind::Dispatch(dispatch)) => match &services.prefill {
            Some(task) => {
                let facts = &services.facts;
                prefill::dispatch::serve(facts, task.clone(), connection, dispatch, channel).await;
            }
            None => channel.send.reset(),
        },
        Some(Kind::Generate(_) | Kind::Control(_)) => {
            tracing::warn!(peer = %connection.peer_address(), "no gateway, and asks for what gateways do");
            channel.send.reset();
        }
        None => channel.send.reset(),
    }
}

/// Says who this is, then reports loads for as long as the gateway is there.
async fn control(services: &Services, hello: proto::Hello, channel: Channel) {
    let Channel { mut send, mut recv } = channel;
    tracing::info!(
        name = hello.name,
        version = hello.version,
        "a peer registered this worker"
    );
    let anew = AtomicBool::new(false);
    let mut cache = services.cache.reader();
    let mut changes = services.gauges.subscribe();
    let welcome = services.facts.welcome(services.load());
    if send.send(&welcome).await.is_err() {
        return;
    }
    let (gone, mut hears_no_more) = mpsc::channel::<()>(1);
    let listening = async {
        let _gone = &gone;
        while let Ok(Some(beat)) = recv.next::<proto::Beat>().await {
            if beat.cache_anew {
                anew.store(true, Ordering::Relaxed);
            }
        }
    };
    let reporting = async {
        loop {
            tokio::time::sleep(FASTEST_BEAT).await;
            let _ = tokio::time::timeout(SLOWEST_BEAT, changes.changed()).await;
            if anew.swap(false, Ordering::Relaxed) {
                cache.begin_anew();
            }
            let beat = proto::Beat {
                load: Some(services.load()),
                cache: cache.report(),
                cache_anew: false,
            };
            if send.send(&beat).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = listening => {}
        () = reporting => {}
        _ = hears_no_more.recv() => {}
    }
}

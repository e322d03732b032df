//! One connection with a worker, from dialling to its end.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tandem_core::blocks::{BlockHash, BlockSeed};
use tandem_core::fleet::{MAX_LABELS, WorkerFacts, WorkerLoad};
use tandem_core::front_door::Input;
use tandem_core::layout::WorkerLayout;
use tandem_core::pool::CacheChange;
use tandem_core::prefix_index::{CacheFollower, Heard};
use tandem_core::{Incarnation, WorkerId, WorkerRole};
use tandem_wire::convert::{Nonsense, nonsense};
use tandem_wire::proto::cache_change::Kind;
use tandem_wire::{Channel, Connection, Endpoint, PROTOCOL_VERSION, Receiver, Sender, proto};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::Wish;
use crate::door::{Change, Door};
use crate::requests::Requests;
use crate::roster::{Introduction, Reachable, Roster};

/// A worker has so long to take a connection, and to introduce itself.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Between two signs of life of ours.
const BEAT: Duration = Duration::from_millis(500);
/// A worker whose connection lives and that reports nothing for so long is stuck.
const SILENCE: Duration = Duration::from_secs(10);
/// Between two looks whether a worker that leaves has requests.
const LEAVING: Duration = Duration::from_millis(100);
/// Changes of a worker's cache that the door takes at once.
const CHANGES: usize = 512;

/// What all sessions share.
#[derive(Clone, Debug)]
pub(crate) struct Party {
    pub(crate) endpoint: Endpoint,
    /// The gateway's name and life.
    pub(crate) name: String,
    pub(crate) incarnation: Incarnation,
    pub(crate) door: Door,
    pub(crate) roster: Arc<Roster>,
    pub(crate) requests: Arc<Requests>,
}

/// How a session ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// Nobody answered.
    Unreachable(String),
    /// The worker may not join.
    Refused(String),
    /// It was in the pool.
    Lost { worker: WorkerId, why: String },
    /// The configuration does not name it any more.
    Removed,
    /// The gateway is stopping.
    Closed,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(why) => write!(f, "worker unreachable: {why}"),
            Self::Refused(why) => write!(f, "worker refused: {why}"),
            Self::Lost { worker, why } => write!(f, "worker {worker} lost: {why}"),
            Self::Removed => write!(f, "worker removed from the configuration"),
            Self::Closed => write!(f, "the gateway is stopping"),
        }
    }
}

/// Dials, registers and listens until the worker is lost, or has left as the configuration wants it.
pub(crate) async fn run(
    party: &Party,
    address: SocketAddr,
    mut wish: watch::Receiver<Wish>,
) -> Ended {
    let joined = tokio::select! {
        joined = join(party, address) => joined,
        () = asked_to_leave(&mut wish) => return Ended::Removed,
    };
    let Joined {
        connection: _connection,
        introduction,
        load,
        channel,
    } = match joined {
        Ok(joined) => joined,
        Err(ended) => return ended,
    };
    let ended = register(party, address, &introduction, load, channel, wish).await;
    party.roster.leave(&introduction.facts.worker);
    ended
}

/// Resolves once the worker is to leave.
pub(crate) async fn asked_to_leave(wish: &mut watch::Receiver<Wish>) {
    // The sender lives as long as the session.
    let _ = wish.wait_for(|wish| *wish == Wish::Leave).await;
}

/// A worker that has introduced itself.
struct Joined {
    connection: Closing,
    introduction: Arc<Introduction>,
    load: proto::Load,
    channel: Channel,
}

/// Dials and greets.
async fn join(party: &Party, address: SocketAddr) -> Result<Joined, Ended> {
    let connection = match timeout(HANDSHAKE, party.endpoint.connect(address)).await {
        Ok(Ok(connection)) => connection,
        Ok(Err(error)) => return Err(Ended::Unreachable(error.to_string())),
        Err(_) => {
            return Err(Ended::Unreachable(format!(
                "no connection with {address} in time"
            )));
        }
    };
    // However the session ends, its connection does too.
    let connection = Closing(connection);
    let (channel, welcome) = match timeout(HANDSHAKE, greet(party, &connection.0)).await {
        Ok(Ok(greeted)) => greeted,
        Ok(Err(why)) => return Err(Ended::Unreachable(why)),
        Err(_) => {
            return Err(Ended::Unreachable(format!(
                "{address} did not introduce itself"
            )));
        }
    };
    let introduction = match check(&welcome, &connection.0) {
        Ok(introduction) => Arc::new(introduction),
        Err(why) => return Err(Ended::Refused(why)),
    };
    let reachable = Reachable {
        connection: connection.0.clone(),
        address,
        incarnation: introduction.facts.incarnation,
        layout: Arc::clone(&introduction.facts.layout),
    };
    let worker = introduction.facts.worker.clone();
    if !party.roster.introduce(Arc::clone(&introduction), reachable) {
        return Err(Ended::Refused(format!(
            "another {worker} is connected already"
        )));
    }
    Ok(Joined {
        connection,
        introduction,
        load: welcome.load.unwrap_or_default(),
        channel,
    })
}

struct Closing(Connection);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close("the session ended");
    }
}

async fn greet(
    party: &Party,
    connection: &Connection,
) -> Result<(Channel, proto::Welcome), String> {
    let mut channel = connection.open().await.map_err(|e| e.to_string())?;
    let hello = proto::Hello {
        version: PROTOCOL_VERSION,
        name: party.name.clone(),
        incarnation: party.incarnation.0,
    };
    let open = proto::Open {
        kind: Some(proto::open::Kind::Control(hello)),
    };
    channel.send.send(&open).await.map_err(|e| e.to_string())?;
    let welcome = channel.recv.expect().await.map_err(|e| e.to_string())?;
    Ok((channel, welcome))
}

/// Whether the worker is who it says, and makes sense.
fn check(welcome: &proto::Welcome, connection: &Connection) -> Result<Introduction, String> {
    if welcome.version != PROTOCOL_VERSION {
        let theirs = welcome.version;
        return Err(format!(
            "it speaks protocol version {theirs}, the gateway {PROTOCOL_VERSION}"
        ));
    }
    let facts = facts(welcome).map_err(|e| e.to_string())?;
    if !connection.is_worker(&facts.worker) {
        return Err(format!(
            "its certificate does not prove that it is {}",
            facts.worker
        ));
    }
    Ok(Introduction {
        facts,
        provider: welcome.provider.clone().unwrap_or_default(),
    })
}

fn facts(welcome: &proto::Welcome) -> Result<WorkerFacts, Nonsense> {
    let model = welcome.model.as_ref().ok_or_else(|| nonsense("no model"))?;
    let geometry = welcome
        .geometry
        .clone()
        .ok_or_else(|| nonsense("no geometry"))?;
    if model.context_length == 0 {
        return Err(nonsense("a context of 0 tokens"));
    }
    let layout = Arc::new(WorkerLayout::try_from(geometry)?);
    if welcome.labels.len() > MAX_LABELS {
        return Err(nonsense(format!("more than {MAX_LABELS} labels")));
    }
    let seed = match welcome.block_seed.len() {
        0 => None,
        _ => Some(BlockSeed::announced(
            block(&welcome.block_seed)?,
            layout.geometry().page_tokens,
        )),
    };
    Ok(WorkerFacts {
        worker: WorkerId::new(welcome.worker.clone()).map_err(|e| nonsense(e.to_string()))?,
        incarnation: Incarnation(welcome.incarnation),
        role: WorkerRole::try_from(welcome.role())?,
        model: model.name.clone(),
        fingerprint: model.fingerprint.clone(),
        context_length: model.context_length,
        layout,
        seed,
        labels: welcome.labels.clone().into_iter().collect(),
        provider: welcome
            .provider
            .as_ref()
            .map(|p| p.wire.clone())
            .unwrap_or_default(),
    })
}

fn block(name: &[u8]) -> Result<BlockHash, Nonsense> {
    let name = name.try_into();
    name.map(BlockHash)
        .map_err(|_| nonsense("a block's name that is not 16 bytes long"))
}

/// Takes the worker into the pool for as long as its control stream lives and it is to stay.
async fn register(
    party: &Party,
    address: SocketAddr,
    introduction: &Introduction,
    load: proto::Load,
    channel: Channel,
    mut wish: watch::Receiver<Wish>,
) -> Ended {
    let facts = &introduction.facts;
    match party.door.join(facts.clone(), core_load(&load)).await {
        Ok(Ok(())) => {}
        Ok(Err(mismatch)) => return Ended::Refused(mismatch.to_string()),
        Err(_) => return Ended::Closed,
    }
    let worker = facts.worker.clone();
    tracing::info!(%worker, role = %facts.role, %address, model = facts.model, pages = facts.layout.pages(),
        provider = facts.provider, "worker joined");
    party.roster.report(address, load);
    let Channel { send, recv } = channel;
    // Whether the worker is to tell everything that it holds.
    let anew = AtomicBool::new(false);
    let ended = tokio::select! {
        why = listen(party, address, facts, recv, &anew) => Ended::Lost { worker: worker.clone(), why },
        why = beat(send, &anew) => Ended::Lost { worker: worker.clone(), why },
        () = retire(party, &worker, &mut wish) => Ended::Removed,
    };
    let left = Input::Left {
        worker: worker.clone(),
        incarnation: facts.incarnation,
    };
    party.door.tell(left).await;
    if matches!(ended, Ended::Removed) {
        // Should it be configured again one day, it begins anew.
        let _ = party.door.allow(worker, Change::Forget).await;
    }
    ended
}

/// Once the worker is to leave, gives it nothing new, and resolves when it has no request any more. Each
/// request has a deadline, and so has this. Where it may stay after all, it is as before.
async fn retire(party: &Party, worker: &WorkerId, wish: &mut watch::Receiver<Wish>) {
    loop {
        asked_to_leave(wish).await;
        let before = party.door.view().allowed(worker).drained;
        // Fails only where the gateway is stopping.
        let _ = party
            .door
            .allow(worker.clone(), Change::Drained(true))
            .await;
        while *wish.borrow() == Wish::Leave {
            if party.requests.on(worker) == 0 {
                return;
            }
            sleep(LEAVING).await;
        }
        let _ = party
            .door
            .allow(worker.clone(), Change::Drained(before))
            .await;
    }
}

/// Reads reports until there are no more.
async fn listen(
    party: &Party,
    address: SocketAddr,
    facts: &WorkerFacts,
    mut recv: Receiver,
    anew: &AtomicBool,
) -> String {
    let mut follower = CacheFollower::default();
    loop {
        let beat: proto::Beat = match timeout(SILENCE, recv.expect()).await {
            Ok(Ok(beat)) => beat,
            Ok(Err(error)) => return error.to_string(),
            Err(_) => return format!("no report for {} s", SILENCE.as_secs()),
        };
        if let Some(report) = beat.cache
            && let Err(error) = cached(party, facts, report, &mut follower, anew).await
        {
            return error.to_string();
        }
        let Some(load) = beat.load else { continue };
        let report = Input::Report {
            worker: facts.worker.clone(),
            incarnation: facts.incarnation,
            load: core_load(&load),
        };
        party.roster.report(address, load);
        party.door.tell(report).await;
    }
}

/// Takes a report of what the worker holds, a part at a time: nobody waits long for the door.
async fn cached(
    party: &Party,
    facts: &WorkerFacts,
    report: proto::CacheReport,
    follower: &mut CacheFollower,
    anew: &AtomicBool,
) -> Result<(), Nonsense> {
    let all = report.changes.len() as u64;
    let numbered = all.saturating_sub(report.unnumbered.into());
    let changes: Vec<CacheChange> = report
        .changes
        .iter()
        .map(change)
        .collect::<Result<_, _>>()?;
    let tell = |anew, changes: &[CacheChange]| {
        party.door.tell(Input::Cached {
            worker: facts.worker.clone(),
            incarnation: facts.incarnation,
            anew,
            changes: changes.to_vec(),
        })
    };
    match follower.hear(report.first, numbered, report.reset) {
        Heard::Waiting => return Ok(()),
        Heard::Gap => {
            tracing::warn!(worker = %facts.worker, first = report.first,
                "a report of cached blocks is missing: asking for all of them");
            anew.store(true, Ordering::Relaxed);
            tell(true, &[]).await;
            return Ok(());
        }
        Heard::Anew => tell(true, &[]).await,
        Heard::Next => {}
    }
    for part in changes.chunks(CHANGES) {
        tell(false, part).await;
    }
    Ok(())
}

fn change(change: &proto::CacheChange) -> Result<CacheChange, Nonsense> {
    match &change.kind {
        Some(Kind::Stored(name)) => Ok(CacheChange::Stored(block(name)?)),
        Some(Kind::Evicted(name)) => Ok(CacheChange::Evicted(block(name)?)),
        None => Err(nonsense("a change of nothing")),
    }
}

/// Gives signs of life until one cannot be sent.
async fn beat(mut send: Sender, anew: &AtomicBool) -> String {
    let mut ticks = interval(BEAT);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let beat = proto::Beat {
            cache_anew: anew.swap(false, Ordering::Relaxed),
            ..proto::Beat::default()
        };
        match timeout(SILENCE, send.send(&beat)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return error.to_string(),
            Err(_) => return "it reads nothing".to_owned(),
        }
    }
}

fn core_load(load: &proto::Load) -> WorkerLoad {
    WorkerLoad {
        sequence: load.sequence,
        free_pages: load.pages.as_ref().map_or(0, |pages| pages.free),
        queued_prompt_tokens: load.queued_prompt_tokens,
        queued_requests: load.queued_requests,
        running: load.running,
        stopping: load.stopping,
        prefill_ns_per_token: load.prefill_ns_per_token,
        decode_step_us: load.decode_step_us,
    }
}

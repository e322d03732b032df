//! The dispatch stream, from the prefill worker's side.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tandem_core::arena::ArenaLayout;
use tandem_core::blocks::BlockHash;
use tandem_core::decode::{Peer, Refusal};
use tandem_core::flow::{Flow, flows};
use tandem_core::immediate::SlotKey;
use tandem_core::layout::WorkerLayout;
use tandem_core::plan::{grain, travelling};
use tandem_core::prefill::Input;
use tandem_core::{Incarnation, PageIndex, WorkerId};
use tandem_fabric::{MAX_NICS, RegionKey, RemoteRegion};
use tandem_telemetry::TraceContext;
use tandem_wire::convert::{Nonsense, nonsense, request_id};
use tandem_wire::proto::dispatch_reply::Kind;
use tandem_wire::{Channel, Connection, proto};
use tokio::sync::{mpsc, oneshot};

use super::outboxes::To;
use super::{Handle, Happened, reply};
use crate::failure;
use crate::start::Facts;

/// A checked order.
pub(crate) struct Asked {
    pub(super) tokens: Arc<[u32]>,
    /// Whole blocks of what is computed.
    pub(super) blocks: Arc<[BlockHash]>,
    pub(super) pages: Arc<[PageIndex]>,
    /// Tokens that the decode worker holds, before those pages.
    pub(super) held: u32,
    /// Tokens that travel.
    pub(super) travelling: Range<u32>,
    pub(super) flows: Vec<AskedFlow>,
    pub(super) peer: Peer,
    pub(super) deadline: Instant,
    pub(super) replies: mpsc::Sender<proto::DispatchReply>,
    /// Where its trace is recorded.
    pub(super) trace: Option<TraceContext>,
}

/// What one shard of ours sends to one of theirs.
pub(crate) struct AskedFlow {
    pub(super) flow: Flow,
    pub(super) to: To,
    /// The target shard's arena.
    pub(super) target: ArenaLayout,
    /// The target shard's first head.
    pub(super) target_head: u16,
    pub(super) key: SlotKey,
    pub(super) region: RemoteRegion,
}

/// The longest time a prompt may take, whatever the decode worker says.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
/// How long a decode worker may take to read the last message.
const LAST_WORD: Duration = Duration::from_secs(5);
/// Accepted, and the end.
const REPLIES: usize = 4;

/// Serves one stream to its end.
pub(crate) async fn serve(
    facts: &Facts,
    task: Handle,
    connection: &Connection,
    dispatch: proto::Dispatch,
    mut channel: Channel,
) {
    let (replies, mut answers) = mpsc::channel(REPLIES);
    let asked = match check(facts, connection, dispatch, replies) {
        Ok(asked) => asked,
        Err(why) => {
            let refusal = reply(Kind::Refused(failure::refusal(&why)));
            let _ = channel.send.send(&refusal).await;
            return last_word(channel).await;
        }
    };
    let (name, named) = oneshot::channel();
    if task
        .send(Happened::Dispatch(Box::new(asked), name))
        .await
        .is_err()
    {
        return;
    }
    let Ok(transfer) = named.await else { return };
    let mut listening = true;
    loop {
        tokio::select! {
            answer = answers.recv() => {
                let Some(answer) = answer else { break };
                if channel.send.send(&answer).await.is_err() {
                    let _ = task.send(Happened::Input(Input::PeerLost { transfer })).await;
                    return;
                }
            }
            // Half a message lost to the other branch ends in an error here: the peer is then taken
            // for lost, which ends the transfer as a cancel does.
            heard = channel.recv.next::<proto::Cancel>(), if listening => {
                let input = match heard {
                    Ok(Some(_)) => Input::Cancel { transfer },
                    // The decode worker ends the stream when it is through with the transfer.
                    Ok(None) => Input::PeerEnded { transfer },
                    Err(_) => Input::PeerLost { transfer },
                };
                listening = matches!(input, Input::Cancel { .. });
                let _ = task.send(Happened::Input(input)).await;
            }
        }
    }
    last_word(channel).await;
}

async fn last_word(mut channel: Channel) {
    channel.send.finish();
    let _ = tokio::time::timeout(LAST_WORD, channel.send.drained()).await;
}

fn check(
    facts: &Facts,
    connection: &Connection,
    dispatch: proto::Dispatch,
    replies: mpsc::Sender<proto::DispatchReply>,
) -> Result<Asked, Refusal> {
    if dispatch.incarnation != facts.incarnation.0 {
        return Err(Refusal::StalePeer);
    }
    let asked = read(facts, dispatch, replies)?;
    if !connection.is_worker(&asked.peer.worker) {
        let why = format!("the certificate is not {}'s", asked.peer.worker);
        return Err(Refusal::Invalid(why));
    }
    Ok(asked)
}

#[allow(
    clippy::too_many_lines,
    reason = "one check after another, of one message"
)]
fn read(
    facts: &Facts,
    d: proto::Dispatch,
    replies: mpsc::Sender<proto::DispatchReply>,
) -> Result<Asked, Refusal> {
    let request = request_id(&d.request).map_err(|why| invalid(&why))?;
    let geometry = d.geometry.ok_or_else(|| absent("geometry"))?;
    let theirs = WorkerLayout::try_from(geometry).map_err(|why| invalid(&why))?;
    differs(
        "the model's fingerprint",
        &facts.engine.fingerprint,
        &d.fingerprint,
    )?;
    let ours = &facts.layout;
    differs(
        "page_tokens of this worker",
        &ours.geometry().page_tokens.to_string(),
        &d.source_page_tokens.to_string(),
    )?;
    if theirs.data_ranks() != 1 || theirs.shards().len() != d.targets.len() {
        let (targets, shards) = (d.targets.len(), theirs.shards().len());
        return Err(Refusal::Invalid(format!(
            "{targets} targets for {shards} shards"
        )));
    }
    if d.tokens.len() < 2 || d.tokens.len() > facts.engine.context_length as usize {
        return Err(Refusal::Invalid(format!(
            "a prompt of {} tokens",
            d.tokens.len()
        )));
    }
    if let Some(token) = d.tokens.iter().find(|t| **t >= facts.engine.vocabulary) {
        return Err(Refusal::Invalid(format!("token {token}")));
    }
    let (page, prefilled) = (u32::from(theirs.geometry().page_tokens), d.tokens.len() - 1);
    let held = d.held_tokens;
    if held as usize >= prefilled || !held.is_multiple_of(page) {
        let why = format!("{held} tokens held of {prefilled}, in pages of {page}");
        return Err(Refusal::Invalid(why));
    }
    if d.pages.len() != theirs.geometry().pages_for(prefilled - held as usize) {
        return Err(Refusal::Invalid(format!("{} pages", d.pages.len())));
    }
    if let Some(page) = d.pages.iter().find(|p| **p >= theirs.pages()) {
        let pages = theirs.pages();
        return Err(Refusal::Invalid(format!("page {page} of {pages}")));
    }
    let worker = WorkerId::new(d.worker).map_err(|e| Refusal::Invalid(e.to_string()))?;
    let peer = Peer {
        worker,
        incarnation: Incarnation(d.from_incarnation),
    };
    ours.matches(&theirs)
        .map_err(|e| Refusal::Mismatch(e.to_string()))?;
    let turn = request.0 as u64;
    let flows = flows((ours, 0), (&theirs, 0), turn);
    let flows = flows.map_err(|e| Refusal::Mismatch(e.to_string()))?;
    let flows: Result<Vec<AskedFlow>, Refusal> = flows
        .into_iter()
        .map(|flow| {
            let target = &d.targets[usize::from(flow.target)];
            asked_flow(facts, &theirs, &peer, flow, target)
        })
        .collect();
    let grain = grain(ours.geometry().page_tokens, theirs.geometry().page_tokens);
    Ok(Asked {
        trace: facts
            .spans
            .is_on()
            .then(|| TraceContext::accept(&d.trace, &d.trace_state, facts.spans.sampler()))
            .flatten(),
        travelling: travelling(held, prefilled as u32, grain),
        blocks: facts.blocks(&d.cache_salt, &d.tokens[..prefilled]),
        tokens: d.tokens.into(),
        pages: d.pages.into_iter().map(PageIndex).collect(),
        held,
        flows: flows?,
        peer,
        deadline: Instant::now() + Duration::from_millis(d.time_left_ms).min(LONGEST),
        replies,
    })
}

fn asked_flow(
    facts: &Facts,
    theirs: &WorkerLayout,
    peer: &Peer,
    flow: Flow,
    target: &proto::Target,
) -> Result<AskedFlow, Refusal> {
    if let Some(fabrics) = &facts.fabrics {
        let ours = fabrics.info().wire();
        differs("the fabric provider", &ours, &target.provider)?;
    }
    let arena = theirs.arena(flow.target);
    if arena.bytes() as u64 != target.length {
        let (length, pages) = (target.length, theirs.pages());
        let why = format!("an arena of {length} bytes for {pages} pages");
        return Err(Refusal::Invalid(why));
    }
    if target.nics.is_empty() || target.nics.len() > MAX_NICS {
        let nics = target.nics.len();
        return Err(Refusal::Invalid(format!("a shard of {nics} NICs")));
    }
    let name = |nic: &proto::Nic| RegionKey {
        base: nic.base,
        key: nic.key,
    };
    Ok(AskedFlow {
        to: To {
            source: flow.source,
            peer: peer.clone(),
            target: flow.target,
            addresses: target.nics.iter().map(|n| n.address.to_vec()).collect(),
        },
        target: arena,
        target_head: theirs.shards()[usize::from(flow.target)].heads.start,
        key: SlotKey::from_bits(target.slot_key).ok_or_else(|| absent("slot"))?,
        region: RemoteRegion {
            len: target.length,
            keys: target.nics.iter().map(name).collect(),
        },
        flow,
    })
}

fn invalid(why: &Nonsense) -> Refusal {
    Refusal::Invalid(why.to_string())
}

fn absent(what: &str) -> Refusal {
    invalid(&nonsense(format!("no {what}")))
}

fn differs(what: &str, ours: &str, theirs: &str) -> Result<(), Refusal> {
    if ours == theirs {
        return Ok(());
    }
    Err(Refusal::Mismatch(format!(
        "{what} is {ours} here and {theirs} there"
    )))
}

#[cfg(test)]
mod fuzz;

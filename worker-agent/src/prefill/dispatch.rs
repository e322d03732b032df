//! The dispatch stream, from the prefill worker's side.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tandem_core::arena::ArenaLayout;
use tandem_core::decode::{Peer, Refusal};
use tandem_core::geometry::KvGeometry;
use tandem_core::immediate::SlotKey;
use tandem_core::prefill::Input;
use tandem_core::{Incarnation, PageIndex, WorkerId};
use tandem_fabric::RemoteRegion;
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
    pub(super) pages: Arc<[PageIndex]>,
    pub(super) target: ArenaLayout,
    pub(super) key: SlotKey,
    pub(super) region: RemoteRegion,
    pub(super) to: To,
    pub(super) deadline: Instant,
    pub(super) replies: mpsc::Sender<proto::DispatchReply>,
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
                listening = false;
                let input = match heard {
                    Ok(Some(_)) => Input::Cancel { transfer },
                    Ok(None) | Err(_) => Input::PeerLost { transfer },
                };
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
    if !connection.is_worker(&asked.to.peer.worker) {
        let why = format!("the certificate is not {}'s", asked.to.peer.worker);
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
    let invalid = |why: Nonsense| Refusal::Invalid(why.to_string());
    let absent = |what: &str| invalid(nonsense(format!("no {what}")));
    request_id(&d.request).map_err(invalid)?;
    let theirs = d.geometry.ok_or_else(|| absent("geometry"))?;
    let geometry = KvGeometry::try_from(&theirs).map_err(invalid)?;
    facts
        .engine
        .geometry
        .matches(&geometry)
        .map_err(|e| Refusal::Mismatch(e.to_string()))?;
    let differs = |what: &str, ours: &str, theirs: &str| {
        if ours == theirs {
            return Ok(());
        }
        Err(Refusal::Mismatch(format!(
            "{what} is {ours} here and {theirs} there"
        )))
    };
    differs(
        "the model's fingerprint",
        &facts.engine.fingerprint,
        &d.fingerprint,
    )?;
    let target = d.target.ok_or_else(|| absent("target"))?;
    if let Some(fabric) = &facts.fabric {
        differs(
            "the fabric provider",
            &fabric.info().provider,
            &target.provider,
        )?;
    }
    let layout = ArenaLayout::new(geometry, theirs.pages);
    if layout.bytes() as u64 != target.length {
        let why = format!(
            "an arena of {} bytes for {} pages",
            target.length, theirs.pages
        );
        return Err(Refusal::Invalid(why));
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
    if d.pages.len() != geometry.pages_for(d.tokens.len() - 1) {
        return Err(Refusal::Invalid(format!("{} pages", d.pages.len())));
    }
    if let Some(page) = d.pages.iter().find(|p| **p >= theirs.pages) {
        return Err(Refusal::Invalid(format!("page {page} of {}", theirs.pages)));
    }
    let worker = WorkerId::new(d.worker).map_err(|e| Refusal::Invalid(e.to_string()))?;
    let peer = Peer {
        worker,
        incarnation: Incarnation(d.from_incarnation),
    };
    let key = SlotKey::from_bits(d.slot_key).ok_or_else(|| absent("slot"))?;
    Ok(Asked {
        tokens: d.tokens.into(),
        pages: d.pages.into_iter().map(PageIndex).collect(),
        target: layout,
        key,
        region: RemoteRegion {
            base: target.base,
            len: target.length,
            key: target.key,
        },
        to: To {
            peer,
            address: target.address.to_vec(),
        },
        deadline: Instant::now() + Duration::from_millis(d.time_left_ms).min(LONGEST),
        replies,
    })
}

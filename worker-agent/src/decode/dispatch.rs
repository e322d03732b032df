//! The dispatch stream, from the decode worker's side: hand a prompt over, wait for the word that
//! nothing more will be written.

use std::sync::Arc;
use std::time::Instant;

use tandem_core::RequestId;
use tandem_core::decode::{Input, Refusal, WriterEnd};
use tandem_core::ledger::Armed;
use tandem_wire::convert::request_bytes;
use tandem_wire::proto::dispatch_reply::Kind;
use tandem_wire::{Channel, proto};
use tokio::sync::watch;

use super::generate::Prefill;
use crate::failure;
use crate::peers::Peers;
use crate::start::Facts;

/// A prompt to be computed and pushed.
pub(super) struct Order {
    pub(super) request: RequestId,
    pub(super) prefill: Prefill,
    pub(super) tokens: Arc<[u32]>,
    pub(super) pages: Vec<u32>,
    pub(super) armed: Armed,
    pub(super) inbox: Vec<u8>,
    pub(super) deadline: Instant,
}

/// Runs a dispatch to its end and says how it ended. What goes wrong before the order is on its way
/// is a refusal: nothing can have been written.
pub(super) async fn run(
    facts: &Facts,
    peers: &Peers,
    order: Order,
    mut cancel: watch::Receiver<bool>,
) -> Input {
    let request = order.request;
    let gone = |how| Input::WriterGone { request, how };
    let worker = &order.prefill.peer.worker;
    let opened = tokio::select! {
        opened = peers.open(order.prefill.address, worker) => opened,
        _ = cancel.wait_for(|c| *c) => return gone(WriterEnd::Drained),
    };
    let mut channel = match opened {
        Ok(channel) => channel,
        Err(why) => {
            let why = format!("{worker} cannot be reached: {why}");
            return gone(WriterEnd::Refused(Refusal::Busy(why)));
        }
    };
    let open = proto::Open {
        kind: Some(proto::open::Kind::Dispatch(message(facts, order))),
    };
    if let Err(why) = channel.send.send(&open).await {
        return Input::WriterLost {
            request,
            why: why.to_string(),
        };
    }
    follow(request, channel, cancel).await
}

async fn follow(
    request: RequestId,
    Channel { mut send, mut recv }: Channel,
    mut cancel: watch::Receiver<bool>,
) -> Input {
    // Reading is not cancel-safe: it has a task of its own.
    let reading = async {
        loop {
            let reply = match recv.expect::<proto::DispatchReply>().await {
                Ok(reply) => reply,
                Err(why) => {
                    return Input::WriterLost {
                        request,
                        why: why.to_string(),
                    };
                }
            };
            let how = match reply.kind {
                Some(Kind::Accepted(_)) => continue,
                Some(Kind::Refused(why)) => WriterEnd::Refused(failure::read_refusal(why)),
                Some(Kind::Done(done)) => {
                    tracing::debug!(%request, ?done, "pushed");
                    WriterEnd::Done
                }
                Some(Kind::Drained(_)) => WriterEnd::Drained,
                Some(Kind::Failed(why)) => WriterEnd::Failed(why.message),
                Some(Kind::Unsettled(why)) => {
                    return Input::WriterLost {
                        request,
                        why: why.message,
                    };
                }
                None => {
                    return Input::WriterLost {
                        request,
                        why: "an empty reply".into(),
                    };
                }
            };
            return Input::WriterGone { request, how };
        }
    };
    tokio::pin!(reading);
    tokio::select! {
        input = &mut reading => return input,
        _ = cancel.wait_for(|c| *c) => {}
    }
    let _ = send.send(&proto::Cancel {}).await;
    reading.await
}

fn message(facts: &Facts, order: Order) -> proto::Dispatch {
    let left = order.deadline.saturating_duration_since(Instant::now());
    let mut geometry = proto::Geometry::from(&facts.engine.geometry);
    geometry.pages = facts.layout.pages();
    let target = facts.fabric.as_ref().map(|fabric| {
        let info = fabric.info();
        proto::Target {
            address: order.inbox.into(),
            base: info.base,
            length: info.len,
            key: info.key,
            provider: info.provider.clone(),
        }
    });
    proto::Dispatch {
        request: request_bytes(order.request),
        incarnation: order.prefill.peer.incarnation.0,
        worker: facts.id.to_string(),
        from_incarnation: facts.incarnation.0,
        tokens: order.tokens.to_vec(),
        pages: order.pages,
        slot_key: order.armed.key.to_bits(),
        target,
        geometry: Some(geometry),
        fingerprint: facts.engine.fingerprint.clone(),
        time_left_ms: left.as_millis() as u64,
    }
}

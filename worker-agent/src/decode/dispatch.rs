//! The dispatch stream, from the decode worker's side: hand a prompt over, wait for the word that
//! nothing more will be written.

use std::sync::Arc;
use std::time::Instant;

use tandem_core::RequestId;
use tandem_core::decode::{Input, Refusal, WriterEnd};
use tandem_core::ledger::Armed;
use tandem_fabric::{Fabric, Inbox};
use tandem_wire::convert::request_bytes;
use tandem_wire::proto::dispatch_reply::Kind;
use tandem_wire::{Channel, Receiver, Sender, proto};
use tokio::sync::watch;

use super::generate::Prefill;
use super::{Handle, Happened};
use crate::failure;
use crate::peers::Peers;
use crate::start::Facts;

/// A prompt to be computed and pushed.
pub(super) struct Order {
    /// Names the lease to the task.
    pub(super) lease: RequestId,
    /// The gateway's name, which the prefill worker gets too.
    pub(super) request: RequestId,
    pub(super) prefill: Prefill,
    pub(super) tokens: Arc<[u32]>,
    /// From the first token on that is not held here.
    pub(super) pages: Vec<u32>,
    pub(super) held_tokens: u32,
    pub(super) salt: Arc<[u8]>,
    /// Shard by shard.
    pub(super) armed: Arc<[Armed]>,
    pub(super) inboxes: Arc<[Inbox]>,
    pub(super) deadline: Instant,
    /// W3C's two texts; empty where its trace is not recorded.
    pub(super) trace: (String, String),
}

/// Runs a dispatch to its end and says how it ended. What goes wrong before the order is on its way
/// is a refusal: nothing can have been written.
///
/// Where the writer is lost, the stream stays open until the request is gone: its end tells the
/// prefill worker, if that lives, that nothing here reads its pages any more.
pub(super) async fn run(
    facts: &Facts,
    peers: &Peers,
    order: Order,
    mut cancel: watch::Receiver<bool>,
    task: &Handle,
) {
    let request = order.lease;
    let worker = &order.prefill.peer.worker;
    let opened = tokio::select! {
        opened = peers.open(order.prefill.address, worker) => opened,
        _ = cancel.wait_for(|c| *c) => Err("it was cancelled".into()),
    };
    let channel = match opened {
        Ok(channel) => channel,
        Err(why) => {
            let why = format!("{worker} cannot be reached: {why}");
            let how = WriterEnd::Refused(Refusal::Busy(why));
            let input = Input::WriterGone { request, how };
            let _ = task.send(Happened::Input(input)).await;
            return;
        }
    };
    let Channel { mut send, mut recv } = channel;
    let open = proto::Open {
        kind: Some(proto::open::Kind::Dispatch(message(facts, order))),
    };
    let input = match send.send(&open).await {
        Ok(()) => follow(request, &mut send, &mut recv, &mut cancel, task).await,
        Err(why) => Input::WriterLost {
            request,
            why: why.to_string(),
        },
    };
    let lost = matches!(input, Input::WriterLost { .. });
    if task.send(Happened::Input(input)).await.is_ok() && lost {
        while cancel.changed().await.is_ok() {}
    }
}

async fn follow(
    request: RequestId,
    send: &mut Sender,
    recv: &mut Receiver,
    cancel: &mut watch::Receiver<bool>,
    task: &Handle,
) -> Input {
    // Reads on beside whatever else is waited for.
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
                Some(Kind::Began(began)) => {
                    let began = Happened::Began(request, began.cached_tokens);
                    let _ = task.send(began).await;
                    continue;
                }
                Some(Kind::Refused(why)) => WriterEnd::Refused(failure::read_refusal(why)),
                Some(Kind::Done(done)) => {
                    tracing::debug!(%request, ?done, "pushed");
                    let times = proto::PromptTimes {
                        compute_us: done.compute_us,
                        exposed_us: done.exposed_us,
                    };
                    let _ = task.send(Happened::Pushed(request, times)).await;
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
    let source = &order.prefill.layout;
    proto::Dispatch {
        request: request_bytes(order.request),
        incarnation: order.prefill.peer.incarnation.0,
        worker: facts.id.to_string(),
        from_incarnation: facts.incarnation.0,
        tokens: order.tokens.to_vec(),
        pages: order.pages,
        targets: targets(facts, &order.inboxes, &order.armed),
        source_page_tokens: source.geometry().page_tokens.into(),
        geometry: Some(proto::Geometry::from(&*facts.layout)),
        fingerprint: facts.engine.fingerprint.clone(),
        time_left_ms: left.as_millis() as u64,
        held_tokens: order.held_tokens,
        cache_salt: order.salt.to_vec().into(),
        trace: order.trace.0,
        trace_state: order.trace.1,
    }
}

fn targets(facts: &Facts, inboxes: &[Inbox], armed: &[Armed]) -> Vec<proto::Target> {
    let fabrics = facts.fabrics.iter().flat_map(|f| f.all());
    let target = |((fabric, inbox), armed): ((&Fabric, &Inbox), &Armed)| {
        let info = fabric.info();
        let nics = info.nics.iter().zip(&inbox.addresses);
        proto::Target {
            length: info.len,
            provider: info.wire(),
            nics: nics
                .map(|(nic, address)| proto::Nic {
                    address: address.clone().into(),
                    base: nic.name.base,
                    key: nic.name.key,
                })
                .collect(),
            slot_key: armed.key.to_bits(),
        }
    };
    fabrics.zip(inboxes).zip(armed).map(target).collect()
}

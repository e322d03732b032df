//! A gateway's generate stream.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tandem_core::decode::{Peer, Refusal, Reserve, Writer};
use tandem_core::layout::WorkerLayout;
use tandem_core::{Incarnation, RequestId, WorkerId};
use tandem_engine::{Sampling, StopConditions};
use tandem_engine_link::{read_sampling, read_stop};
use tandem_telemetry::TraceContext;
use tandem_wire::convert::{Nonsense, nonsense, request_id};
use tandem_wire::proto::generate_reply::Kind;
use tandem_wire::{Channel, proto};
use tokio::sync::mpsc;

use super::traced::Traced;
use super::{Handle, Happened, reply};
use crate::failure;
use crate::start::Facts;

/// A checked request for an answer.
pub(crate) struct Asked {
    /// Names the lease in this worker, never anything else's.
    lease: RequestId,
    /// The gateway's name for what it asks.
    pub(super) request: RequestId,
    pub(super) tokens: Arc<[u32]>,
    pub(super) generated: u32,
    pub(super) sampling: Sampling,
    pub(super) stop: StopConditions,
    pub(super) prefill: Option<Prefill>,
    pub(super) salt: Arc<[u8]>,
    pub(super) deadline: Instant,
    pub(super) replies: mpsc::Sender<proto::GenerateReply>,
    /// Where its trace is recorded.
    pub(super) traced: Option<Box<Traced>>,
}

/// Who computes the prompt.
#[derive(Clone, Debug)]
pub(crate) struct Prefill {
    pub(super) peer: Peer,
    pub(super) address: SocketAddr,
    pub(super) layout: Arc<WorkerLayout>,
}

impl Prefill {
    fn writer(&self) -> Writer {
        Writer {
            peer: self.peer.clone(),
            layout: Arc::clone(&self.layout),
        }
    }
}

/// The longest time a request may take, whatever its gateway says.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
/// How long a gateway may take to read the last message.
const LAST_WORD: Duration = Duration::from_secs(5);
/// Messages besides tokens: reserved, started, the end.
const OTHER_REPLIES: usize = 4;

impl Asked {
    pub(super) fn reserve(&self, facts: &Facts, now: tandem_core::Instant) -> Reserve {
        let left = self.deadline.saturating_duration_since(Instant::now());
        Reserve {
            request: self.lease,
            tokens: self.tokens.len() as u32,
            blocks: facts.blocks(&self.salt, &self.tokens[..self.tokens.len() - 1]),
            new_tokens: self.stop.max_tokens - self.generated,
            prefill: self.prefill.as_ref().map(Prefill::writer),
            deadline: now + left,
        }
    }
}

/// Serves one stream to its end.
pub(crate) async fn serve(
    facts: &Facts,
    task: Handle,
    generate: proto::Generate,
    mut channel: Channel,
) {
    let (asked, mut replies) = match check(facts, generate).await {
        Ok(checked) => checked,
        Err(why) => {
            let refusal = failure::refusal(&why);
            let _ = channel.send.send(&reply(Kind::Refused(refusal))).await;
            return last_word(channel).await;
        }
    };
    let lease = asked.lease;
    if task
        .send(Happened::Generate(Box::new(asked)))
        .await
        .is_err()
    {
        return;
    }
    let mut listening = true;
    loop {
        tokio::select! {
            answer = replies.recv() => {
                let Some(answer) = answer else { break };
                if channel.send.send(&answer).await.is_err() {
                    let _ = task.send(Happened::Cancel(lease)).await;
                    return;
                }
            }
            // A cancel, an end of the stream and an error all mean the same.
            _ = channel.recv.next::<proto::Cancel>(), if listening => {
                listening = false;
                let _ = task.send(Happened::Cancel(lease)).await;
            }
        }
    }
    last_word(channel).await;
}

async fn last_word(mut channel: Channel) {
    channel.send.finish();
    let _ = tokio::time::timeout(LAST_WORD, channel.send.drained()).await;
}

async fn check(
    facts: &Facts,
    generate: proto::Generate,
) -> Result<(Asked, mpsc::Receiver<proto::GenerateReply>), Refusal> {
    let (asked, replies) = read(facts, generate).map_err(|e| Refusal::Invalid(e.to_string()))?;
    if let Some(constraint) = &asked.sampling.constraint {
        let constraints = &facts.constraints;
        constraints.check(constraint, asked.deadline).await?;
    }
    Ok((asked, replies))
}

fn read(
    facts: &Facts,
    g: proto::Generate,
) -> Result<(Asked, mpsc::Receiver<proto::GenerateReply>), Nonsense> {
    let engine = &facts.engine;
    let request = request_id(&g.request)?;
    let stop = read_stop(g.stop.ok_or_else(|| nonsense("no stop conditions"))?);
    let sampling = read_sampling(g.sampling.ok_or_else(|| nonsense("no sampling"))?)?;
    let ranges = sampling.check(engine.vocabulary);
    let ranges = ranges.and_then(|()| stop.check(engine.vocabulary));
    ranges.map_err(|wrong| nonsense(wrong.to_string()))?;
    if g.tokens.is_empty() {
        return Err(nonsense("no tokens"));
    }
    if g.generated as usize >= g.tokens.len() {
        return Err(nonsense("an answer without a prompt"));
    }
    if let Some(token) = g.tokens.iter().find(|t| **t >= engine.vocabulary) {
        return Err(nonsense(format!("token {token} of {}", engine.vocabulary)));
    }
    if stop.max_tokens <= g.generated {
        return Err(nonsense("no token is left to generate"));
    }
    let most = g.tokens.len() as u64 - u64::from(g.generated) + u64::from(stop.max_tokens);
    if most > u64::from(engine.context_length) {
        return Err(nonsense(format!(
            "{most} tokens in a context of {}",
            engine.context_length
        )));
    }
    let prefill = g.prefill.map(peer).transpose()?;
    let room = (stop.max_tokens - g.generated) as usize + OTHER_REPLIES;
    let (replies, answers) = mpsc::channel(room);
    let left = Duration::from_millis(g.time_left_ms).min(LONGEST);
    let context = TraceContext::accept(&g.trace, &g.trace_state, facts.spans.sampler());
    let traced = |context| Traced::new(facts.spans.clone(), context, Instant::now());
    let asked = Asked {
        lease: facts.new_lease(),
        request,
        tokens: g.tokens.into(),
        generated: g.generated,
        sampling,
        stop,
        prefill,
        salt: g.cache_salt.as_ref().into(),
        deadline: Instant::now() + left,
        replies,
        traced: context.map(|context| Box::new(traced(context))),
    };
    Ok((asked, answers))
}

fn peer(peer: proto::Peer) -> Result<Prefill, Nonsense> {
    let worker = WorkerId::new(peer.worker).map_err(|e| nonsense(e.to_string()))?;
    let address = peer
        .address
        .parse()
        .map_err(|_| nonsense(format!("address {:?}", peer.address)))?;
    let geometry = peer
        .geometry
        .ok_or_else(|| nonsense("a peer without geometry"))?;
    Ok(Prefill {
        layout: Arc::new(WorkerLayout::try_from(geometry)?),
        peer: Peer {
            worker,
            incarnation: Incarnation(peer.incarnation),
        },
        address,
    })
}

#[cfg(test)]
mod fuzz;

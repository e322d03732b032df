//! Carrying out what the prefill agent decides.

use std::sync::Arc;
use std::time::Instant;

use tandem_core::prefill::{Input, Output, TransferEnd};
use tandem_core::push::{Push, PushFlow};
use tandem_core::{FlowId, PageIndex, SequenceId, TransferId};
use tandem_engine::Command;
use tandem_fabric::RemoteRegion;
use tandem_wire::proto;
use tandem_wire::proto::dispatch_reply::Kind;

use super::dispatch::AskedFlow;
use super::outboxes::{self, Slot, To};
use super::traced::Ended;
use super::{Happened, Held, PrefillTask, Way};
use crate::fabrics::Fabrics;
use crate::failure;

impl PrefillTask {
    pub(super) fn carry_out(&mut self) {
        while let Some(output) = self.agent.poll() {
            self.one(output);
        }
    }

    fn one(&mut self, output: Output) {
        match output {
            Output::Accept { transfer } => self.say(transfer, Kind::Accepted(proto::Accepted {})),
            Output::Refuse { transfer, why } => {
                self.say(transfer, Kind::Refused(failure::refusal(&why)));
                self.trace_ended(transfer, Err("refused"));
                self.held.remove(&transfer);
            }
            Output::Open {
                transfer,
                sequence,
                pages,
                flows,
                cached,
            } => {
                self.figures.cached_tokens += u64::from(cached);
                let cached_tokens = cached;
                self.say(transfer, Kind::Began(proto::Began { cached_tokens }));
                self.open(transfer, sequence, &pages, &flows);
            }
            Output::Prefill {
                transfer,
                sequence,
                pages,
                cached,
            } => {
                let Some(held) = self.held.get_mut(&transfer) else {
                    return;
                };
                let tokens = Arc::clone(&held.asked.tokens);
                held.to_compute = tokens.len() as u64 - 1 - u64::from(cached);
                self.sequences.insert(sequence, transfer);
                self.commands.send(Command::Prefill {
                    sequence,
                    tokens,
                    pages,
                    cached,
                });
            }
            Output::CancelSequence { sequence } => {
                self.commands.send(Command::Cancel { sequence });
            }
            Output::StopWatch { transfer } => {
                if self.orders.stop(transfer).is_err() {
                    self.unstopped.push(transfer);
                }
            }
            Output::StopWrites { transfer, flow } => self.stop_writes(transfer, flow),
            Output::Close { transfer } => self.close_ways(transfer),
            Output::End { transfer, how } => self.end(transfer, how),
            Output::Fence { transfer } => self.fence(transfer),
            Output::Cache(change) => self.cache.add(change),
            Output::Gone { transfer } => {
                let Some(held) = self.held.remove(&transfer) else {
                    return;
                };
                if let Some(sequence) = held.sequence {
                    self.sequences.remove(&sequence);
                }
                for way in held.flows {
                    self.flows.remove(&way.flow);
                }
            }
        }
    }

    fn stop_writes(&mut self, transfer: TransferId, flow: FlowId) {
        let ways = self.held.get(&transfer).map(|h| h.flows.as_slice());
        let way = ways.unwrap_or_default().iter().find(|w| w.flow == flow);
        let Some(way) = way else { return };
        let fabric = self.fabrics.shard(way.to.source).clone();
        self.helpers.spawn(async move {
            // A fabric that has ended closes its events, which ends the worker.
            let _ = fabric.stop(flow).await;
        });
    }

    /// Closes the outboxes of a transfer's flows.
    fn close_ways(&mut self, transfer: TransferId) {
        let ways = self.held.get(&transfer).map(|h| h.flows.clone());
        for way in ways.unwrap_or_default() {
            tracing::warn!(?transfer, "writes do not complete: closing their outbox");
            self.close(way.to);
        }
    }

    fn open(
        &mut self,
        transfer: TransferId,
        sequence: SequenceId,
        pages: &Arc<[PageIndex]>,
        names: &[FlowId],
    ) {
        let Some(held) = self.held.get_mut(&transfer) else {
            return;
        };
        held.sequence = Some(sequence);
        let flows = names.iter().zip(&held.asked.flows);
        let push = Push {
            transfer,
            sequence,
            source_pages: Arc::clone(pages),
            target_pages: Arc::clone(&held.asked.pages),
            target_from: held.asked.held,
            tokens: held.asked.travelling.clone(),
            flows: flows.clone().map(|(id, of)| of.push(*id)).collect(),
        };
        let way = |(flow, of): (&FlowId, &AskedFlow)| Way {
            flow: *flow,
            to: of.to.clone(),
        };
        held.flows = flows.clone().map(way).collect();
        let regions: Vec<_> = held.asked.flows.iter().map(|f| f.region.clone()).collect();
        let ways = held.flows.clone();
        self.flows.extend(ways.iter().map(|w| (w.flow, transfer)));
        let mut opening = Vec::new();
        for (Way { flow, to }, region) in ways.into_iter().zip(regions) {
            for stale in self.outboxes.stale(&to) {
                self.close(stale);
            }
            opening.push((flow, self.outboxes.slot(&to), to, region));
        }
        let (fabrics, orders) = (self.fabrics.clone(), self.orders.clone());
        let timed = self.traced.contains_key(&transfer);
        let handle = self.handle.clone();
        self.helpers.spawn(async move {
            let opened = match open_all(&fabrics, &opening).await {
                Ok(()) if orders.start(push, timed).is_ok() => Ok(()),
                Ok(()) => Err("the watcher is behind".to_owned()),
                Err(reason) => Err(reason),
            };
            let happened = match opened {
                Ok(()) => Happened::Opened(transfer),
                Err(reason) => {
                    // Nothing was pushed: those that are open drain at once.
                    for (flow, _, to, _) in &opening {
                        let _ = fabrics.shard(to.source).stop(*flow).await;
                    }
                    Happened::Input(Input::NotOpened { transfer, reason })
                }
            };
            let _ = handle.send(happened).await;
        });
    }

    pub(super) fn opened(&mut self, transfer: TransferId) {
        self.input(Input::Opened { transfer });
    }

    /// Closes an outbox that is open, in the background.
    pub(super) fn close(&mut self, to: To) {
        let Some(slot) = self.outboxes.take(&to) else {
            return;
        };
        let fabric = self.fabrics.shard(to.source).clone();
        let handle = self.handle.clone();
        self.helpers.spawn(async move {
            outboxes::close(&fabric, &slot).await;
            let _ = handle.send(Happened::Closed(to)).await;
        });
    }

    fn end(&mut self, transfer: TransferId, how: TransferEnd) {
        let failed = |message: String| proto::Failure {
            blame: proto::failure::Blame::Prefill.into(),
            code: "prefill_failed".into(),
            message,
            retry_elsewhere: true,
        };
        let kind = match how {
            TransferEnd::Done => {
                let held = self.held.get(&transfer);
                let tokens = held.map_or(0, |h| h.to_compute).max(1);
                let done = held.map(Held::done).unwrap_or_default();
                let each = done.compute_us.saturating_mul(1000) / tokens;
                self.figures.prefill_ns_per_token.measure(each);
                self.figures.transfers_completed += 1;
                self.figures.compute_us += done.compute_us;
                self.figures.exposed_us += done.exposed_us;
                Kind::Done(done)
            }
            TransferEnd::Drained => Kind::Drained(proto::Drained {}),
            TransferEnd::Failed(why) => Kind::Failed(failed(why)),
            TransferEnd::Unsettled(why) => Kind::Unsettled(failed(why)),
        };
        if !matches!(kind, Kind::Done(_)) {
            self.figures.transfers_failed += 1;
        }
        self.trace_ended(
            transfer,
            match &kind {
                Kind::Done(done) => Ok(*done),
                Kind::Drained(_) => Err("cancelled"),
                _ => Err("prefill_failed"),
            },
        );
        self.say(transfer, kind);
    }

    fn trace_ended(&mut self, transfer: TransferId, result: Result<proto::Done, &'static str>) {
        let Some(traced) = self.traced.get_mut(&transfer) else {
            return;
        };
        let held = self.held.get(&transfer);
        traced.ended(Ended {
            at: Instant::now(),
            last_completion: held.and_then(|held| held.ended.last_completion),
            result,
        });
        self.tell(transfer);
    }

    /// Waits until a lost decode worker can read the source pages no more.
    fn fence(&mut self, transfer: TransferId) {
        let ways = self.held.get(&transfer).map(|h| h.flows.clone());
        let (fabrics, handle) = (self.fabrics.clone(), self.handle.clone());
        let mut closing = Vec::new();
        for way in ways.unwrap_or_default() {
            if let Some(slot) = self.outboxes.any(&way.to) {
                closing.push((way.to, slot));
            }
        }
        self.helpers.spawn(async move {
            for (to, slot) in closing {
                outboxes::close(fabrics.shard(to.source), &slot).await;
                outboxes::read_no_more(&fabrics, &to).await;
                let _ = handle.send(Happened::Closed(to)).await;
            }
            let _ = handle
                .send(Happened::Input(Input::Fenced { transfer }))
                .await;
        });
    }

    /// Never waits: the queue has room for all that a transfer can say.
    fn say(&self, transfer: TransferId, kind: Kind) {
        if let Some(held) = self.held.get(&transfer) {
            let _ = held.asked.replies.try_send(super::reply(kind));
        }
    }
}

impl Held {
    fn done(&self) -> proto::Done {
        let micros = |d: std::time::Duration| d.as_micros() as u64;
        let (compute, exposed) = self.computed.map_or((0, 0), |(started, computed)| {
            let last = self.ended.last_completion.unwrap_or(computed);
            (
                micros(computed - started),
                micros(last.saturating_duration_since(computed)),
            )
        });
        proto::Done {
            writes: self.ended.writes,
            bytes: self.ended.bytes,
            compute_us: compute,
            exposed_us: exposed,
        }
    }
}

/// Opens every flow; at the first that cannot be opened it gives up.
async fn open_all(
    fabrics: &Fabrics,
    flows: &[(FlowId, Slot, To, RemoteRegion)],
) -> Result<(), String> {
    for (flow, slot, to, region) in flows {
        let fabric = fabrics.shard(to.source);
        outboxes::open(fabric, slot, to, *flow, region.clone()).await?;
    }
    Ok(())
}

impl AskedFlow {
    pub(super) fn push(&self, id: FlowId) -> PushFlow {
        PushFlow {
            id,
            flow: self.flow.clone(),
            target: self.target,
            target_head: self.target_head,
            key: self.key,
        }
    }
}

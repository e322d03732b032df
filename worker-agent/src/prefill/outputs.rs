//! Carrying out what the prefill agent decides.

use std::sync::Arc;

use tandem_core::prefill::{Input, Output, TransferEnd};
use tandem_core::push::Push;
use tandem_core::{PageIndex, SequenceId, TransferId};
use tandem_engine::Command;
use tandem_wire::proto;
use tandem_wire::proto::dispatch_reply::Kind;

use super::outboxes::{self, Slot};
use super::{Happened, Held, PrefillTask};
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
                self.held.remove(&transfer);
            }
            Output::Open {
                transfer,
                sequence,
                pages,
            } => self.open(transfer, sequence, &pages),
            Output::Prefill {
                transfer,
                sequence,
                pages,
            } => {
                let Some(held) = self.held.get(&transfer) else {
                    return;
                };
                let tokens = Arc::clone(&held.asked.tokens);
                self.sequences.insert(sequence, transfer);
                self.commands.send(Command::Prefill {
                    sequence,
                    tokens,
                    pages,
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
            Output::StopWrites { transfer } => {
                let fabric = self.fabric.clone();
                self.helpers.spawn(async move {
                    // A fabric that has ended closes its events, which ends the worker.
                    let _ = fabric.stop(transfer).await;
                });
            }
            Output::Close { transfer } => {
                let slot = self
                    .held
                    .get(&transfer)
                    .and_then(|h| self.outboxes.take(&h.asked.to));
                if let Some(slot) = slot {
                    tracing::warn!(?transfer, "writes do not complete: closing their outbox");
                    self.close(slot);
                }
            }
            Output::End { transfer, how } => self.end(transfer, how),
        }
    }

    fn open(&mut self, transfer: TransferId, sequence: SequenceId, pages: &Arc<[PageIndex]>) {
        let Some(held) = self.held.get_mut(&transfer) else {
            return;
        };
        held.sequence = Some(sequence);
        let push = Push {
            transfer,
            sequence,
            source_pages: Arc::clone(pages),
            target_pages: Arc::clone(&held.asked.pages),
            target: held.asked.target,
            key: held.asked.key,
        };
        let (region, to) = (held.asked.region, held.asked.to.clone());
        for slot in self.outboxes.take_stale(&to) {
            self.close(slot);
        }
        let slot = self.outboxes.slot(&to);
        let (fabric, orders, handle) = (
            self.fabric.clone(),
            self.orders.clone(),
            self.handle.clone(),
        );
        self.helpers.spawn(async move {
            let opened = outboxes::open(&fabric, &slot, &to, transfer, region).await;
            let happened = match opened {
                Ok(()) if orders.start(push).is_ok() => Happened::Opened(transfer),
                Ok(()) => {
                    let _ = fabric.stop(transfer).await;
                    let reason = "the watcher is behind".into();
                    Happened::Input(Input::NotOpened { transfer, reason })
                }
                Err(reason) => Happened::Input(Input::NotOpened { transfer, reason }),
            };
            let _ = handle.send(happened).await;
        });
    }

    pub(super) fn opened(&mut self, transfer: TransferId) {
        self.input(Input::Opened { transfer });
    }

    pub(super) fn close(&mut self, slot: Slot) {
        let fabric = self.fabric.clone();
        self.helpers
            .spawn(async move { outboxes::close(&fabric, &slot).await });
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
                let done = self.held.get(&transfer).map(Held::done).unwrap_or_default();
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
        self.say(transfer, kind);
        let Some(held) = self.held.remove(&transfer) else {
            return;
        };
        if let Some(sequence) = held.sequence {
            self.sequences.remove(&sequence);
        }
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
        let Some(end) = &self.ended else {
            return proto::Done::default();
        };
        let micros = |d: std::time::Duration| d.as_micros() as u64;
        let (compute, exposed) = self.computed.map_or((0, 0), |(started, computed)| {
            let last = end.last_completion.unwrap_or(computed);
            (
                micros(computed - started),
                micros(last.saturating_duration_since(computed)),
            )
        });
        proto::Done {
            writes: end.ended.writes,
            bytes: end.ended.bytes,
            compute_us: compute,
            exposed_us: exposed,
        }
    }
}

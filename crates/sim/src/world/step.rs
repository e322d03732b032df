//! One step.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use tandem_core::decode::SequenceEnd;
use tandem_core::{EndpointId, WorkerRole};

use crate::action::Action;
use crate::budget::spend;
use crate::decode::DecodeWorker;
use crate::prefill::PrefillWorker;
use crate::stream::DecodeEnd;
use crate::violation::Violation;
use crate::world::{Setup, World};

impl World {
    /// The world after `action`. A failed assertion is a violation like others.
    pub(crate) fn after(&self, setup: &Setup, action: Action) -> Self {
        let stepped = catch_unwind(AssertUnwindSafe(|| {
            let mut next = self.clone();
            next.step(setup, action);
            next
        }));
        stepped.unwrap_or_else(|panic| {
            let said = panic.downcast_ref::<String>().cloned();
            let said = said.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
            let mut next = self.clone();
            next.wrong = Some(Violation::Panicked(said.unwrap_or_default()));
            next
        })
    }

    fn step(&mut self, setup: &Setup, action: Action) {
        if action.is_tick() {
            self.spend_timeout();
        }
        let at = usize::from;
        match action {
            Action::Arm(d, request) => self.arm(setup, at(d), request, true),
            Action::ArmFails(d, request) => {
                spend(&mut self.left.arm_failures);
                self.arm(setup, at(d), request, false);
            }
            Action::Armed(d, request) => self.armed(setup, at(d), request),
            Action::Fence(d, worker, number) => {
                let life = crate::Life { worker, number };
                self.fence(setup, at(d), life);
            }
            Action::Inbound(d, shard) => self.inbound(setup, at(d), shard),
            Action::DecodeTick(d) => self.decode_tick(setup, at(d)),
            Action::Finish(d, sequence) => {
                self.sequence_ended(setup, at(d), sequence, SequenceEnd::Finished);
            }
            Action::LetGo(d, sequence) => {
                self.sequence_ended(setup, at(d), sequence, SequenceEnd::Cancelled);
            }
            Action::DecodeFails(d, sequence) => {
                spend(&mut self.left.engine_failures);
                let how = SequenceEnd::Failed(String::new());
                self.sequence_ended(setup, at(d), sequence, how);
            }
            Action::InboxFails(d, inbox) => self.inbox_fails(at(d), inbox),
            Action::Stray(d, shard, inbox, of) => {
                spend(&mut self.left.strays);
                self.stray(setup, at(d), shard, inbox, of);
            }
            Action::Count(name) => self.count(setup, name),
            Action::Complete(name) => self.complete(setup, name, true),
            Action::Break(name) => {
                if self.wire.get(&name).is_some_and(|w| self.can_land(w)) {
                    spend(&mut self.left.write_errors);
                }
                self.complete(setup, name, false);
            }
            Action::Crash(role, index) => self.crash(role, index),
            Action::Restart(role, index) => self.restart(setup, role, index),
            _ => self.step_of_prefill(setup, action),
        }
    }

    fn step_of_prefill(&mut self, setup: &Setup, action: Action) {
        let at = usize::from;
        match action {
            Action::Open(p, transfer) => self.open_ways(at(p), transfer, true),
            Action::OpenFails(p, transfer) => {
                spend(&mut self.left.open_failures);
                self.open_ways(at(p), transfer, false);
            }
            Action::Opened(p, transfer) => self.opened(setup, at(p), transfer),
            Action::Post(p, transfer) => self.post(setup, at(p), transfer, true),
            Action::PostFails(p, transfer) => {
                spend(&mut self.left.post_failures);
                self.post(setup, at(p), transfer, false);
            }
            Action::StopWatch(p, transfer) => self.watch_stopped(setup, at(p), transfer),
            Action::StopFlow(p, flow) => self.stop_flow(at(p), flow),
            Action::CloseOutbox(p, outbox) => self.close_outbox(setup, at(p), outbox),
            Action::SourceFence(p, which) => self.source_fence(setup, at(p), which),
            Action::Outbound(p, shard) => self.outbound(setup, at(p), shard),
            Action::PrefillTick(p) => self.prefill_tick(setup, at(p)),
            Action::Computed(p, sequence) => self.prompt_ended(setup, at(p), sequence, Ok(())),
            Action::Dropped(p, sequence) => {
                self.prompt_ended(setup, at(p), sequence, Err("cancelled".into()));
            }
            Action::PrefillFails(p, sequence) => {
                spend(&mut self.left.engine_failures);
                self.prompt_ended(setup, at(p), sequence, Err("failed".into()));
            }
            Action::OutboxFails(p, outbox) => {
                spend(&mut self.left.outbox_failures);
                let worker = self.prefill(at(p));
                if let Some(entry) = worker.endpoints.get_mut(&outbox) {
                    entry.failed = true;
                    let source = usize::from(entry.source);
                    worker.shards[source].fail(outbox);
                }
            }
            _ => self.step_of_streams(setup, action),
        }
    }

    fn step_of_streams(&mut self, setup: &Setup, action: Action) {
        match action {
            Action::Submit(request) => self.submit(setup, request),
            Action::DoorTick => Arc::make_mut(&mut self.gateway).tick(),
            Action::Left(role, index) => self.left(role, index),
            Action::Join(role, index) => self.join(setup, role, index),
            Action::Report(index) => self.report(index),
            Action::Generate(attempt) => self.generate(setup, attempt),
            Action::Cancel(attempt) => self.cancel(setup, attempt),
            Action::AskLost(attempt) => {
                let ask = self.gateway.asks.get(&attempt);
                let lives = ask.is_some_and(|a| self.is_up(WorkerRole::Decode, a.decode));
                Arc::make_mut(&mut self.gateway).lost(attempt, lives);
            }
            Action::ClientLeaves(request) => {
                spend(&mut self.left.cancels);
                Arc::make_mut(&mut self.gateway).client_leaves(request);
            }
            Action::BreakGenerate(attempt) => {
                spend(&mut self.left.generate_breaks);
                Arc::make_mut(&mut self.gateway).break_ask(attempt);
            }
            Action::Connect(attempt) => {
                if let Some(stream) = self.streams.get_mut(&attempt) {
                    Arc::make_mut(stream).dispatch();
                }
            }
            Action::NotConnected(attempt) => self.not_connected(setup, attempt),
            Action::ToPrefill(attempt) => self.prefill_reads(setup, attempt),
            Action::ToDecode(attempt) => self.decode_reads(setup, attempt),
            Action::BreakDispatch(attempt) => {
                spend(&mut self.left.dispatch_breaks);
                if let Some(stream) = self.streams.get_mut(&attempt) {
                    Arc::make_mut(stream).broken = true;
                }
            }
            Action::DecodeHears(attempt) => self.decode_end_lost(setup, attempt),
            Action::PrefillHears(attempt) => self.prefill_end_lost(setup, attempt),
            other => panic!("{other:?} is nobody's"),
        }
        self.forget_streams();
    }

    /// A deadline that passes while nothing else comes by itself costs nothing.
    fn spend_timeout(&mut self) {
        let mut others = Vec::new();
        self.offer(&mut others);
        if others.iter().any(|a| self.is_due(a)) {
            spend(&mut self.left.timeouts);
        }
    }

    fn inbox_fails(&mut self, d: usize, inbox: EndpointId) {
        spend(&mut self.left.inbox_failures);
        let worker = self.decode(d);
        if let Some(entry) = worker.endpoints.get_mut(&inbox) {
            entry.failed = true;
            let failed = crate::decode::Event::Failed(inbox);
            worker.shards[0].events.push_back(failed);
        }
    }

    fn crash(&mut self, role: WorkerRole, index: u8) {
        let at = usize::from(index);
        let is_prefill = role == WorkerRole::Prefill;
        for stream in self.streams.values_mut() {
            let order = &stream.order;
            if is_prefill
                && order.prefill == self.prefills[at].life
                && stream.decode_end != DecodeEnd::Connecting
            {
                let stream = Arc::make_mut(stream);
                stream.broken = true;
                stream.close_prefill_end();
            } else if !is_prefill && order.decode == self.decodes[at].life {
                let stream = Arc::make_mut(stream);
                stream.broken = true;
                stream.decode_end = DecodeEnd::Closed;
                stream.to_decode.clear();
            }
        }
        if is_prefill {
            spend(&mut self.left.prefill_crashes);
            let life = self.prefills[at].life;
            self.prefill(at).up = false;
            self.given_up(life, true, |_| true);
        } else {
            spend(&mut self.left.decode_crashes);
            let life = self.decodes[at].life;
            self.decode(at).up = false;
            self.inbox_closed(life, None);
        }
        self.forget_streams();
    }

    fn restart(&mut self, setup: &Setup, role: WorkerRole, index: u8) {
        spend(&mut self.left.restarts);
        let at = usize::from(index);
        if role == WorkerRole::Prefill {
            let next = self.prefills[at].life.next();
            self.prefills[at] = Arc::new(PrefillWorker::new(setup, next));
        } else {
            let next = self.decodes[at].life.next();
            self.decodes[at] = Arc::new(DecodeWorker::new(setup, next));
        }
    }
}

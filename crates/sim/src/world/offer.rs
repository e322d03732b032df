//! What may happen next, in an order that depends on nothing but the state.

use tandem_core::WorkerRole;
use tandem_core::lease::PageState;

use crate::action::Action;
use crate::gateway::Client;
use crate::stream::{DecodeEnd, PrefillEnd, Word};
use crate::wire::Sender;
use crate::world::World;

impl World {
    /// Everything that may happen next.
    pub(crate) fn offer(&self, actions: &mut Vec<Action>) {
        if self.wrong.is_some() {
            return;
        }
        actions.clear();
        self.offer_of_gateway(actions);
        for (d, worker) in (0..).zip(&self.decodes) {
            if worker.up {
                self.offer_of_decode(d, actions);
            }
        }
        self.offer_of_streams(actions);
        for (p, worker) in (0..).zip(&self.prefills) {
            if worker.up {
                self.offer_of_prefill(p, actions);
            }
        }
        self.offer_of_wire(actions);
        if self.left.timeouts == 0 && actions.iter().any(|a| self.is_due(a)) {
            actions.retain(|action| !action.is_tick());
        }
        if self.gateway.unended().is_some() || actions.iter().any(|a| self.is_due(a) || a.is_tick())
        {
            self.offer_of_processes(actions);
        } else {
            // All is over: what could still go wrong concerns nobody.
            actions.clear();
        }
    }

    /// Whether an action comes by itself, before any deadline passes.
    pub(crate) fn is_due(&self, action: &Action) -> bool {
        let ghost = |name| {
            self.wire
                .get(name)
                .is_some_and(|w| w.sender == Sender::GaveUp)
        };
        match action {
            // A write that its sender has given up need not land.
            Action::Count(name) if ghost(name) => false,
            Action::Post(p, t) => {
                let watched = self.prefills[usize::from(*p)].watched.get(t);
                watched.is_some_and(|w| !w.given_up)
            }
            action => action.must_happen() && !action.is_tick(),
        }
    }

    fn offer_of_gateway(&self, actions: &mut Vec<Action>) {
        let gateway = &self.gateway;
        actions.extend(gateway.next().map(Action::Submit));
        if gateway.deadline().is_some() {
            actions.push(Action::DoorTick);
        }
        for (d, worker) in (0..).zip(&self.decodes) {
            let known = gateway.known(WorkerRole::Decode, d);
            offer_registry(
                WorkerRole::Decode,
                d,
                worker.up,
                known == Some(worker.life),
                known,
                actions,
            );
            let free = worker.agent.pages().of(PageState::Free);
            if worker.up && known == Some(worker.life) && gateway.wants_report(d, free) {
                actions.push(Action::Report(d));
            }
        }
        for (p, worker) in (0..).zip(&self.prefills) {
            let known = gateway.known(WorkerRole::Prefill, p);
            offer_registry(
                WorkerRole::Prefill,
                p,
                worker.up,
                known == Some(worker.life),
                known,
                actions,
            );
        }
        for (attempt, ask) in &gateway.asks {
            let lives = self.is_up(WorkerRole::Decode, ask.decode);
            let broken = gateway.is_broken(*attempt);
            if lives && !ask.arrived {
                actions.push(Action::Generate(*attempt));
            }
            if lives && ask.arrived && !ask.cancelled && (ask.let_go || broken) {
                actions.push(Action::Cancel(*attempt));
            }
            if !ask.let_go && (broken || !lives) {
                actions.push(Action::AskLost(*attempt));
            }
            if self.left.generate_breaks > 0 && gateway.can_break(*attempt) {
                actions.push(Action::BreakGenerate(*attempt));
            }
        }
        if self.left.cancels > 0 {
            let requests = 1..=gateway.arrived();
            let there = |r: &u8| matches!(gateway.client(*r), Client::Waiting | Client::Asked(_));
            actions.extend(requests.filter(there).map(Action::ClientLeaves));
        }
    }

    fn offer_of_decode(&self, d: u8, actions: &mut Vec<Action>) {
        let worker = &self.decodes[usize::from(d)];
        for (request, arming) in &worker.arming {
            if arming.said.is_some() {
                actions.push(Action::Armed(d, *request));
            } else {
                actions.push(Action::Arm(d, *request));
                if self.left.arm_failures > 0 {
                    actions.push(Action::ArmFails(d, *request));
                }
            }
        }
        let fences = worker.fencing.iter();
        actions.extend(fences.map(|(peer, _)| Action::Fence(d, peer.worker, peer.number)));
        for (shard, inbound) in (0..).zip(&worker.shards) {
            if !inbound.events.is_empty() {
                actions.push(Action::Inbound(d, shard));
            }
        }
        if worker.agent.deadline().is_some() {
            actions.push(Action::DecodeTick(d));
        }
        for (id, sequence) in &worker.sequences {
            if sequence.ready {
                actions.push(Action::Finish(d, *id));
            }
            if sequence.cancelled {
                actions.push(Action::LetGo(d, *id));
            } else if self.left.engine_failures > 0 {
                actions.push(Action::DecodeFails(d, *id));
            }
        }
        for (id, inbox) in worker.endpoints.iter().filter(|(_, i)| i.open && !i.failed) {
            if self.left.inbox_failures > 0 {
                actions.push(Action::InboxFails(d, *id));
            }
            if self.left.strays > 0 && self.is_up(WorkerRole::Prefill, inbox.peer) {
                for (shard, inbound) in (0..).zip(&worker.shards) {
                    let stray = |of| Action::Stray(d, shard, *id, of);
                    actions.extend(inbound.elsewhere(*id).map(stray));
                }
            }
        }
    }

    fn offer_of_streams(&self, actions: &mut Vec<Action>) {
        for (attempt, stream) in &self.streams {
            let up = self.prefills[stream.order.prefill.index()].up;
            if stream.decode_end == DecodeEnd::Connecting {
                if stream.cancelled || !up || self.left.dispatch_breaks > 0 {
                    actions.push(Action::NotConnected(*attempt));
                }
                if up {
                    actions.push(Action::Connect(*attempt));
                }
                continue;
            }
            let reads = up
                && match stream.to_prefill.front() {
                    None => false,
                    Some(Word::Dispatch) => stream.prefill_end == PrefillEnd::Unopened,
                    Some(_) => matches!(stream.prefill_end, PrefillEnd::Serving(_)),
                };
            if reads {
                actions.push(Action::ToPrefill(*attempt));
            }
            let follows = stream.decode_end == DecodeEnd::Following;
            if follows && !stream.to_decode.is_empty() {
                actions.push(Action::ToDecode(*attempt));
            }
            if stream.broken {
                if matches!(stream.decode_end, DecodeEnd::Following | DecodeEnd::Holding) {
                    actions.push(Action::DecodeHears(*attempt));
                }
            } else if self.left.dispatch_breaks > 0 {
                actions.push(Action::BreakDispatch(*attempt));
            }
            let hears = match stream.prefill_end {
                PrefillEnd::Serving(_) => stream.broken || stream.unsent,
                PrefillEnd::Deaf(_) => stream.unsent,
                _ => false,
            };
            if hears {
                actions.push(Action::PrefillHears(*attempt));
            }
        }
    }

    fn offer_of_prefill(&self, p: u8, actions: &mut Vec<Action>) {
        let worker = &self.prefills[usize::from(p)];
        for (transfer, opening) in &worker.opening {
            if opening.done.is_some() {
                actions.push(Action::Opened(p, *transfer));
            } else {
                actions.push(Action::Open(p, *transfer));
                if self.left.open_failures > 0 {
                    actions.push(Action::OpenFails(p, *transfer));
                }
            }
        }
        for (transfer, watched) in &worker.watched {
            if watched.started {
                actions.push(Action::Post(p, *transfer));
                if self.left.post_failures > 0 {
                    actions.push(Action::PostFails(p, *transfer));
                }
            }
        }
        actions.extend(worker.stop_watch.iter().map(|t| Action::StopWatch(p, *t)));
        actions.extend(worker.stopping.iter().map(|f| Action::StopFlow(p, *f)));
        actions.extend(worker.closing.iter().map(|o| Action::CloseOutbox(p, *o)));
        actions.extend((0..worker.fencing.len() as u8).map(|i| Action::SourceFence(p, i)));
        for (shard, outbound) in (0..).zip(&worker.shards) {
            if !outbound.events.is_empty() {
                actions.push(Action::Outbound(p, shard));
            }
        }
        if worker.agent.deadline().is_some() {
            actions.push(Action::PrefillTick(p));
        }
        for (id, prompt) in &worker.prompts {
            actions.push(Action::Computed(p, *id));
            if prompt.cancelled {
                actions.push(Action::Dropped(p, *id));
            } else if self.left.engine_failures > 0 {
                actions.push(Action::PrefillFails(p, *id));
            }
        }
        if self.left.outbox_failures > 0 {
            let usable = worker.endpoints.iter().filter(|(_, o)| o.open && !o.failed);
            actions.extend(usable.map(|(id, _)| Action::OutboxFails(p, *id)));
        }
    }

    fn offer_of_wire(&self, actions: &mut Vec<Action>) {
        for (name, write) in &self.wire {
            let lands = self.can_land(write);
            if lands && !write.counted {
                actions.push(Action::Count(*name));
            }
            if write.sender != Sender::Waits {
                continue;
            }
            if lands || write.landed {
                actions.push(Action::Complete(*name));
            }
            if !lands || self.left.write_errors > 0 {
                actions.push(Action::Break(*name));
            }
        }
    }

    fn offer_of_processes(&self, actions: &mut Vec<Action>) {
        for (p, worker) in (0..).zip(&self.prefills) {
            if worker.up && self.left.prefill_crashes > 0 {
                actions.push(Action::Crash(WorkerRole::Prefill, p));
            } else if !worker.up && self.left.restarts > 0 {
                actions.push(Action::Restart(WorkerRole::Prefill, p));
            }
        }
        for (d, worker) in (0..).zip(&self.decodes) {
            if worker.up && self.left.decode_crashes > 0 {
                actions.push(Action::Crash(WorkerRole::Decode, d));
            } else if !worker.up && self.left.restarts > 0 {
                actions.push(Action::Restart(WorkerRole::Decode, d));
            }
        }
    }
}

fn offer_registry(
    role: WorkerRole,
    index: u8,
    up: bool,
    current: bool,
    known: Option<crate::Life>,
    actions: &mut Vec<Action>,
) {
    if known.is_some() && !(up && current) {
        actions.push(Action::Left(role, index));
    } else if known.is_none() && up {
        actions.push(Action::Join(role, index));
    }
}

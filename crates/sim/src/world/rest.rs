//! When nothing has to happen any more: then everything has come back, and every request has ended.

use tandem_core::EndpointId;
use tandem_core::lease::PageState;
use tandem_core::pool::PageCounts;

use crate::violation::Violation;
use crate::wire::Sender;
use crate::world::World;

impl World {
    /// What is wrong with this state, if anything is.
    pub(crate) fn fault_at_rest(&self) -> Option<Violation> {
        if self.wrong.is_some() {
            return self.wrong.clone();
        }
        let mut actions = Vec::new();
        self.offer(&mut actions);
        if actions.iter().any(|a| self.is_due(a) || a.is_tick()) {
            return None;
        }
        if let Some(attempt) = self.gateway.unended() {
            return Some(Violation::Unended(attempt));
        }
        self.leak().map(Violation::Leak)
    }

    fn leak(&self) -> Option<String> {
        let used = |pages: PageCounts| pages.total() - pages.of(PageState::Free);
        for worker in self.decodes.iter().filter(|w| w.up) {
            let slots: usize = worker
                .shards
                .iter()
                .map(super::super::decode::Inbound::in_use)
                .sum();
            let figures = [
                ("requests", worker.agent.requests()),
                ("pages", used(worker.agent.pages()) as usize),
                ("slots", slots),
                ("known slots", worker.slots.len()),
                ("held", worker.held.len()),
                ("sequences", worker.sequences.len()),
            ];
            if let Some((what, n)) = figures.iter().find(|(_, n)| *n > 0) {
                return Some(format!("decode {:?}: {n} {what}", worker.life));
            }
        }
        for worker in self.prefills.iter().filter(|w| w.up) {
            let flows = worker.shards.iter().filter(|s| !s.is_empty()).count();
            let untabled = |e: &EndpointId| !worker.outboxes.values().any(|o| o == e);
            let open = worker.endpoints.iter().filter(|(_, o)| o.open);
            let lost = open.filter(|(id, _)| untabled(id)).count();
            let figures = [
                ("transfers", worker.agent.transfers()),
                ("pages", used(worker.agent.pages()) as usize),
                ("shards with flows", flows),
                ("held", worker.held.len()),
                ("watched", worker.watched.len()),
                ("prompts", worker.prompts.len()),
                ("outboxes that nobody knows", lost),
            ];
            if let Some((what, n)) = figures.iter().find(|(_, n)| *n > 0) {
                return Some(format!("prefill {:?}: {n} {what}", worker.life));
            }
        }
        let waits = self.wire.iter().find(|(_, w)| w.sender == Sender::Waits);
        if let Some((name, _)) = waits {
            return Some(format!("write {name:?} never completes"));
        }
        (!self.streams.is_empty()).then(|| "a stream is open".to_owned())
    }
}

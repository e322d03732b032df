//! Workers that register at the gateway, report and leave; and the requests that wait for them.

use tandem_core::fleet::{WorkerFacts, WorkerLoad};
use tandem_core::front_door::Input;
use tandem_core::lease::PageState;
use tandem_core::pairing::RequestFacts;
use tandem_core::{Instant, WorkerRole};

use crate::config::at;
use crate::names::worker_id;
use crate::world::{Setup, World};

impl World {
    /// A client's request comes.
    pub(crate) fn submit(&mut self, setup: &Setup, request: u8) {
        let gateway = std::sync::Arc::make_mut(&mut self.gateway);
        let plan = setup.config.plan(request);
        let id = tandem_core::RequestId(request.into());
        let facts = RequestFacts::new(id, plan.tokens, plan.new_tokens);
        let deadline = at(plan.deadline);
        gateway.arrived = request;
        let submit = Input::Submit {
            facts,
            deadline,
            key: None,
        };
        gateway.door.handle(Instant::ZERO, submit);
        gateway.place();
    }

    pub(crate) fn join(&mut self, setup: &Setup, role: WorkerRole, index: u8) {
        let (life, free) = match role {
            WorkerRole::Prefill => (self.prefills[usize::from(index)].life, 0),
            _ => {
                let worker = &self.decodes[usize::from(index)];
                (worker.life, worker.agent.pages().of(PageState::Free))
            }
        };
        let facts = WorkerFacts {
            worker: worker_id(role, index.into()),
            incarnation: life.incarnation(),
            role,
            model: String::new(),
            fingerprint: String::new(),
            context_length: u32::MAX,
            layout: setup.layout(role),
            provider: String::new(),
            seed: None,
            labels: std::collections::BTreeMap::new(),
        };
        let load = WorkerLoad {
            free_pages: free,
            ..WorkerLoad::default()
        };
        let gateway = std::sync::Arc::make_mut(&mut self.gateway);
        gateway.known.insert((role, index), life);
        let joined = gateway.door.join(facts, load);
        joined.expect("all workers fit one another");
        gateway.place();
    }

    pub(crate) fn left(&mut self, role: WorkerRole, index: u8) {
        let gateway = std::sync::Arc::make_mut(&mut self.gateway);
        if let Some(life) = gateway.known.remove(&(role, index)) {
            let left = Input::Left {
                worker: worker_id(role, index.into()),
                incarnation: life.incarnation(),
            };
            gateway.door.handle(Instant::ZERO, left);
        }
        gateway.place();
    }

    pub(crate) fn report(&mut self, index: u8) {
        let free = self.decodes[usize::from(index)]
            .agent
            .pages()
            .of(PageState::Free);
        let gateway = std::sync::Arc::make_mut(&mut self.gateway);
        let worker = worker_id(WorkerRole::Decode, index.into());
        let Some(known) = gateway.door.fleet().get(&worker) else {
            return;
        };
        let load = WorkerLoad {
            sequence: known.load.sequence + 1,
            free_pages: free,
            ..WorkerLoad::default()
        };
        let incarnation = known.facts.incarnation;
        let report = Input::Report {
            worker,
            incarnation,
            load,
        };
        gateway.unreported.remove(&index);
        gateway.door.handle(Instant::ZERO, report);
        gateway.place();
    }
}

//! The gateway's side: requests that come, and what the front door wants done.

use tandem_core::RequestId;
use tandem_core::decode::{self, Refusal, Reserve, Writer};
use tandem_core::front_door::{Again, Input, Output};
use tandem_core::pairing::{Pair, RequestFacts};

use super::{FOR_EVER, Run};
use crate::blocks::chains;
use crate::engine::Number;
use crate::worker::LIFE;

pub(super) const fn id(number: Number) -> RequestId {
    RequestId(number as u128)
}

pub(super) const fn number(request: RequestId) -> Number {
    request.0 as Number
}

impl Run<'_> {
    pub(super) fn tell(&mut self, input: Input) {
        let now = self.instant();
        self.door.handle(now, input);
    }

    pub(super) fn arrives(&mut self, number: Number) {
        let request = &self.trace[number];
        let facts = RequestFacts {
            arrived: self.instant(),
            affinity: request.session,
            blocks: chains(request, &self.seeds),
            ..RequestFacts::new(id(number), request.prompt, request.answer)
        };
        self.lives[number].last = request.at;
        self.lives[number].left_queue = request.at;
        let deadline = self.instant() + FOR_EVER;
        self.tell(Input::Submit {
            facts,
            deadline,
            key: None,
        });
    }

    pub(super) fn door_says(&mut self, output: Output) {
        match output {
            Output::Ask { request, pair } => self.ask(number(request), &pair),
            Output::Reject { request, why, .. } => {
                let life = &mut self.lives[number(request)];
                life.rejected = Some(why.as_str());
                life.last = self.now;
                self.late += 1;
            }
        }
    }

    fn ask(&mut self, number: Number, pair: &Pair) {
        let decode = self.by_name[&pair.decode];
        let prefill = pair.prefill.as_ref().map(|worker| self.by_name[worker]);
        (self.lives[number].decode, self.lives[number].prefill) = (decode, prefill);
        let request = &self.trace[number];
        let seed = self.workers[decode].facts.seed;
        let chains = chains(request, seed.as_slice());
        let reserve = Reserve {
            request: id(number),
            tokens: request.prompt,
            blocks: chains[0].blocks.clone(),
            new_tokens: request.answer,
            prefill: prefill.map(|index| Writer {
                peer: self.workers[index].peer(),
                layout: self.workers[index].facts.layout.clone(),
            }),
            deadline: self.instant() + FOR_EVER,
        };
        self.tell_decode(decode, decode::Input::Reserve(reserve));
    }

    pub(super) fn refused(&mut self, worker: usize, request: RequestId, why: &Refusal) {
        let again = match why {
            Refusal::NoRoom(_) => Again::WhenRoom,
            Refusal::NeverFits(_) | Refusal::Invalid(_) | Refusal::Mismatch(_) => Again::Never,
            Refusal::Busy(_) | Refusal::Stopping | Refusal::StalePeer => Again::Elsewhere,
        };
        self.tell(Input::Refused {
            request,
            again,
            message: why.to_string(),
        });
        // It counts as full until it reports, also where nothing has changed.
        self.report_soon(worker);
    }

    pub(super) fn reports(&mut self, index: usize) {
        let worker = &mut self.workers[index];
        worker.reports = false;
        let name = worker.facts.worker.clone();
        if let Some((anew, changes)) = worker.take_changes() {
            self.tell(Input::Cached {
                worker: name.clone(),
                incarnation: LIFE,
                anew,
                changes,
            });
        }
        let load = self.workers[index].report();
        self.tell(Input::Report {
            worker: name,
            incarnation: LIFE,
            load,
        });
    }
}

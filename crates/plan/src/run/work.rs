//! The workers' side: what agents want done, steps that end, prompts that land.

use std::time::Duration;

use tandem_core::decode::{self, SequenceEnd, Which, WriterEnd};
use tandem_core::front_door::{Blame, Input};
use tandem_core::immediate::SlotKey;
use tandem_core::ledger::Armed;
use tandem_core::prefill::{self, TransferEnd};
use tandem_core::{SequenceId, TransferId};

use super::gateway::{id, number};
use super::{Event, FOR_EVER, REPORT, Run};
use crate::blocks::chains;
use crate::engine::{Decode, Number, Prefill};
use crate::worker::Said;

/// One transfer for each request.
const fn transfer(number: Number) -> TransferId {
    TransferId(number as u64)
}

const fn of_transfer(transfer: TransferId) -> Number {
    transfer.0 as Number
}

impl Run<'_> {
    pub(super) fn tell_decode(&mut self, worker: usize, input: decode::Input) {
        let now = self.instant();
        self.workers[worker].decode(now, input);
        self.talking.push(worker);
    }

    fn tell_prefill(&mut self, worker: usize, input: prefill::Input) {
        let now = self.instant();
        self.workers[worker].prefill(now, input);
        self.talking.push(worker);
    }

    pub(super) fn report_soon(&mut self, index: usize) {
        if !std::mem::replace(&mut self.workers[index].reports, true) {
            self.at(self.now + REPORT, Event::Reports(index));
        }
    }

    pub(super) fn worker_says(&mut self, worker: usize, said: Said) {
        match said {
            Said::Decode(output) => self.decode_says(worker, output),
            Said::Prefill(output) => self.prefill_says(worker, output),
        }
    }

    fn decode_says(&mut self, index: usize, output: decode::Output) {
        use decode::Output;
        let worker = &mut self.workers[index];
        match output {
            Output::Refuse { request, why } => self.refused(index, request, &why),
            Output::Admit {
                request, sequence, ..
            } => self.admitted(index, number(request), sequence),
            Output::Arm {
                request, pieces, ..
            } => {
                // Nothing comes late where nothing fails, so one slot does for all.
                let armed = Armed {
                    key: SlotKey::new(0, 0),
                };
                let armed = pieces.iter().map(|_| armed).collect();
                self.tell_decode(index, decode::Input::Armed { request, armed });
            }
            Output::Reserved { request, held, .. } => {
                let life = &mut self.lives[number(request)];
                (life.left_queue, life.held) = (self.now, held);
                self.tell(Input::Reserved { request });
            }
            Output::Dispatch { request, .. } => self.dispatched(number(request)),
            Output::PrefillHere {
                request, cached, ..
            } => {
                worker.sequences += 1;
                self.compute(index, number(request), cached);
            }
            Output::MakeReady { sequence, .. } => worker.engine.make_ready(sequence),
            Output::Fail { request, .. } => self.tell(Input::Failed {
                request,
                blame: Blame::Prefill,
                generated: 0,
            }),
            // What is asked for here is asked for in failures only, or needs nothing done.
            Output::CancelPrefill { .. }
            | Output::CancelSequence { .. }
            | Output::ReleaseSlot { .. }
            | Output::Fence { .. }
            | Output::Gone { .. }
            | Output::Cache(_) => {}
        }
    }

    fn admitted(&mut self, index: usize, number: Number, sequence: SequenceId) {
        let request = &self.trace[number];
        let worker = &mut self.workers[index];
        worker.sequences += 1;
        worker.waiting += 1;
        if self.lives[number].prefill.is_none() {
            worker.waiting_tokens += u64::from(request.prompt - 1);
        }
        worker.engine.admit(Decode {
            number,
            sequence,
            ready: false,
            before: request.prompt - 1,
            left: request.answer,
        });
    }

    /// The engine is to compute a prompt of which the first `cached` tokens are there.
    fn compute(&mut self, index: usize, number: Number, cached: u32) {
        let life = &mut self.lives[number];
        life.cached = cached;
        let worker = &mut self.workers[index];
        worker.usage.cached_tokens += u64::from(cached);
        worker.engine.prefill(Prefill {
            number,
            done: cached,
            end: self.trace[number].prompt - 1,
            sent: life.held,
            began: None,
            exposed: Duration::ZERO,
        });
    }

    fn dispatched(&mut self, number: Number) {
        let Some(prefill) = self.lives[number].prefill else {
            return;
        };
        let request = &self.trace[number];
        let seed = self.workers[prefill].facts.seed;
        let chains = chains(request, seed.as_slice());
        let dispatch = prefill::Input::Dispatch {
            transfer: transfer(number),
            tokens: request.prompt,
            blocks: chains[0].blocks.clone(),
            flows: 1,
            deadline: self.instant() + FOR_EVER,
        };
        self.tell_prefill(prefill, dispatch);
    }

    fn prefill_says(&mut self, index: usize, output: prefill::Output) {
        use prefill::Output;
        match output {
            Output::Open {
                transfer, flows, ..
            } => {
                self.lives[of_transfer(transfer)].flow = flows.first().copied();
                self.tell_prefill(index, prefill::Input::Opened { transfer });
            }
            Output::Prefill {
                transfer, cached, ..
            } => {
                self.workers[index].sequences += 1;
                self.compute(index, of_transfer(transfer), cached);
            }
            Output::Refuse { transfer, why } => {
                self.writer_gone(of_transfer(transfer), WriterEnd::Refused(why));
            }
            Output::End { transfer, how } => {
                let how = match how {
                    TransferEnd::Done => WriterEnd::Done,
                    TransferEnd::Drained => WriterEnd::Drained,
                    TransferEnd::Failed(why) | TransferEnd::Unsettled(why) => {
                        WriterEnd::Failed(why)
                    }
                };
                self.writer_gone(of_transfer(transfer), how);
            }
            // What is asked for here is asked for in failures only, or needs nothing done.
            Output::Accept { .. }
            | Output::CancelSequence { .. }
            | Output::StopWatch { .. }
            | Output::StopWrites { .. }
            | Output::Close { .. }
            | Output::Fence { .. }
            | Output::Gone { .. }
            | Output::Cache(_) => {}
        }
    }

    fn writer_gone(&mut self, number: Number, how: WriterEnd) {
        let request = id(number);
        let decode = self.lives[number].decode;
        self.tell_decode(decode, decode::Input::WriterGone { request, how });
    }

    pub(super) fn step_ends(&mut self, index: usize) {
        let ended = self.workers[index].engine.end(self.now);
        for prefill in ended.prefilled {
            self.prefilled(index, &prefill);
        }
        for decode in ended.tokens {
            self.token(index, &decode);
        }
        self.touched.push(index);
    }

    fn prefilled(&mut self, index: usize, prefill: &Prefill) {
        let number = prefill.number;
        let worker = &mut self.workers[index];
        worker.sequences -= 1;
        if self.lives[number].prefill.is_none() {
            let request = id(number);
            return self.tell_decode(index, decode::Input::PrefilledHere { request });
        }
        let took = self.now - prefill.began.unwrap_or(self.now);
        let tokens = prefill.end - self.lives[number].cached;
        worker
            .prefill_ns
            .measure(took.as_nanos() as u64 / u64::from(tokens.max(1)));
        let ended = prefill::Input::SequenceEnded {
            transfer: transfer(number),
            how: Ok(()),
        };
        let lands = self.lands(index, prefill);
        self.tell_prefill(index, ended);
        match lands > self.now {
            true => self.at(lands, Event::Landed(number)),
            false => self.landed(number),
        }
    }

    /// When a prompt that is computed is on its decode worker. Where it travels layer by layer, its last step ended
    /// when its last layer had passed the link.
    fn lands(&mut self, index: usize, prefill: &Prefill) -> Duration {
        let life = &mut self.lives[prefill.number];
        life.exposed = prefill.exposed;
        let tokens = prefill.end.saturating_sub(life.held);
        let worker = &mut self.workers[index];
        let Some(takes) = worker.engine.travels_afterwards(tokens) else {
            return self.now;
        };
        worker.link_free = worker.link_free.max(self.now) + takes;
        life.exposed = worker.link_free - self.now;
        worker.link_free
    }

    pub(super) fn landed(&mut self, number: Number) {
        let life = &self.lives[number];
        let (Some(flow), Some(prefill), decode) = (life.flow, life.prefill, life.decode) else {
            return;
        };
        let request = id(number);
        self.tell_decode(decode, decode::Input::Full { request, shard: 0 });
        let drained = prefill::Input::Drained {
            flow,
            complete: true,
            settled: true,
            error: None,
        };
        self.tell_prefill(prefill, drained);
    }

    fn token(&mut self, index: usize, decode: &Decode) {
        let request = id(decode.number);
        let life = &mut self.lives[decode.number];
        let worker = &mut self.workers[index];
        match life.token(self.now) {
            Some(gap) => worker.step_us.measure(gap.as_micros() as u64),
            None => {
                worker.waiting -= 1;
                if life.prefill.is_none() {
                    worker.waiting_tokens -= u64::from(self.trace[decode.number].prompt - 1);
                }
                self.tell(Input::Started { request });
            }
        }
        if decode.left > 0 {
            return;
        }
        self.workers[index].sequences -= 1;
        self.tell(Input::Served { request });
        self.tell(Input::Ended {
            request,
            generated: self.trace[decode.number].answer,
        });
        let seed = self.workers[index].facts.seed;
        let blocks = chains(&self.trace[decode.number], seed.as_slice());
        let ended = decode::Input::SequenceEnded {
            request,
            which: Which::Decode,
            how: SequenceEnd::Finished(blocks[0].blocks.clone()),
        };
        self.tell_decode(index, ended);
        let answer = self.lives[decode.number].answer(&self.trace[decode.number]);
        self.late += usize::from(self.abandon.is_some_and(|goal| !goal.slo.attained(&answer)));
    }
}

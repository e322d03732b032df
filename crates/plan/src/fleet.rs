//! The gateway and its workers in simulated time.

use std::collections::VecDeque;
use std::time::Duration;

use tandem_timing::Profile;

use crate::request::{Outcome, Request};
use crate::worker::{Ended, Number, Worker};

/// Workers that are alike.
#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    /// How long they take.
    pub profile: Profile,
    /// How many there are.
    pub workers: u32,
    /// Prompt tokens in one step, at most.
    pub chunk_tokens: u32,
    /// Sequences that decode in one step, at most.
    pub max_batch: u32,
    /// Tokens that one has room for.
    pub kv_tokens: u64,
}

/// A fleet that is to be.
#[derive(Clone, Debug, PartialEq)]
pub struct FleetPlan {
    /// Who computes prompts; `None` where those who decode do.
    pub prefill: Option<Pool>,
    /// Who decodes.
    pub decode: Pool,
}

/// A fleet or a trace that cannot be simulated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A pool that nothing can run on: no workers, or a limit of 0.
    #[error("a pool has no workers, or lets nothing run")]
    Empty,
    /// A request without tokens.
    #[error("request {0} has no prompt or no answer: want a token of each")]
    NoTokens(usize),
    /// A request that no worker ever has room for.
    #[error("request {request} needs {needed} tokens of KV cache, a worker has {room}")]
    TooLong {
        /// Its number in the trace, from 0.
        request: usize,
        /// Tokens that it needs.
        needed: u64,
        /// Tokens that a decode worker has.
        room: u64,
    },
}

impl FleetPlan {
    /// Each worker does both.
    #[must_use]
    pub const fn mixed(pool: Pool) -> Self {
        Self {
            prefill: None,
            decode: pool,
        }
    }

    /// Prefill and decode apart.
    #[must_use]
    pub const fn apart(prefill: Pool, decode: Pool) -> Self {
        Self {
            prefill: Some(prefill),
            decode,
        }
    }

    fn pools(&self) -> impl Iterator<Item = &Pool> {
        self.prefill.iter().chain([&self.decode])
    }

    /// GPUs of all workers.
    #[must_use]
    pub fn gpus(&self) -> u32 {
        let of = |pool: &Pool| pool.workers * u32::from(pool.profile.gpus);
        self.pools().map(of).sum()
    }

    fn check(&self, trace: &[Request]) -> Result<(), PlanError> {
        let runs = |pool: &Pool| pool.workers > 0 && pool.chunk_tokens > 0 && pool.max_batch > 0;
        if !self.pools().all(runs) {
            return Err(PlanError::Empty);
        }
        let room = self.decode.kv_tokens;
        for (request, asked) in trace.iter().enumerate() {
            if asked.prompt == 0 || asked.answer == 0 {
                return Err(PlanError::NoTokens(request));
            }
            let needed = asked.room();
            if needed > room {
                return Err(PlanError::TooLong {
                    request,
                    needed,
                    room,
                });
            }
        }
        Ok(())
    }
}

/// What each request of a trace gets, in the trace's order. Requests may be in any order of time.
pub fn simulate(plan: &FleetPlan, trace: &[Request]) -> Result<Vec<Outcome>, PlanError> {
    plan.check(trace)?;
    Ok(Run::new(plan, trace).outcomes())
}

/// What is known of a request under way.
#[derive(Clone, Copy, Debug, Default)]
struct Life {
    /// Its decode worker.
    decode: usize,
    left_queue: Duration,
    first: Option<Duration>,
    last: Duration,
    longest_gap: Duration,
}

struct Run<'t> {
    trace: &'t [Request],
    /// Of the trace, by time.
    coming: VecDeque<Number>,
    queue: VecDeque<Number>,
    workers: Vec<Worker<'t>>,
    /// The first ones prefill, those from here on decode; 0 where all do both.
    decoders: usize,
    lives: Vec<Life>,
}

impl<'t> Run<'t> {
    fn new(plan: &'t FleetPlan, trace: &'t [Request]) -> Self {
        let of = |pool: &'t Pool, pushes| (0..pool.workers).map(move |_| Worker::new(pool, pushes));
        let prefills = plan.prefill.iter().flat_map(|pool| of(pool, true));
        let workers: Vec<_> = prefills.chain(of(&plan.decode, false)).collect();
        let decoders = workers.len() - plan.decode.workers as usize;
        let mut coming: Vec<Number> = (0..trace.len()).collect();
        coming.sort_by_key(|number| trace[*number].at);
        Self {
            trace,
            coming: coming.into(),
            queue: VecDeque::new(),
            workers,
            decoders,
            lives: vec![Life::default(); trace.len()],
        }
    }

    fn outcomes(mut self) -> Vec<Outcome> {
        while let Some(now) = self.next() {
            while let Some(number) = self.coming.front().copied()
                && self.trace[number].at <= now
            {
                self.coming.pop_front();
                self.queue.push_back(number);
            }
            for index in 0..self.workers.len() {
                if self.workers[index].ends() == Some(now) {
                    let ended = self.workers[index].end();
                    self.ended(&ended, now);
                }
            }
            self.admit(now);
            for worker in &mut self.workers {
                worker.start(now);
            }
        }
        let outcome = |(life, asked): (&Life, &Request)| {
            let first = life.first.unwrap_or(life.last);
            Outcome {
                ttft: first - asked.at,
                decoding: life.last - first,
                longest_gap: life.longest_gap,
                tokens: asked.answer,
                queued: life.left_queue - asked.at,
                ended: life.last,
            }
        };
        self.lives.iter().zip(self.trace).map(outcome).collect()
    }

    /// When something happens next.
    fn next(&self) -> Option<Duration> {
        let coming = self.coming.front().map(|number| self.trace[*number].at);
        let steps = self.workers.iter().filter_map(Worker::ends);
        coming.into_iter().chain(steps).min()
    }

    fn ended(&mut self, ended: &Ended, now: Duration) {
        for number in &ended.prefilled {
            self.ready(*number);
        }
        for (number, last) in &ended.tokens {
            let life = &mut self.lives[*number];
            match life.first {
                None => life.first = Some(now),
                Some(_) => life.longest_gap = life.longest_gap.max(now - life.last),
            }
            life.last = now;
            if *last {
                self.workers[life.decode].give_back(self.trace[*number].room());
            }
        }
    }

    fn ready(&mut self, number: Number) {
        let asked = self.trace[number];
        let worker = self.lives[number].decode;
        self.workers[worker].decode(number, asked.prompt, asked.answer);
    }

    /// First come, first served: who is first waits until a decode worker has room for it.
    fn admit(&mut self, now: Duration) {
        while let Some(number) = self.queue.front().copied() {
            let asked = self.trace[number];
            let Some(decode) = self.roomiest(asked.room()) else {
                return;
            };
            self.queue.pop_front();
            self.workers[decode].lease(asked.room());
            self.lives[number].decode = decode;
            self.lives[number].left_queue = now;
            let prefill = match self.decoders {
                0 => decode,
                prefills => self.idlest(prefills),
            };
            if !self.workers[prefill].prefill(number, asked.prompt) {
                self.ready(number);
            }
        }
    }

    /// The decode worker with the most room, where that is enough; one that computes prompts too is the
    /// one with the fewest of them to compute.
    fn roomiest(&self, needed: u64) -> Option<usize> {
        let all = self.decoders..self.workers.len();
        let fits = all.filter(|index| self.workers[*index].free() >= needed);
        fits.min_by_key(|index| {
            let worker = &self.workers[*index];
            (worker.backlog(), u64::MAX - worker.free())
        })
    }

    fn idlest(&self, prefills: usize) -> usize {
        let all = 0..prefills;
        all.min_by_key(|index| self.workers[*index].backlog())
            .unwrap_or(0)
    }
}

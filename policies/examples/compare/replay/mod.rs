//! A fleet in simulated time: the gateway's own front door and policy, workers that are a page pool and
//! a clock. No sockets, no threads; the same trace and seed give the same figures.

mod worker;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;
use std::time::Duration;

use tandem_core::admission::AdmissionSettings;
use tandem_core::blocks::{BlockChain, BlockHash, BlockSeed};
use tandem_core::fleet::WorkerLoad;
use tandem_core::front_door::{Again, FrontDoor, Input, Output};
use tandem_core::pairing::{Pair, RequestFacts};
use tandem_core::{Incarnation, Instant, RequestId, WorkerId, WorkerRole};
use tandem_policies::{Pairing, PolicySettings};

pub(crate) use worker::Times;
use worker::Worker;

/// One request of a trace.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    /// From the trace's start.
    pub(crate) at: Duration,
    /// Tokens of its prompt.
    pub(crate) prompt: u32,
    /// Tokens of its answer.
    pub(crate) answer: u32,
    /// Names of the prompt's blocks, a number each; the last one may be a part of a block.
    pub(crate) blocks: Vec<u64>,
    /// What its session goes by.
    pub(crate) session: Option<u64>,
}

/// Workers and their speed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) prefills: usize,
    pub(crate) decodes: usize,
    /// Tokens of a page, and of a block of the trace.
    pub(crate) page_tokens: u16,
    /// Pages of each worker.
    pub(crate) pages: u32,
    pub(crate) times: Times,
    /// Between a change and the worker's report of it.
    pub(crate) report: Duration,
}

/// What came of a trace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// Of each answered request, in milliseconds, sorted.
    pub(crate) ttft_ms: Vec<f64>,
    /// The same.
    pub(crate) tpot_ms: Vec<f64>,
    /// Prompt tokens that were found in a cache by whoever computed the prompt, of all.
    pub(crate) hit_share: f64,
    /// The busiest prefill worker's time against the mean.
    pub(crate) balance: f64,
    pub(crate) rejected: usize,
    /// Prompts that decode workers computed.
    pub(crate) local: usize,
}

impl Outcome {
    /// A share of the sorted times.
    pub(crate) fn at(times: &[f64], share: f64) -> f64 {
        let last = times.len().saturating_sub(1);
        times
            .get((last as f64 * share).round() as usize)
            .copied()
            .unwrap_or(f64::NAN)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A request of the trace comes.
    Arrive(usize),
    /// A worker's prompt is computed.
    Prefilled(usize),
    /// A worker's decode step ends.
    Stepped(usize),
    /// The prompt's pages are there.
    Pushed(usize),
    /// A worker reports.
    Report(usize),
}

/// A request on its way.
pub(crate) struct Flight {
    facts: RequestFacts,
    arrived: Duration,
    pair: Option<Pair>,
    first: Option<Duration>,
    left: u32,
}

struct Replay<'t> {
    trace: &'t [Arrival],
    shape: Shape,
    door: FrontDoor<Pairing>,
    workers: Vec<Worker>,
    by_name: BTreeMap<WorkerId, usize>,
    flights: BTreeMap<usize, Flight>,
    events: BinaryHeap<Reverse<(Duration, u64, Event)>>,
    order: u64,
    now: Duration,
    out: Outcome,
    hit_tokens: u64,
    prompt_tokens: u64,
}

/// Plays a trace against a fleet under a policy.
pub(crate) fn play(trace: &[Arrival], shape: Shape, policy: &PolicySettings) -> Outcome {
    // Everybody waits for as long as it takes: what is compared is who goes where.
    let admission = AdmissionSettings {
        early_rejection: false,
        ..AdmissionSettings::one_class(trace.len().max(1))
    };
    let mut replay = Replay {
        trace,
        shape,
        door: FrontDoor::new(admission, Pairing::new(policy, 1)),
        workers: Vec::new(),
        by_name: BTreeMap::new(),
        flights: BTreeMap::new(),
        events: BinaryHeap::new(),
        order: 0,
        now: Duration::ZERO,
        out: Outcome::default(),
        hit_tokens: 0,
        prompt_tokens: 0,
    };
    replay.run();
    replay.out
}

pub(crate) fn seed(page_tokens: u16) -> BlockSeed {
    BlockSeed::announced(BlockHash([1; 16]), page_tokens)
}

fn block(name: u64) -> BlockHash {
    let mut z = (name + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    BlockHash((u128::from(z ^ (z >> 31)) << 64 | u128::from(z)).to_be_bytes())
}

impl Replay<'_> {
    fn run(&mut self) {
        for (role, count) in [
            (WorkerRole::Prefill, self.shape.prefills),
            (WorkerRole::Decode, self.shape.decodes),
        ] {
            (0..count).for_each(|n| self.join(role, n));
        }
        for at in 0..self.trace.len() {
            self.at(self.trace[at].at, Event::Arrive(at));
        }
        while let Some(Reverse((now, _, event))) = self.events.pop() {
            self.now = now;
            self.happened(event);
            self.place();
        }
        assert!(self.flights.is_empty(), "every request ends");
        self.out.hit_share = self.hit_tokens as f64 / self.prompt_tokens.max(1) as f64;
        self.out.ttft_ms.sort_by(f64::total_cmp);
        self.out.tpot_ms.sort_by(f64::total_cmp);
        let prefills = self
            .workers
            .iter()
            .filter(|w| w.role == WorkerRole::Prefill);
        let busy: Vec<f64> = prefills.map(|w| w.busy.as_secs_f64()).collect();
        let mean = busy.iter().sum::<f64>() / busy.len().max(1) as f64;
        self.out.balance = busy.into_iter().fold(0.0, f64::max) / mean;
    }

    fn join(&mut self, role: WorkerRole, n: usize) {
        let worker = Worker::new(role, n, self.shape);
        let load = worker.load();
        self.by_name.insert(worker.name(), self.workers.len());
        self.door
            .join(worker.facts.clone(), load)
            .expect("they fit");
        self.workers.push(worker);
    }

    fn at(&mut self, when: Duration, event: Event) {
        self.order += 1;
        self.events.push(Reverse((when, self.order, event)));
    }

    fn instant(&self) -> Instant {
        Instant::ZERO + self.now
    }

    fn tell(&mut self, input: Input) {
        let now = self.instant();
        self.door.handle(now, input);
    }

    fn happened(&mut self, event: Event) {
        match event {
            Event::Arrive(at) => self.arrive(at),
            Event::Prefilled(worker) => self.prefilled(worker),
            Event::Pushed(request) => self.pushed(request),
            Event::Stepped(worker) => self.stepped(worker),
            Event::Report(worker) => self.report(worker),
        }
    }

    fn arrive(&mut self, at: usize) {
        let arrival = &self.trace[at];
        let whole = (arrival.prompt.saturating_sub(1) / u32::from(self.shape.page_tokens)) as usize;
        let chain = BlockChain {
            seed: seed(self.shape.page_tokens),
            blocks: arrival
                .blocks
                .iter()
                .take(whole)
                .map(|b| block(*b))
                .collect(),
        };
        let facts = RequestFacts {
            arrived: self.instant(),
            affinity: arrival.session,
            blocks: Arc::new([chain]),
            ..RequestFacts::new(RequestId(at as u128), arrival.prompt, arrival.answer)
        };
        let flight = Flight {
            facts: facts.clone(),
            arrived: self.now,
            pair: None,
            first: None,
            left: arrival.answer,
        };
        self.flights.insert(at, flight);
        let deadline = self.instant() + Duration::from_secs(24 * 3600);
        self.tell(Input::Submit {
            facts,
            deadline,
            key: None,
        });
    }

    /// Carries out what the door decided.
    fn place(&mut self) {
        while let Some(output) = self.door.poll() {
            match output {
                Output::Ask { request, pair } => self.ask(request.0 as usize, pair),
                Output::Reject { request, .. } => {
                    self.flights.remove(&(request.0 as usize));
                    self.out.rejected += 1;
                }
            }
        }
    }

    fn ask(&mut self, at: usize, pair: Pair) {
        let Some(flight) = self.flights.get_mut(&at) else {
            return;
        };
        let request = flight.facts.request;
        let decode = self.by_name[&pair.decode];
        if !self.workers[decode].lease(at, &flight.facts) {
            let again = Again::WhenRoom;
            let message = String::new();
            return self.tell(Input::Refused {
                request,
                again,
                message,
            });
        }
        let computes = pair.prefill.as_ref().unwrap_or(&pair.decode);
        let computes = self.by_name[computes];
        self.out.local += usize::from(pair.prefill.is_none());
        self.workers[computes].queue.push_back(at);
        flight.pair = Some(pair);
        self.tell(Input::Reserved { request });
        self.begin(computes);
        for worker in [decode, computes] {
            self.changed(worker);
        }
    }

    /// A worker that computes nothing takes its next prompt.
    fn begin(&mut self, at: usize) {
        let worker = &mut self.workers[at];
        if worker.computing.is_some() {
            return;
        }
        let Some(request) = worker.queue.pop_front() else {
            return;
        };
        let facts = &self.flights[&request].facts;
        let (held, took) = worker.prefill(request, facts);
        self.hit_tokens += u64::from(held);
        self.prompt_tokens += u64::from(facts.prompt_tokens);
        self.at(self.now + took, Event::Prefilled(at));
        // While it decodes too, its batch waits.
        self.workers[at].delay(took);
    }

    fn prefilled(&mut self, at: usize) {
        let Some(request) = self.workers[at].prefilled() else {
            return;
        };
        let here = self.flights[&request]
            .pair
            .as_ref()
            .is_some_and(|p| p.prefill.is_none());
        let push = if here {
            Duration::ZERO
        } else {
            self.shape.times.push
        };
        self.at(self.now + push, Event::Pushed(request));
        self.begin(at);
        self.changed(at);
    }

    fn pushed(&mut self, request: usize) {
        let flight = &self.flights[&request];
        let id = flight.facts.request;
        let Some(pair) = &flight.pair else { return };
        let decode = self.by_name[&pair.decode];
        let tokens = flight.facts.prompt_tokens;
        self.workers[decode].batch.push((request, tokens));
        self.tell(Input::Started { request: id });
        self.step(decode);
        self.changed(decode);
    }

    /// Starts a step where none is under way and there is something to do.
    fn step(&mut self, at: usize) {
        if let Some(took) = self.workers[at].step() {
            self.at(self.now + took, Event::Stepped(at));
        }
    }

    fn stepped(&mut self, at: usize) {
        // A prompt that was computed meanwhile kept the batch waiting.
        let delay = self.workers[at].take_delay();
        if delay > Duration::ZERO {
            return self.at(self.now + delay, Event::Stepped(at));
        }
        let mut ended = Vec::new();
        for request in self.workers[at].stepped() {
            let flight = self.flights.get_mut(&request).expect("it is in a batch");
            flight.first.get_or_insert(self.now);
            flight.left -= 1;
            if flight.left == 0 {
                ended.push(request);
            }
        }
        for request in ended {
            self.end(at, request);
        }
        self.step(at);
        self.changed(at);
    }

    fn end(&mut self, worker: usize, request: usize) {
        let flight = self.flights.remove(&request).expect("it is in a batch");
        self.workers[worker].free(request, &flight.facts);
        let first = flight.first.unwrap_or(self.now);
        let millis = |time: Duration| time.as_secs_f64() * 1e3;
        self.out.ttft_ms.push(millis(first - flight.arrived));
        let answer = flight.facts.new_tokens;
        if answer > 1 {
            self.out
                .tpot_ms
                .push(millis(self.now - first) / f64::from(answer - 1));
        }
        self.tell(Input::Ended {
            request: flight.facts.request,
            generated: answer,
        });
    }

    /// A worker has something to report, soon.
    fn changed(&mut self, at: usize) {
        if !std::mem::replace(&mut self.workers[at].reports, true) {
            self.at(self.now + self.shape.report, Event::Report(at));
        }
    }

    fn report(&mut self, at: usize) {
        let flights = &self.flights;
        let worker = &mut self.workers[at];
        worker.reports = false;
        let tokens = |request: &usize| u64::from(flights[request].facts.prompt_tokens);
        let queued = worker
            .queue
            .iter()
            .chain(&worker.computing)
            .map(tokens)
            .sum();
        let load = WorkerLoad {
            queued_prompt_tokens: queued,
            ..worker.next_load()
        };
        let (name, changes) = (worker.name(), worker.changes());
        if !changes.is_empty() {
            self.tell(Input::Cached {
                worker: name.clone(),
                incarnation: Incarnation(1),
                anew: false,
                changes,
            });
        }
        self.tell(Input::Report {
            worker: name,
            incarnation: Incarnation(1),
            load,
        });
    }
}

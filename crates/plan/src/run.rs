//! A trace's way through a fleet: events in the order of their time.

mod gateway;
mod life;
mod work;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use tandem_core::admission::AdmissionSettings;
use tandem_core::blocks::BlockSeed;
use tandem_core::front_door::FrontDoor;
use tandem_core::{Instant, WorkerId, WorkerRole};
use tandem_policies::Pairing;

use crate::blocks::seed;
use crate::engine::Number;
use crate::plan::{FleetPlan, PlanError};
use crate::request::{Outcome, Request};
use crate::search::Abandon;
use crate::usage::Usage;
use crate::worker::Worker;
use life::Life;

/// Between a change at a worker and its report of it: the shortest that real ones take.
const REPORT: Duration = Duration::from_millis(20);
/// Requests may last for ever.
const FOR_EVER: Duration = Duration::from_secs(10 * 365 * 86_400);

/// What became of a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Simulation {
    /// Of each request, in the trace's order.
    pub outcomes: Vec<Outcome>,
    /// Prefill workers; `None` where there are none.
    pub prefill: Option<Usage>,
    /// Decode workers, or those that do both.
    pub decode: Usage,
}

/// What each request of a trace gets. Requests may be in any order of time.
///
/// # Errors
/// Where the fleet cannot be, or never has room for some request.
pub fn simulate(plan: &FleetPlan, trace: &[Request]) -> Result<Simulation, PlanError> {
    let done = simulate_until(plan, trace, None)?;
    Ok(done.unwrap_or_else(|| unreachable!("nothing was to abandon it")))
}

/// The same, or `None` as soon as too many requests are late for `abandon`'s goal.
pub(crate) fn simulate_until(
    plan: &FleetPlan,
    trace: &[Request],
    abandon: Option<Abandon>,
) -> Result<Option<Simulation>, PlanError> {
    plan.check(trace)?;
    Ok(Run::new(plan, trace, abandon)?.carry_out())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A request of the trace comes.
    Arrives(Number),
    /// A worker's step ends.
    StepEnds(usize),
    /// A prompt's last page is on the decode worker.
    Landed(Number),
    /// A worker reports.
    Reports(usize),
}

pub(crate) struct Run<'t> {
    trace: &'t [Request],
    /// How workers name pages.
    seeds: Vec<BlockSeed>,
    door: FrontDoor<Pairing>,
    workers: Vec<Worker<'t>>,
    /// The first ones prefill, those from here on decode.
    decoders: usize,
    by_name: BTreeMap<WorkerId, usize>,
    lives: Vec<Life>,
    events: BinaryHeap<Reverse<(Duration, u64, Event)>>,
    /// Events so far: of those at one time the first comes first.
    order: u64,
    now: Duration,
    /// Workers whose agents may want something, and those that may start a step.
    talking: Vec<usize>,
    touched: Vec<usize>,
    abandon: Option<Abandon>,
    late: usize,
}

impl<'t> Run<'t> {
    fn new(
        plan: &'t FleetPlan,
        trace: &'t [Request],
        abandon: Option<Abandon>,
    ) -> Result<Self, PlanError> {
        // Whoever comes waits for as long as it takes, unless the policy itself turns requests away.
        let admission = AdmissionSettings {
            early_rejection: false,
            ..AdmissionSettings::one_class(trace.len().max(1))
        };
        let mut seeds: Vec<BlockSeed> = plan.pools().map(|p| seed(p.page_tokens)).collect();
        seeds.dedup();
        let mut run = Self {
            trace,
            seeds,
            door: FrontDoor::new(admission, Pairing::new(&plan.policy, 1)),
            workers: Vec::new(),
            decoders: plan
                .prefill
                .as_ref()
                .map_or(0, |pool| pool.workers as usize),
            by_name: BTreeMap::new(),
            lives: vec![Life::default(); trace.len()],
            events: BinaryHeap::with_capacity(trace.len()),
            order: 0,
            now: Duration::ZERO,
            talking: Vec::new(),
            touched: Vec::new(),
            abandon,
            late: 0,
        };
        let does = match plan.prefill {
            Some(_) => WorkerRole::Decode,
            None => WorkerRole::Both,
        };
        let prefills = plan.prefill.iter().map(|pool| (pool, WorkerRole::Prefill));
        for (pool, role) in prefills.chain([(&plan.decode, does)]) {
            for number in 0..pool.workers {
                run.join(Worker::new(pool, role, number, plan.transfer)?)?;
            }
        }
        for (number, request) in trace.iter().enumerate() {
            run.at(request.at, Event::Arrives(number));
        }
        Ok(run)
    }

    fn join(&mut self, mut worker: Worker<'t>) -> Result<(), PlanError> {
        let load = worker.report();
        let joined = self.door.join(worker.facts.clone(), load);
        joined.map_err(|error| PlanError::Refused(error.to_string()))?;
        self.by_name
            .insert(worker.facts.worker.clone(), self.workers.len());
        self.workers.push(worker);
        Ok(())
    }

    fn at(&mut self, when: Duration, event: Event) {
        self.order += 1;
        self.events.push(Reverse((when, self.order, event)));
    }

    fn instant(&self) -> Instant {
        Instant::ZERO + self.now
    }

    fn carry_out(mut self) -> Option<Simulation> {
        while let Some(Reverse((now, _, event))) = self.events.pop() {
            self.now = now;
            self.happened(event);
            self.settle();
            let more = self
                .events
                .peek()
                .is_some_and(|Reverse((at, ..))| *at == now);
            if !more {
                self.begin_steps();
            }
            if self.abandon.is_some_and(|goal| self.late > goal.most_late) {
                return None;
            }
        }
        Some(self.finish())
    }

    fn happened(&mut self, event: Event) {
        match event {
            Event::Arrives(number) => self.arrives(number),
            Event::StepEnds(worker) => self.step_ends(worker),
            Event::Landed(number) => self.landed(number),
            Event::Reports(worker) => self.reports(worker),
        }
    }

    /// Everything that the gateway and agents want done is done.
    fn settle(&mut self) {
        loop {
            if let Some(output) = self.door.poll() {
                self.door_says(output);
                continue;
            }
            let Some(worker) = self.talking.pop() else {
                return;
            };
            while let Some(said) = self.workers[worker].poll() {
                self.worker_says(worker, said);
            }
            self.touched.push(worker);
        }
    }

    /// What happens at one time is over: idle workers with something to do start a step, and those with news
    /// will report it.
    fn begin_steps(&mut self) {
        let mut touched = std::mem::take(&mut self.touched);
        touched.sort_unstable();
        touched.dedup();
        for index in touched.drain(..) {
            let worker = &mut self.workers[index];
            if let Some(step) = worker.engine.begin(self.now) {
                let used = worker.used();
                worker.usage.step(step.ends - self.now, step.batch, used);
                worker.usage.prompt_tokens += step.prompt_tokens;
                worker.usage.generated_tokens += step.batch as u64;
                self.at(step.ends, Event::StepEnds(index));
            }
            self.will_report(index);
        }
        self.touched = touched;
    }

    fn will_report(&mut self, index: usize) {
        let worker = &mut self.workers[index];
        if !worker.reports && worker.has_news() {
            worker.reports = true;
            self.at(self.now + REPORT, Event::Reports(index));
        }
    }

    fn finish(self) -> Simulation {
        for worker in &self.workers {
            let pages = worker.pages();
            assert_eq!(pages.free(), pages.total(), "no page was lost");
        }
        assert_eq!(self.door.in_flight(), 0, "every request has ended");
        let begin = self.trace.iter().map(|r| r.at).min().unwrap_or_default();
        let last = self.lives.iter().map(|life| life.last).max();
        let span = last.unwrap_or_default().saturating_sub(begin);
        let usage = |workers: &[Worker<'_>]| {
            let mut all = Usage {
                span,
                ..Usage::default()
            };
            workers.iter().for_each(|worker| all.add(&worker.usage));
            all
        };
        let (prefills, decodes) = self.workers.split_at(self.decoders);
        let outcomes = self.lives.iter().zip(self.trace);
        Simulation {
            outcomes: outcomes
                .map(|(life, request)| life.outcome(request))
                .collect(),
            prefill: (!prefills.is_empty()).then(|| usage(prefills)),
            decode: usage(decodes),
        }
    }
}

#[cfg(test)]
mod tests;

//! Several runs as one test: repeats, a sweep, a search.
//!
//! Each run has a seed of its own that follows from the test's: a prompt that came twice could be found in the
//! server's cache, and the second run would measure another server.

use std::io::Write;
use std::sync::Arc;

use crate::arrivals::{Process, RateCurve};
use crate::distribution::Distribution;
use crate::drive::{Live, RunError, keeps_up};
use crate::harness::Harness;
use crate::plan::{Load, RunPlan};
use crate::results::{LoadPoint, Run, RunEnd};
use crate::search::{Ended, Found, Search, SearchPlan};
use crate::summary::Metric;
use crate::units::UnitError;
use crate::workload::Workload;

/// What is changed from run to run.
#[derive(Clone, Debug)]
pub enum Axis {
    /// The rate of an arrival process.
    Rate(Process),
    /// The mean rate of a trace, whose times are stretched.
    TraceRate {
        /// At its own speed.
        own: f64,
    },
    /// How many at a time.
    Concurrency {
        /// In what time they begin.
        ramp: std::time::Duration,
    },
}

impl Axis {
    /// The load at one value.
    ///
    /// # Errors
    ///
    /// [`UnitError`]: no such rate or concurrency.
    pub fn at(&self, value: f64) -> Result<(Load, LoadPoint), UnitError> {
        Ok(match self {
            Self::Rate(process) => {
                let curve = RateCurve::constant(value)?;
                let process = *process;
                (Load::Open { curve, process }, LoadPoint::Rate(value))
            }
            Self::TraceRate { own } if value > 0.0 && value.is_finite() => {
                let speed = value / own;
                (Load::Trace { speed }, LoadPoint::Rate(value))
            }
            Self::Concurrency { ramp } if (1.0..=1e6).contains(&value) && value.fract() == 0.0 => {
                let concurrency = value as u32;
                let ramp = *ramp;
                let load = Load::Closed { concurrency, ramp };
                (load, LoadPoint::Concurrency(concurrency))
            }
            Self::TraceRate { .. } => {
                return Err(UnitError::new(&value.to_string(), "a rate above 0"));
            }
            Self::Concurrency { .. } => {
                let wanted = "a whole number from 1 to a million";
                return Err(UnitError::new(&value.to_string(), wanted));
            }
        })
    }
}

/// Which runs make the test.
#[derive(Clone, Debug)]
pub enum Runs {
    /// At each of these loads, so many times.
    Each {
        /// In this order.
        loads: Vec<(Load, LoadPoint)>,
        /// 1: once.
        repeats: u32,
    },
    /// The search for the highest load that meets the SLO.
    Search {
        /// What is searched along.
        axis: Axis,
        /// Where.
        plan: SearchPlan,
    },
}

impl Runs {
    /// How many there are; a search does not know.
    #[must_use]
    pub fn count(&self) -> Option<usize> {
        match self {
            Self::Each { loads, repeats } => Some(loads.len() * *repeats as usize),
            Self::Search { .. } => None,
        }
    }
}

/// Who follows a test.
pub trait Watcher {
    /// A run begins.
    fn begins(&mut self, plan: &RunPlan, live: &Arc<Live>);
    /// A run has ended.
    fn ends(&mut self, run: &Run);
    /// Whether no other run is wanted.
    fn is_stopped(&self) -> bool;
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Outcome {
    /// All runs, in their order.
    pub runs: Vec<Run>,
    /// What a search found.
    pub search: Option<Found>,
    /// Runs that were still to come when it ended early; a search does not know.
    pub not_begun: usize,
}

struct Conductor<'a> {
    harness: &'a Harness,
    base: &'a RunPlan,
    watcher: &'a mut dyn Watcher,
    requests: Option<&'a mut (dyn Write + Send)>,
    runs: Vec<Run>,
}

/// Carries out all runs; `base` says what they have in common. Ends early, with what there is, where a run is
/// interrupted or the server is gone.
///
/// # Errors
///
/// [`RunError`]: a run could not be carried out at all.
pub fn carry_out<'a>(
    harness: &'a Harness,
    base: &'a RunPlan,
    runs: &Runs,
    watcher: &'a mut dyn Watcher,
    requests: Option<&'a mut (dyn Write + Send)>,
) -> Result<Outcome, RunError> {
    let mut conductor = Conductor {
        harness,
        base,
        watcher,
        requests,
        runs: Vec::new(),
    };
    let search = match runs {
        Runs::Each { loads, repeats } => {
            conductor.each(loads, *repeats)?;
            None
        }
        Runs::Search { axis, plan } => Some(conductor.search(axis, *plan)?),
    };
    Ok(Outcome {
        not_begun: runs
            .count()
            .unwrap_or(0)
            .saturating_sub(conductor.runs.len()),
        runs: conductor.runs,
        search,
    })
}

/// Whether most requests had the server to themselves: less load makes nothing faster.
fn was_alone(run: &Run) -> bool {
    let measured = &run.phases.measured.all;
    let e2e_us = measured
        .metrics
        .get(&Metric::E2e)
        .and_then(Distribution::mean);
    let answered = measured.counts.answered();
    // Under way at a time, by Little's law.
    e2e_us.is_some_and(|us| run.figures.answered_per_s * us / 1e6 < ALONE) && answered >= FEWEST
}

/// Requests under way at a time, on average, below which a request is alone mostly.
const ALONE: f64 = 0.5;
/// Answers from which that is judged.
const FEWEST: u64 = 5;

impl Conductor<'_> {
    fn each(&mut self, loads: &[(Load, LoadPoint)], repeats: u32) -> Result<(), RunError> {
        for (load, point) in loads {
            for repeat in 1..=repeats {
                let run = self.run(load.clone(), *point, repeat)?;
                if run.ended != RunEnd::Complete || self.watcher.is_stopped() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn search(&mut self, axis: &Axis, plan: SearchPlan) -> Result<Found, RunError> {
        let mut search = Search::new(plan);
        let mut doubtful = None;
        while let Some(value) = search.next() {
            let (load, point) = axis.at(value)?;
            let repeat = 1 + self.runs.iter().filter(|run| run.load == point).count() as u32;
            let bounds = self.base.bounds;
            let run = self.run(load, point, repeat)?;
            if run.ended == RunEnd::ServerGone {
                search.stop(Ended::ServerGone);
            } else if run.ended == RunEnd::Interrupted {
                search.stop(Ended::Interrupted);
            } else if keeps_up(run, &bounds) {
                let counts = run.phases.measured.all.counts;
                search.observe(counts.attained, counts.all());
                if counts.attained == 0 && was_alone(run) {
                    search.stop(Ended::NoneMet);
                }
                doubtful = None;
            } else if doubtful.replace(value) == Some(value) {
                // Twice: it is not something else on this machine.
                search.stop(Ended::ClientLimit);
            }
            if self.watcher.is_stopped() {
                search.stop(Ended::Interrupted);
            }
        }
        Ok(search.found())
    }

    fn run(&mut self, load: Load, point: LoadPoint, repeat: u32) -> Result<&Run, RunError> {
        let base = &self.base.workload;
        let workload = Workload {
            seed: base.seed.wrapping_add(self.runs.len() as u64),
            ..Workload::clone(base)
        };
        let plan = RunPlan {
            load,
            point,
            repeat,
            workload: Arc::new(workload),
            // Only the first run of a test waits for the other processes.
            start_at: self.base.start_at.filter(|_| self.runs.is_empty()),
            ..self.base.clone()
        };
        let live = Arc::new(Live::default());
        self.watcher.begins(&plan, &live);
        let requests: Option<&mut (dyn Write + Send)> = match &mut self.requests {
            Some(file) => Some(&mut **file),
            None => None,
        };
        let run = self.harness.run(&plan, &live, requests)?;
        self.watcher.ends(&run);
        Ok(self.runs.push_mut(run))
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    use super::*;
    use crate::testing::made::{self, Made};

    #[test]
    fn a_value_of_an_axis_is_a_load_and_others_are_refused() {
        let (load, point) = Axis::TraceRate { own: 4.0 }.at(8.0).unwrap();
        assert!(matches!(load, Load::Trace { speed: 2.0 }), "{load:?}");
        assert_eq!(point, LoadPoint::Rate(8.0));
        let ramp = std::time::Duration::from_secs(1);
        let (load, point) = Axis::Concurrency { ramp }.at(3.0).unwrap();
        assert!(
            matches!(load, Load::Closed { concurrency: 3, ramp: found } if found == ramp),
            "{load:?}"
        );
        assert_eq!(point, LoadPoint::Concurrency(3));
        let (load, point) = Axis::Rate(Process::Poisson).at(2.5).unwrap();
        assert!(matches!(load, Load::Open { .. }), "{load:?}");
        assert_eq!(point, LoadPoint::Rate(2.5));
        for value in [0.0, -1.0, 2.5, f64::NAN] {
            assert!(Axis::Concurrency { ramp }.at(value).is_err(), "{value}");
        }
        for value in [0.0, -1.0, f64::INFINITY] {
            assert!(Axis::TraceRate { own: 4.0 }.at(value).is_err(), "{value}");
            assert!(Axis::Rate(Process::Constant).at(value).is_err(), "{value}");
        }
    }

    #[test]
    fn requests_are_alone_where_less_than_half_of_the_time_one_is_under_way() {
        let alone = |answered_per_s: f64, answered: u64| {
            let rng = &mut SmallRng::seed_from_u64(1);
            let none = Made {
                requests: 0,
                slower: 1.0,
                failing: 0.0,
            };
            let mut run = made::run(rng, LoadPoint::Rate(1.0), 1, none);
            let measured = &mut run.phases.measured.all;
            let e2e = measured.metrics.entry(Metric::E2e).or_default();
            e2e.record_n(50_000, answered);
            measured.counts.late = answered;
            run.figures.answered_per_s = answered_per_s;
            was_alone(&run)
        };
        assert!(alone(9.0, 5), "9 a second of 50 ms each");
        assert!(!alone(11.0, 5), "11 a second");
        assert!(!alone(9.0, 4), "too few to say");
        assert!(!alone(9.0, 0));
    }
}

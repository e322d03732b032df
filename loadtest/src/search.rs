//! The search for the highest load that still meets the SLO: doubling, then bisection.
//!
//! Pure: it says which load to try and is told how many requests met their SLO. Whether the share of them is
//! high enough is a Wilson interval's decision: where the interval lies on both sides of the wanted share, the
//! same load is tried again and its counts are added up, at most [`MOST_TRIES`] times; then the share itself
//! decides, and the probe says so.

use serde::{Deserialize, Serialize};

/// Tries of one load whose interval does not decide.
pub const MOST_TRIES: u32 = 3;
/// Two-sided 95 %.
const Z: f64 = 1.959_964;

/// What is searched for, and where.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SearchPlan {
    /// The load that is tried first.
    pub start: f64,
    /// No lower load is tried.
    pub lowest: f64,
    /// No higher one is tried.
    pub highest: f64,
    /// Wanted share of requests that meet their SLO.
    pub attainment: f64,
    /// It ends when the bounds are this close, as a share of the lower one.
    pub tolerance: f64,
    /// It ends after so many runs in any case.
    pub most_runs: u32,
    /// Loads are whole numbers, as a concurrency is.
    pub whole: bool,
}

/// A load that was tried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    /// Requests per second, or requests at a time.
    pub load: f64,
    /// Requests that met their SLO.
    pub attained: u64,
    /// All requests.
    pub total: u64,
    /// The share's interval at 95 %.
    pub interval: (f64, f64),
    /// Whether the load is one that the server serves.
    pub met: bool,
    /// The interval did not decide it, the share itself did.
    pub undecided: bool,
    /// Runs whose counts these are.
    pub tries: u32,
}

/// Why the search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// The bounds are close enough.
    Converged,
    /// Even the highest load met the SLO.
    AtHighest,
    /// Not even the lowest load met it.
    NoneMet,
    /// After the most runs that it may take.
    OutOfRuns,
    /// The client could not keep up: more load cannot be measured from here.
    ClientLimit,
    /// Interrupted.
    Interrupted,
    /// The server was gone.
    ServerGone,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// What was searched for.
    pub plan: SearchPlan,
    /// Highest load that met the SLO.
    pub best: Option<f64>,
    /// Lowest load that did not.
    pub too_much: Option<f64>,
    /// Why it ended.
    pub ended: Ended,
    /// All loads that were tried, in that order.
    pub probes: Vec<Probe>,
}

/// The search so far.
#[derive(Debug)]
pub struct Search {
    plan: SearchPlan,
    probes: Vec<Probe>,
    runs: u32,
    ended: Option<Ended>,
}

/// The interval (Wilson, 95 %) of the share of which `attained` of `total` is a sample.
#[must_use]
pub fn wilson(attained: u64, total: u64) -> (f64, f64) {
    wilson_at(attained, total, Z)
}

/// The same, for so many standard deviations.
pub(crate) fn wilson_at(attained: u64, total: u64, z: f64) -> (f64, f64) {
    if total == 0 {
        return (0.0, 1.0);
    }
    let n = total as f64;
    let share = attained as f64 / n;
    let scale = 1.0 + z * z / n;
    let middle = (share + z * z / (2.0 * n)) / scale;
    let half = z / scale * (share * (1.0 - share) / n + z * z / (4.0 * n * n)).sqrt();
    ((middle - half).max(0.0), (middle + half).min(1.0))
}

impl Search {
    /// Nothing tried yet.
    #[must_use]
    pub const fn new(plan: SearchPlan) -> Self {
        Self {
            plan,
            probes: Vec::new(),
            runs: 0,
            ended: None,
        }
    }

    /// The load to try next; `None` at the end.
    #[must_use]
    pub fn next(&self) -> Option<f64> {
        if self.ended.is_some() {
            return None;
        }
        match self.probes.last() {
            Some(probe) if self.is_open(probe) => Some(probe.load),
            _ => Some(self.step()),
        }
    }

    /// What the load that [`Search::next`] named came to.
    pub fn observe(&mut self, attained: u64, total: u64) {
        let Some(load) = self.next() else { return };
        self.runs += 1;
        let again = self.probes.pop_if(|probe| probe.load == load);
        let (before, tries) = again.map_or(((0, 0), 0), |p| ((p.attained, p.total), p.tries));
        let (attained, total) = (before.0 + attained, before.1 + total);
        let interval = wilson(attained, total);
        let wanted = self.plan.attainment;
        self.probes.push(Probe {
            load,
            attained,
            total,
            interval,
            met: total > 0 && attained as f64 / total as f64 >= wanted,
            undecided: interval.0 < wanted && wanted <= interval.1,
            tries: tries + 1,
        });
        self.ended = self.end();
    }

    /// Ends it for a reason from outside.
    pub fn stop(&mut self, why: Ended) {
        self.ended.get_or_insert(why);
    }

    /// What came of it.
    #[must_use]
    pub fn found(self) -> Found {
        Found {
            best: self.low(),
            too_much: self.high(),
            ended: self.ended.unwrap_or(Ended::Interrupted),
            plan: self.plan,
            probes: self.probes,
        }
    }

    /// Whether a probe is to be tried again: more requests could decide it.
    fn is_open(&self, probe: &Probe) -> bool {
        probe.undecided && probe.tries < MOST_TRIES
    }

    fn low(&self) -> Option<f64> {
        let high = self.high().unwrap_or(f64::INFINITY);
        let met = self
            .probes
            .iter()
            .filter(|probe| probe.met && probe.load < high);
        met.map(|probe| probe.load).reduce(f64::max)
    }

    fn high(&self) -> Option<f64> {
        let missed = self.probes.iter().filter(|probe| !probe.met);
        missed.map(|probe| probe.load).reduce(f64::min)
    }

    fn step(&self) -> f64 {
        let load = match (self.low(), self.high()) {
            (None, None) => self.plan.start,
            (Some(low), None) => low * 2.0,
            (None, Some(high)) => high / 2.0,
            // The middle by ratio: the tolerance is a ratio too. Whole loads may have none between.
            (Some(low), Some(high)) if self.plan.whole => (low * high).sqrt().max(low + 1.0),
            (Some(low), Some(high)) => (low * high).sqrt(),
        };
        let load = if self.plan.whole { load.floor() } else { load };
        load.clamp(self.plan.lowest, self.plan.highest)
    }

    fn end(&self) -> Option<Ended> {
        let last = self.probes.last()?;
        let out = self.runs >= self.plan.most_runs;
        if self.is_open(last) {
            return out.then_some(Ended::OutOfRuns);
        }
        match (self.low(), self.high()) {
            (Some(low), _) if low >= self.plan.highest => Some(Ended::AtHighest),
            (None, Some(high)) if high <= self.plan.lowest => Some(Ended::NoneMet),
            (Some(low), Some(high)) if self.is_close(low, high) => Some(Ended::Converged),
            _ => out.then_some(Ended::OutOfRuns),
        }
    }

    fn is_close(&self, low: f64, high: f64) -> bool {
        let neighbours = self.plan.whole && high - low <= 1.0;
        neighbours || high <= low * (1.0 + self.plan.tolerance)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PLAN: SearchPlan = SearchPlan {
        start: 1.0,
        lowest: 0.1,
        highest: 1000.0,
        attainment: 0.9,
        tolerance: 0.05,
        most_runs: 40,
        whole: false,
    };

    /// Runs it against a server that serves up to `capacity`, with 1000 requests a run.
    fn search(plan: SearchPlan, capacity: f64) -> Found {
        let mut search = Search::new(plan);
        while let Some(load) = search.next() {
            let share = if load <= capacity { 0.99 } else { 0.5 };
            search.observe((1000.0 * share) as u64, 1000);
        }
        search.found()
    }

    #[test]
    fn it_doubles_until_too_much_and_then_halves_the_ratio() {
        let found = search(PLAN, 10.0);
        let loads: Vec<f64> = found.probes.iter().map(|probe| probe.load).collect();
        assert_eq!(loads[..5], [1.0, 2.0, 4.0, 8.0, 16.0]);
        assert!((loads[5] - 128.0_f64.sqrt()).abs() < 1e-9);
        assert_eq!(found.ended, Ended::Converged);
        let (best, too_much) = (found.best.unwrap(), found.too_much.unwrap());
        assert!(best <= 10.0 && 10.0 < too_much && too_much <= best * 1.05);
    }

    #[test]
    fn it_halves_a_start_that_is_too_much_and_ends_within_the_tolerance() {
        let plan = SearchPlan {
            start: 400.0,
            tolerance: 0.5,
            ..PLAN
        };
        let found = search(plan, 100.0);
        let loads: Vec<f64> = found.probes.iter().map(|probe| probe.load).collect();
        assert_eq!(loads[..3], [400.0, 200.0, 100.0]);
        // From 100 to 200 is too far, from 100 to 141 is close enough.
        assert_eq!(loads.len(), 4);
        assert!((loads[3] - 20_000.0_f64.sqrt()).abs() < 1e-9, "{loads:?}");
        assert_eq!(found.ended, Ended::Converged);
    }

    #[test]
    fn that_all_requests_will_meet_the_slo_no_number_of_them_proves() {
        let plan = SearchPlan {
            attainment: 1.0,
            ..PLAN
        };
        let mut search = Search::new(plan);
        for _ in 0..MOST_TRIES {
            assert_eq!(search.next(), Some(1.0));
            search.observe(500, 500);
        }
        assert_eq!(search.next(), Some(2.0));
        search.observe(499, 500);
        let found = search.found();
        let met: Vec<bool> = found.probes.iter().map(|probe| probe.met).collect();
        assert_eq!(met, [true, false]);
    }

    #[test]
    fn a_slo_that_nothing_meets_ends_at_the_lowest_load() {
        let found = search(PLAN, 0.0);
        assert_eq!((found.best, found.ended), (None, Ended::NoneMet));
        assert_eq!(found.too_much, Some(0.1));
    }

    #[test]
    fn a_server_without_limits_ends_at_the_highest_load() {
        let found = search(PLAN, f64::INFINITY);
        assert_eq!((found.best, found.ended), (Some(1000.0), Ended::AtHighest));
    }

    #[test]
    fn whole_loads_end_beside_each_other() {
        let plan = SearchPlan {
            whole: true,
            lowest: 1.0,
            tolerance: 0.001,
            ..PLAN
        };
        for capacity in 1..40 {
            let found = search(plan, f64::from(capacity));
            assert_eq!(found.best, Some(f64::from(capacity)));
            assert_eq!(found.too_much, Some(f64::from(capacity + 1)));
        }
    }

    #[test]
    fn a_load_that_its_interval_does_not_decide_is_tried_again_with_counts_added() {
        let mut search = Search::new(PLAN);
        search.observe(9, 10);
        assert_eq!(search.next(), Some(1.0));
        search.observe(9, 10);
        search.observe(9, 10);
        assert_eq!(search.next(), Some(2.0));
        let found = search.found();
        let probe = &found.probes[0];
        assert_eq!((probe.attained, probe.total, probe.tries), (27, 30, 3));
        assert!(probe.met && probe.undecided);
    }

    #[test]
    fn a_load_at_which_just_the_wanted_share_is_in_time_is_met() {
        for (attainment, attained, total) in [(0.9, 9, 10), (0.95, 19, 20), (0.55, 55, 100)] {
            let met = |attained| {
                let mut search = Search::new(SearchPlan { attainment, ..PLAN });
                search.observe(attained, total);
                search.found().probes[0].met
            };
            assert!(met(attained) && !met(attained - 1), "{attainment}");
        }
    }

    #[test]
    fn a_run_without_requests_met_nothing() {
        let mut search = Search::new(PLAN);
        search.observe(0, 0);
        assert!(!search.found().probes[0].met);
    }

    #[test]
    fn wilson_holds_the_published_values() {
        // Newcombe 1998, table I: 81 of 263, and 0 of 20.
        let (low, high) = wilson(81, 263);
        assert!((low - 0.2553).abs() < 1e-4 && (high - 0.3662).abs() < 1e-4);
        let (low, high) = wilson(0, 20);
        assert!(low == 0.0 && (high - 0.1611).abs() < 1e-4);
    }

    proptest! {
        #[test]
        fn it_always_ends_and_keeps_its_bounds(
            capacity in 0.01..5000.0_f64, start in 0.1..1000.0_f64, whole: bool, runs in 1_u32..60,
        ) {
            let plan = SearchPlan { start, whole, lowest: if whole { 1.0 } else { 0.1 }, most_runs: runs, ..PLAN };
            let found = search(plan, capacity);
            prop_assert!(found.probes.iter().map(|probe| probe.tries).sum::<u32>() <= runs);
            for probe in &found.probes {
                prop_assert!(probe.load >= plan.lowest && probe.load <= plan.highest);
            }
            if found.ended == Ended::Converged {
                prop_assert!(found.best.unwrap() <= capacity && capacity < found.too_much.unwrap());
            }
        }
    }
}

//! How long it takes from a bump of the engine's counter to the layer's first posted write.
//!
//! Everything but the engine is real: the watcher's thread, the planner, the fabric's thread,
//! libfabric, and a receiver in another process that counts what arrives. The made engine announces
//! steps and bumps the counter at random intervals. It sleeps in between, as a thread that feeds a GPU
//! does, and so leaves its core to the threads that are measured; the embedded engine would not.
//!
//! A latency is the time from just before the bump, on the bumping thread, until `fi_writemsg` has
//! taken the first write of that layer, on the fabric's thread. Each layer is a flow of its own, as it
//! is towards a receiver whose layers lie in different shards, so that
//! [`tandem_fabric::FlowEnded::first_post`] says when that was.

mod rig;

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use serde::Serialize;
use tandem_core::layout::LayoutError;
use tandem_fabric::FabricError;
use tandem_fabric::bench::{Bench, BenchError, Microseconds, Receiver};

use rig::Rig;

/// What is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BumpPlan {
    /// As in `[fabric] provider`.
    pub provider: String,
    /// Steps of the made engine, 10 to 1000; the first tenth of them is not reported.
    pub steps: u32,
    /// Layers of each step, 1 to 64: as many samples.
    pub layers: u16,
    /// Writes of a layer, of 16 KiB each: 1 to 256.
    pub writes: u32,
    /// The shortest and the longest time from one bump to the next. All bumps take 20 s at most.
    pub gap: (Duration, Duration),
    /// Seed of the times between bumps.
    pub seed: u64,
}

impl BumpPlan {
    /// 250 steps of 20 layers of 8 writes, 0.2 to 2 ms apart: 4500 samples in 6 s.
    #[must_use]
    pub fn standard(provider: &str) -> Self {
        Self {
            provider: provider.to_owned(),
            steps: 250,
            layers: 20,
            writes: 8,
            gap: (Duration::from_micros(200), Duration::from_millis(2)),
            seed: 1,
        }
    }

    /// 10 steps of the same: whether it works, not how fast it is.
    #[must_use]
    pub fn quick(provider: &str) -> Self {
        Self {
            steps: 10,
            ..Self::standard(provider)
        }
    }

    fn check(&self) -> Result<(), MeasureError> {
        let bumps = self.steps.saturating_mul(u32::from(self.layers));
        let fits = (10..=1000).contains(&self.steps)
            && (1..=64).contains(&self.layers)
            && (1..=256).contains(&self.writes)
            && self.gap.0 <= self.gap.1
            && self.gap.1.saturating_mul(bumps) <= LONGEST;
        if fits {
            Ok(())
        } else {
            Err(MeasureError::Plan)
        }
    }
}

/// All bumps together: the receiver waits for half a minute.
const LONGEST: Duration = Duration::from_secs(20);

/// How the watcher's and the fabric's thread wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Threads {
    /// As on cores that others want too: they spin for some microseconds, then sleep.
    Napping,
    /// As on cores of their own: they spin while there is something to wait for. Here they are pinned
    /// to the last two cpus of the process where it has at least [`CPUS_TO_SPIN`]; where it has fewer
    /// they contend with the rest of the measurement, which the upper quantiles show.
    Spinning,
}

impl Display for Threads {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Napping => "napping",
            Self::Spinning => "spinning",
        })
    }
}

/// Cpus with which two may be given to threads that spin.
pub const CPUS_TO_SPIN: usize = 4;

/// From a bump to the layer's first posted write.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BumpToPost {
    /// Asked for.
    pub provider: String,
    /// How the threads waited.
    pub threads: Threads,
    /// Whether they spun for as long as a step ran: [`Threads::Spinning`].
    pub spinning: bool,
    /// Whether each had a cpu that nothing else of this process was placed on.
    pub pinned: bool,
    /// Layers measured.
    pub samples: usize,
    /// The latency, in microseconds.
    #[serde(flatten)]
    pub us: Microseconds,
}

/// Why it could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// A plan outside its bounds.
    #[error("the plan is outside its bounds: see BumpPlan")]
    Plan,
    /// The receiver or the fabric failed.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// The layout cannot be made.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A thread, or a runtime for this one, cannot be had.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] std::io::Error),
    /// Writes of a layer were not all posted, or failed.
    #[error("a layer's writes failed: {0}")]
    Layer(String),
    /// Nothing has moved.
    #[error("nothing has moved for {0:?}")]
    Stuck(Duration),
}

impl From<FabricError> for MeasureError {
    fn from(error: FabricError) -> Self {
        Self::Bench(error.into())
    }
}

/// Measures both kinds of waiting, one after the other, with one receiver. Blocks: call it from a plain
/// thread, outside any runtime.
pub fn bump_to_post(plan: &BumpPlan, receiver: &Receiver) -> Result<Vec<BumpToPost>, MeasureError> {
    plan.check()?;
    let mut bench = Bench::open(receiver, Vec::new())?;
    let mut results = Vec::new();
    for threads in [Threads::Napping, Threads::Spinning] {
        let mut rig = Rig::build(plan, threads, &mut bench)?;
        let seconds = rig.run(plan)?;
        let pinned = rig.pinned();
        rig.close()?;
        bench.counted()?;
        results.push(BumpToPost {
            provider: plan.provider.clone(),
            threads,
            spinning: threads == Threads::Spinning,
            pinned,
            samples: seconds.len(),
            us: Microseconds::of(seconds),
        });
    }
    bench.close()?;
    Ok(results)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_outside_its_bounds_is_refused() {
        let good = BumpPlan::standard("tcp");
        assert!(good.check().is_ok());
        let refused = |plan: BumpPlan| assert!(plan.check().is_err(), "{plan:?}");
        refused(BumpPlan {
            steps: 9,
            ..good.clone()
        });
        refused(BumpPlan {
            layers: 0,
            ..good.clone()
        });
        refused(BumpPlan {
            writes: 257,
            ..good.clone()
        });
        refused(BumpPlan {
            gap: (good.gap.1, good.gap.0),
            ..good.clone()
        });
        let slow = Duration::from_millis(5);
        refused(BumpPlan {
            gap: (slow, slow),
            ..good
        });
    }
}

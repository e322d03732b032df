//! What was measured.

use serde::Serialize;

use super::case::{Case, Layout};

/// Everything that was measured in one run. Displays as tables.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// libfabric's version.
    pub libfabric: String,
    /// Throughput.
    pub cases: Vec<CaseResult>,
    /// Latency.
    pub latencies: Vec<LatencyResult>,
}

/// Throughput of one [`Case`]. Rates are in 10⁹ bytes per second, processor times in seconds (user and
/// system, both processes) per 10⁹ bytes; all are medians over the rounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CaseResult {
    /// Asked for.
    pub provider: String,
    /// Bytes of a page in one layer.
    pub piece_bytes: u32,
    /// Pages.
    pub pieces: u32,
    /// How they lie.
    pub layout: Layout,
    /// Pages that lie together, where scattered.
    pub run_pages: u32,
    /// NICs of each side.
    pub nics: u16,
    /// Writes in flight for each NIC.
    pub window: u32,
    /// Longest merged write.
    pub max_write_bytes: u32,
    /// Writes that carried the pages, in each of the four.
    pub writes: u64,
    /// Interleaved rounds.
    pub rounds: usize,
    /// The whole engine.
    pub engine_gbytes_per_s: f64,
    /// The same writes in a bare loop of `fi_writemsg`.
    pub bare_gbytes_per_s: f64,
    /// The same writes over one TCP stream.
    pub tcp_gbytes_per_s: f64,
    /// The same writes within one process.
    pub memcpy_gbytes_per_s: f64,
    /// The engine's processor time.
    pub engine_cpu_s_per_gb: f64,
    /// The bare loop's.
    pub bare_cpu_s_per_gb: f64,
    /// TCP's.
    pub tcp_cpu_s_per_gb: f64,
    /// Engine ÷ bare loop of the same round, in rate.
    pub engine_to_bare: f64,
    /// Engine ÷ bare loop of the same round, in processor time.
    pub engine_to_bare_cpu: f64,
}

/// Latency of single writes of one size, one at a time, between threads that are awake.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LatencyResult {
    /// Asked for.
    pub provider: String,
    /// Of a write.
    pub bytes: u32,
    /// Writes measured.
    pub samples: usize,
    /// From [`crate::Pusher::post`] to the completion, as the fabric's thread sees it.
    pub engine_completion_us: Microseconds,
    /// From `fi_writemsg` to the completion, on one thread.
    pub bare_completion_us: Microseconds,
    /// From [`crate::Pusher::post`] until the receiver's program hears [`crate::FabricEvent::Full`]:
    /// half a round trip, in which two threads are woken.
    pub engine_counted_us: Microseconds,
    /// From `fi_writemsg` until the receiver's loop has read the immediate: half a round trip.
    pub bare_counted_us: Microseconds,
}

/// Quantiles.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Microseconds {
    /// Half are shorter.
    pub p50: f64,
    /// One in a hundred is longer.
    pub p99: f64,
}

impl Microseconds {
    /// Of these samples, in seconds; not a number where there are none.
    #[must_use]
    pub fn of(mut seconds: Vec<f64>) -> Self {
        seconds.sort_by(f64::total_cmp);
        let at = |part: usize| {
            let index = (seconds.len() * part / 100).min(seconds.len().saturating_sub(1));
            seconds.get(index).map_or(f64::NAN, |s| s * 1e6)
        };
        Self {
            p50: at(50),
            p99: at(99),
        }
    }
}

/// What one subject took in one round.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Measured {
    pub(super) seconds: f64,
    /// Of both processes.
    pub(super) cpu_seconds: f64,
    pub(super) writes: u64,
}

/// What all took in one round.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Round {
    pub(super) engine: Measured,
    pub(super) bare: Measured,
    pub(super) tcp: Measured,
    pub(super) memcpy: Measured,
}

impl CaseResult {
    pub(super) fn of(case: &Case, bytes: u64, rounds: &[Round]) -> Self {
        let gbytes = bytes as f64 / 1e9;
        let each = |value: &dyn Fn(&Round) -> f64| median(rounds.iter().map(value).collect());
        let rate = |of: fn(&Round) -> Measured| each(&|r| gbytes / of(r).seconds);
        let cpu = |of: fn(&Round) -> Measured| each(&|r| of(r).cpu_seconds / gbytes);
        Self {
            provider: case.provider.clone(),
            piece_bytes: case.piece_bytes,
            pieces: case.pieces,
            layout: case.layout,
            run_pages: case.run_pages,
            nics: case.nics,
            window: case.window,
            max_write_bytes: case.max_write_bytes,
            writes: rounds.first().map_or(0, |r| r.engine.writes),
            rounds: rounds.len(),
            engine_gbytes_per_s: rate(|r| r.engine),
            bare_gbytes_per_s: rate(|r| r.bare),
            tcp_gbytes_per_s: rate(|r| r.tcp),
            memcpy_gbytes_per_s: rate(|r| r.memcpy),
            engine_cpu_s_per_gb: cpu(|r| r.engine),
            bare_cpu_s_per_gb: cpu(|r| r.bare),
            tcp_cpu_s_per_gb: cpu(|r| r.tcp),
            engine_to_bare: each(&|r| r.bare.seconds / r.engine.seconds),
            engine_to_bare_cpu: each(&|r| r.engine.cpu_seconds / r.bare.cpu_seconds),
        }
    }
}

/// The middle one; the mean of the two in the middle.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let (half, odd) = (values.len() / 2, values.len() % 2);
    match values.as_slice() {
        [] => f64::NAN,
        values if odd == 1 => values[half],
        values => f64::midpoint(values[half - 1], values[half]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_not_moved_by_one_bad_round() {
        assert_eq!(median(vec![3.0, 1000.0, 2.0]), 3.0);
        assert_eq!(median(vec![1.0, 3.0, 2.0, 1000.0]), 2.5);
    }

    #[test]
    fn a_ratio_compares_within_a_round() {
        let took = |seconds| Measured {
            seconds,
            cpu_seconds: 2.0 * seconds,
            writes: 1,
        };
        // The machine is three times as slow in the second round, for both.
        let round = |slow: f64| Round {
            engine: took(1.1 * slow),
            bare: took(slow),
            tcp: took(slow),
            memcpy: took(slow),
        };
        let case = Case::new("tcp", 64, 1);
        let result = CaseResult::of(&case, 1_000_000_000, &[round(1.0), round(3.0), round(1.0)]);
        assert!((result.engine_to_bare - 1.0 / 1.1).abs() < 1e-9);
        assert!((result.engine_to_bare_cpu - 1.1).abs() < 1e-9);
        assert!((result.bare_gbytes_per_s - 1.0).abs() < 1e-9);
        assert!((result.bare_cpu_s_per_gb - 2.0).abs() < 1e-9);
    }

    #[test]
    fn quantiles_are_in_microseconds() {
        let us = Microseconds::of((1..=1000).rev().map(|n| f64::from(n) / 1e6).collect());
        assert!(
            (us.p50 - 501.0).abs() < 1e-6 && (us.p99 - 991.0).abs() < 1e-6,
            "{us:?}"
        );
    }
}

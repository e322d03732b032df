//! The times between one request's tokens (ITL), gathered so that a token costs a few nanoseconds.
//!
//! Two small tables: one that is emptied into a histogram now and then, exact in its counts and its
//! sum; and one of fine steps over the whole request, for its percentiles.

use std::time::Duration;

use crate::buckets::PER_TOKEN;

/// Steps of the fine table in each doubling: a percentile is off by 1/16 at most.
const STEPS: u32 = 8;
const STEP_BITS: u32 = 3;
/// Shorter gaps are taken for this one, 2^10 ns.
const SHORTEST_BITS: u32 = 10;
/// 2^41 ns is 37 minutes; longer gaps are taken for that.
const LONGEST_BITS: u32 = 41;
const FINE: usize = ((LONGEST_BITS - SHORTEST_BITS) * STEPS) as usize + 1;
/// Gaps that are gathered before they should be taken.
const FULL: u32 = 256;

/// One request's gaps.
#[derive(Clone, Debug, Default)]
pub struct Gaps {
    /// Nothing is allocated before the first gap.
    tables: Option<Box<Tables>>,
}

#[derive(Clone, Debug)]
struct Tables {
    fine: [u32; FINE],
    count: u64,
    longest: Duration,
    coarse: [Bin; PER_TOKEN.len() + 1],
    waiting: u32,
}

/// Gaps of one bucket.
#[derive(Clone, Copy, Debug, Default)]
struct Bin {
    count: u32,
    seconds: f64,
}

impl Gaps {
    /// `tokens` tokens came together, so long after those before them: each has an equal share of the
    /// time.
    pub fn add(&mut self, since: Duration, tokens: u32) {
        if tokens == 0 {
            return;
        }
        let share = since / tokens;
        let tables = self.tables.get_or_insert_with(|| Box::new(Tables::new()));
        tables.fine[fine(share)] += tokens;
        tables.count += u64::from(tokens);
        tables.longest = tables.longest.max(share);
        let seconds = share.as_secs_f64();
        let bin = &mut tables.coarse[PER_TOKEN.partition_point(|bound| *bound < seconds)];
        bin.count += tokens;
        bin.seconds += seconds * f64::from(tokens);
        tables.waiting += tokens;
    }

    /// Whether it is time to [`take`](Gaps::take) what was gathered.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.tables.as_ref().is_some_and(|t| t.waiting >= FULL)
    }

    /// Hands out what was gathered since the last time: for each bucket of [`PER_TOKEN`] that has
    /// any, their mean in seconds and their number. Counts and sums of a histogram with these buckets are
    /// those of the gaps themselves.
    pub fn take(&mut self, mut record: impl FnMut(f64, u32)) {
        let Some(tables) = &mut self.tables else {
            return;
        };
        tables.waiting = 0;
        for (index, bin) in tables.coarse.iter_mut().enumerate() {
            if bin.count == 0 {
                continue;
            }
            let Bin { count, seconds } = std::mem::take(bin);
            let mean = seconds / f64::from(count);
            // A mean of values that are all at the bound may be rounded past it.
            let bound = PER_TOKEN.get(index).copied().unwrap_or(f64::INFINITY);
            record(mean.min(bound), count);
        }
    }

    /// The gap that this part of all gaps do not exceed; `None` without any.
    #[must_use]
    pub fn quantile(&self, part: f64) -> Option<Duration> {
        let tables = self.tables.as_ref()?;
        let rank = ((part * tables.count as f64).ceil() as u64).clamp(1, tables.count);
        let mut seen = 0;
        for (index, count) in tables.fine.iter().enumerate() {
            seen += u64::from(*count);
            if seen >= rank {
                return Some(middle(index).min(tables.longest));
            }
        }
        Some(tables.longest)
    }
}

impl Tables {
    const fn new() -> Self {
        Self {
            fine: [0; FINE],
            count: 0,
            longest: Duration::ZERO,
            coarse: [Bin {
                count: 0,
                seconds: 0.0,
            }; PER_TOKEN.len() + 1],
            waiting: 0,
        }
    }
}

/// Where a gap is counted.
fn fine(gap: Duration) -> usize {
    let nanos = u64::try_from(gap.as_nanos()).unwrap_or(u64::MAX);
    if nanos < 1 << SHORTEST_BITS {
        return 0;
    }
    let power = 63 - nanos.leading_zeros();
    let step = (nanos >> (power - STEP_BITS)) as u32 & (STEPS - 1);
    let index = (power - SHORTEST_BITS) * STEPS + step + 1;
    (index as usize).min(FINE - 1)
}

/// The middle of a step.
fn middle(index: usize) -> Duration {
    let Some(index) = index.checked_sub(1) else {
        return Duration::from_nanos(1 << (SHORTEST_BITS - 1));
    };
    let power = SHORTEST_BITS + index as u32 / STEPS;
    let step = index as u64 % u64::from(STEPS);
    let width = 1_u64 << (power - STEP_BITS);
    Duration::from_nanos((1 << power) + step * width + width / 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn tokens_of_one_message_share_the_time_since_the_last() {
        let mut gaps = Gaps::default();
        gaps.add(ms(90), 3);
        let mut taken = Vec::new();
        gaps.take(|mean, count| taken.push((mean, count)));
        assert_eq!(taken, [(0.03, 3)]);
        gaps.take(|_, _| panic!("they were taken"));
        assert!(gaps.quantile(1.0).unwrap() <= ms(30));
    }

    #[test]
    fn a_request_of_one_token_has_no_gaps() {
        let mut gaps = Gaps::default();
        assert_eq!(gaps.quantile(0.99), None);
        gaps.take(|_, _| panic!("there is nothing"));
        gaps.add(ms(5), 0);
        assert_eq!(gaps.quantile(0.99), None);
    }

    #[test]
    fn it_says_when_there_is_enough_to_take() {
        let mut gaps = Gaps::default();
        for _ in 0..FULL {
            assert!(!gaps.is_full());
            gaps.add(ms(1), 1);
        }
        assert!(gaps.is_full());
        gaps.take(|_, _| ());
        assert!(!gaps.is_full());
        assert!(gaps.quantile(0.5).is_some(), "percentiles are of all");
    }

    proptest! {
        #[test]
        fn counts_sums_and_percentiles_are_those_of_the_gaps(
            nanos in proptest::collection::vec(2_000_u64..100_000_000_000, 1..300),
            part in 0.01_f64..=1.0,
        ) {
            let mut gaps = Gaps::default();
            let (mut count, mut sum) = (0, 0.0);
            let mut buckets = [0; PER_TOKEN.len() + 1];
            for (index, nanos) in nanos.iter().enumerate() {
                gaps.add(Duration::from_nanos(*nanos), 1);
                if index % 7 == 0 {
                    gaps.take(|mean, n| {
                        count += n;
                        sum += mean * f64::from(n);
                        buckets[PER_TOKEN.partition_point(|b| *b < mean)] += n;
                    });
                }
            }
            gaps.take(|mean, n| {
                count += n;
                sum += mean * f64::from(n);
                buckets[PER_TOKEN.partition_point(|b| *b < mean)] += n;
            });
            let mut sorted = nanos;
            sorted.sort_unstable();
            let mut exact = [0; PER_TOKEN.len() + 1];
            for nanos in &sorted {
                let seconds = Duration::from_nanos(*nanos).as_secs_f64();
                exact[PER_TOKEN.partition_point(|b| *b < seconds)] += 1;
            }
            prop_assert_eq!(count as usize, sorted.len());
            prop_assert_eq!(buckets, exact);
            let whole: f64 = sorted.iter().map(|n| *n as f64 / 1e9).sum();
            prop_assert!((sum - whole).abs() <= whole * 1e-9);
            let rank = (part * sorted.len() as f64).ceil() as usize;
            let want = sorted[rank.clamp(1, sorted.len()) - 1] as f64;
            let got = gaps.quantile(part).unwrap().as_nanos() as f64;
            prop_assert!((got / want - 1.0).abs() <= 1.0 / 16.0 + 1e-6, "{} for {}", got, want);
        }
    }
}

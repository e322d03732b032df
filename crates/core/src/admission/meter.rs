//! What a tenant or an API key may use: requests per second, tokens per minute, requests at once.
//!
//! A bucket is kept as the moment at which it will be full again (the generic cell rate algorithm,
//! ITU-T I.371), so that the wait it asks for is exact and no timer runs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::Instant;

/// So many units flow in evenly per period; a full bucket holds `burst`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    /// Units. At least 1.
    pub units: u64,
    /// In this time.
    pub per: Duration,
    /// Units that a full bucket holds.
    pub burst: u64,
}

/// More than a full bucket holds: no wait would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Never;

impl Rate {
    /// The time in which `units` flow in.
    fn time_of(&self, units: u64) -> Duration {
        let nanos = self.per.as_nanos() * u128::from(units);
        let nanos = nanos.div_ceil(u128::from(self.units.max(1)));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// A token bucket, full at first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Bucket {
    full_at: Instant,
}

impl Bucket {
    /// How long until it holds `units`; zero where it does.
    pub fn wait(&self, now: Instant, rate: &Rate, units: u64) -> Result<Duration, Never> {
        if units > rate.burst {
            return Err(Never);
        }
        let full_then = self.full_at.max(now) + rate.time_of(units);
        Ok(full_then.since(now + rate.time_of(rate.burst)))
    }

    /// Takes units out, whether it holds them or not.
    pub fn take(&mut self, now: Instant, rate: &Rate, units: u64) {
        self.full_at = self.full_at.max(now) + rate.time_of(units);
    }

    /// Puts units back in that were taken and not used.
    pub fn give_back(&mut self, rate: &Rate, units: u64) {
        let nanos = u64::try_from(rate.time_of(units).as_nanos()).unwrap_or(u64::MAX);
        self.full_at = Instant::from_nanos(self.full_at.as_nanos().saturating_sub(nanos));
    }
}

/// Upper limits; what is `None` is not limited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Requests per second. As many may come at once.
    pub requests_per_second: Option<u32>,
    /// Tokens per minute, of prompts and answers. As many may be asked for at once.
    pub tokens_per_minute: Option<u64>,
    /// Requests that have not ended.
    pub concurrency: Option<u32>,
}

impl Limits {
    fn requests(&self) -> Option<Rate> {
        let units = u64::from(self.requests_per_second?);
        let per = Duration::from_secs(1);
        Some(Rate {
            units,
            per,
            burst: units,
        })
    }

    fn tokens(&self) -> Option<Rate> {
        let units = self.tokens_per_minute?;
        let per = Duration::from_secs(60);
        Some(Rate {
            units,
            per,
            burst: units,
        })
    }
}

/// What of the limits is the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Allowance {
    /// [`Limits::requests_per_second`].
    RequestsPerSecond,
    /// [`Limits::tokens_per_minute`].
    TokensPerMinute,
    /// [`Limits::concurrency`].
    Concurrency,
}

impl Allowance {
    /// In metrics and messages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RequestsPerSecond => "requests_per_second",
            Self::TokensPerMinute => "tokens_per_minute",
            Self::Concurrency => "concurrency",
        }
    }
}

/// A limit is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Exceeded {
    /// Which.
    pub what: Allowance,
    /// Its value.
    pub allowed: u64,
    /// After so long the same request is within it; `None` where another request has to end first.
    pub wait: Option<Duration>,
    /// The request alone is over it: no wait would do.
    pub never: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Meter {
    requests: Bucket,
    tokens: Bucket,
    running: u32,
}

impl Meter {
    fn is_idle(&self, now: Instant) -> bool {
        self.running == 0 && self.requests.full_at <= now && self.tokens.full_at <= now
    }
}

/// Names whose use is remembered. Beyond it those that use nothing are forgotten first, then those
/// whose buckets are full soonest.
const MOST: usize = 65_536;

/// The use of each tenant, or of each key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Meters {
    meters: BTreeMap<Arc<str>, Meter>,
}

impl Meters {
    /// Whether a request of so many tokens is within the limits now.
    pub fn check(
        &self,
        now: Instant,
        name: &str,
        limits: &Limits,
        tokens: u64,
    ) -> Result<(), Exceeded> {
        let unused = Meter::default();
        let meter = self.meters.get(name).unwrap_or(&unused);
        let wait = |what, rate: Option<Rate>, bucket: Bucket, units| {
            let Some(rate) = rate else { return Ok(()) };
            let wait = bucket.wait(now, &rate, units);
            let never = wait.is_err();
            match wait.ok() {
                Some(Duration::ZERO) => Ok(()),
                wait => Err(Exceeded {
                    what,
                    allowed: rate.units,
                    wait,
                    never,
                }),
            }
        };
        wait(
            Allowance::TokensPerMinute,
            limits.tokens(),
            meter.tokens,
            tokens,
        )?;
        wait(
            Allowance::RequestsPerSecond,
            limits.requests(),
            meter.requests,
            1,
        )?;
        match limits.concurrency {
            Some(most) if meter.running >= most => Err(Exceeded {
                what: Allowance::Concurrency,
                allowed: most.into(),
                wait: None,
                never: false,
            }),
            _ => Ok(()),
        }
    }

    /// A request of so many tokens begins.
    pub fn begin(&mut self, now: Instant, name: &Arc<str>, limits: &Limits, tokens: u64) {
        if !self.meters.contains_key(name) {
            self.make_room(now);
        }
        let meter = self.meters.entry(Arc::clone(name)).or_default();
        meter.running += 1;
        if let Some(rate) = limits.requests() {
            meter.requests.take(now, &rate, 1);
        }
        if let Some(rate) = limits.tokens() {
            meter.tokens.take(now, &rate, tokens);
        }
    }

    /// It has ended; `unused` of its tokens were not used.
    pub fn end(&mut self, now: Instant, name: &str, limits: &Limits, unused: u64) {
        let Some(meter) = self.meters.get_mut(name) else {
            return;
        };
        meter.running = meter.running.saturating_sub(1);
        if let Some(rate) = limits.tokens() {
            meter.tokens.give_back(&rate, unused);
        }
        if meter.is_idle(now) {
            self.meters.remove(name);
        }
    }

    /// Requests of `name` that have not ended.
    #[must_use]
    pub fn running(&self, name: &str) -> u32 {
        self.meters.get(name).map_or(0, |meter| meter.running)
    }

    fn make_room(&mut self, now: Instant) {
        if self.meters.len() < MOST {
            return;
        }
        self.meters.retain(|_, meter| !meter.is_idle(now));
        while self.meters.len() >= MOST {
            let resting = self.meters.iter().filter(|(_, m)| m.running == 0);
            let soonest = resting.min_by_key(|(_, m)| m.requests.full_at.max(m.tokens.full_at));
            let Some(name) = soonest.map(|(name, _)| Arc::clone(name)) else {
                return;
            };
            self.meters.remove(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn ms(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    fn limits(requests: Option<u32>, tokens: Option<u64>, concurrency: Option<u32>) -> Limits {
        Limits {
            requests_per_second: requests,
            tokens_per_minute: tokens,
            concurrency,
        }
    }

    #[test]
    fn the_wait_that_a_bucket_asks_for_is_exact() {
        let rate = Rate {
            units: 60,
            per: Duration::from_secs(60),
            burst: 60,
        };
        let mut bucket = Bucket::default();
        let now = ms(5_000);
        assert_eq!(bucket.wait(now, &rate, 60), Ok(Duration::ZERO));
        bucket.take(now, &rate, 60);
        assert_eq!(bucket.wait(now, &rate, 7), Ok(Duration::from_secs(7)));
        assert_eq!(
            bucket.wait(ms(11_999), &rate, 7),
            Ok(Duration::from_millis(1))
        );
        assert_eq!(bucket.wait(ms(12_000), &rate, 7), Ok(Duration::ZERO));
        assert_eq!(bucket.wait(now, &rate, 61), Err(Never));
        bucket.give_back(&rate, 50);
        assert_eq!(bucket.wait(now, &rate, 50), Ok(Duration::ZERO));
        assert_eq!(bucket.wait(now, &rate, 51), Ok(Duration::from_secs(1)));
    }

    #[test]
    fn a_tenant_over_its_limits_learns_which_and_how_long() {
        let mut meters = Meters::default();
        let name: Arc<str> = "t".into();
        let limits = limits(Some(2), Some(600), Some(3));
        let over = |meters: &Meters, now, tokens| meters.check(now, &name, &limits, tokens);
        for _ in 0..2 {
            over(&meters, ms(0), 100).unwrap();
            meters.begin(ms(0), &name, &limits, 100);
        }
        let why = over(&meters, ms(0), 100).unwrap_err();
        assert_eq!(why.what, Allowance::RequestsPerSecond);
        assert_eq!(why.wait, Some(Duration::from_millis(500)));
        let why = over(&meters, ms(0), 500).unwrap_err();
        assert_eq!(
            (why.what, why.wait),
            (Allowance::TokensPerMinute, Some(Duration::from_secs(10)))
        );
        assert!(over(&meters, ms(0), 601).unwrap_err().never);
        meters.begin(ms(500), &name, &limits, 1);
        let why = over(&meters, ms(5_000), 1).unwrap_err();
        assert_eq!((why.what, why.allowed), (Allowance::Concurrency, 3));
        // What was not used comes back, and whoever uses nothing is forgotten.
        for unused in [100, 100, 1] {
            meters.end(ms(5_000), &name, &limits, unused);
        }
        assert_eq!(over(&meters, ms(5_000), 600), Ok(()));
        assert_eq!(meters, Meters::default());
    }

    proptest! {
        #[test]
        fn no_more_than_the_burst_and_the_rate_ever_passes(
            steps in prop::collection::vec((0_u64..3_000, 1_u64..40), 1..200),
        ) {
            let rate = Rate { units: 10, per: Duration::from_secs(1), burst: 50 };
            let (mut bucket, mut now, mut passed) = (Bucket::default(), Instant::ZERO, 0);
            for (pause, units) in steps {
                now = now + Duration::from_millis(pause);
                match bucket.wait(now, &rate, units) {
                    Ok(Duration::ZERO) => {
                        bucket.take(now, &rate, units);
                        passed += units;
                    }
                    Ok(wait) => {
                        // Exact: a moment earlier it is too early, then it is not.
                        let then = now + wait;
                        prop_assert_eq!(bucket.wait(then, &rate, units), Ok(Duration::ZERO));
                        let before = Instant::from_nanos(then.as_nanos() - 1);
                        prop_assert!(bucket.wait(before, &rate, units) != Ok(Duration::ZERO));
                    }
                    Err(Never) => unreachable!("40 units fit"),
                }
                prop_assert!(passed <= 50 + now.as_nanos() / 100_000_000);
            }
        }
    }
}

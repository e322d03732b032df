//! The client's own side: what it costs, how well it keeps up, and whether its figures can be trusted.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use super::Live;
use crate::clock::Clock;
use crate::distribution::Distribution;
use crate::plan::Bounds;
use crate::results::{ClientFigures, Run};
use crate::units::micros;

/// Watches this process during a run.
pub(super) struct Watch {
    began: Instant,
    cpu: Duration,
    delays: Arc<Mutex<Distribution>>,
    _beat: JoinSet<()>,
}

/// How often the runtime is asked whether it keeps up.
const BEAT: Duration = Duration::from_millis(10);

impl Watch {
    pub(super) fn start(runtime: &Handle, clock: &Clock) -> Self {
        let delays = Arc::<Mutex<Distribution>>::default();
        let mut beat = JoinSet::new();
        beat.spawn_on(beats(clock.clone(), Arc::clone(&delays)), runtime);
        Self {
            began: Instant::now(),
            cpu: cpu_time(),
            delays,
            _beat: beat,
        }
    }

    pub(super) fn finish(self, lateness: Distribution, live: &Live) -> ClientFigures {
        let wall_s = self.began.elapsed().as_secs_f64();
        let cpu_s = cpu_time().saturating_sub(self.cpu).as_secs_f64();
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
        let delays = self.delays.lock().unwrap_or_else(PoisonError::into_inner);
        ClientFigures {
            cores,
            wall_s,
            cpu_s,
            cpu_share: cpu_s / (wall_s * f64::from(cores)).max(f64::MIN_POSITIVE),
            lateness,
            loop_delay: delays.clone(),
            peak_in_flight: live.peak_in_flight(),
            ..ClientFigures::default()
        }
    }
}

/// CPU time of all threads of this process.
fn cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}

/// Asks for moments and notes how late each is served. A late one does not move the next.
async fn beats(clock: Clock, delays: Arc<Mutex<Distribution>>) {
    let mut at = Instant::now();
    loop {
        at += BEAT;
        clock.sleep_until(at).await;
        let delay = micros(at.elapsed());
        delays
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .record(delay);
        tokio::task::yield_now().await;
    }
}

/// Whether the client kept up with a run.
pub(crate) fn keeps_up(run: &Run, bounds: &Bounds) -> bool {
    lags(&run.client, bounds).is_empty()
}

/// Why a run's figures are not to be trusted.
pub(super) fn doubts(run: &Run, bounds: &Bounds) -> Vec<String> {
    let mut doubts = lags(&run.client, bounds);
    let counts = &run.phases.measured.all.counts;
    if counts.unsent > 0 {
        doubts.push(format!(
            "{} requests were not sent, for as many were under way as may be (--max-in-flight)",
            counts.unsent
        ));
    }
    if counts.all() == 0 {
        doubts.push("no request was measured".to_owned());
    }
    doubts
}

/// In what the client did not keep up.
fn lags(client: &ClientFigures, bounds: &Bounds) -> Vec<String> {
    let bound_us = micros(bounds.lateness);
    let mut lags = Vec::new();
    for (what, delays) in [
        ("requests were begun", &client.lateness),
        ("the client noticed what came", &client.loop_delay),
    ] {
        let p99 = delays.quantile(0.99).unwrap_or(0);
        if p99 > bound_us {
            let (found, bound) = (p99 as f64 / 1000.0, bound_us as f64 / 1000.0);
            lags.push(format!(
                "{what} {found:.1} ms late at p99, want {bound} ms at most (--max-lateness): is this machine busy \
                 otherwise? Else use more processes or hosts (--part)"
            ));
        }
    }
    if client.cpu_share > bounds.cpu_share {
        let (found, bound) = (client.cpu_share * 100.0, bounds.cpu_share * 100.0);
        lags.push(format!(
            "the client used {found:.0} % of its {} cores, want {bound:.0} % at most (--max-cpu): use more \
             processes or hosts (--part)",
            client.cores
        ));
    }
    lags
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds {
        lateness: Duration::from_millis(10),
        cpu_share: 0.8,
    };

    /// A client of which 2 of 100 requests were begun, and events noticed, this late.
    fn client(lateness_us: u64, delay_us: u64, cpu_share: f64) -> ClientFigures {
        let mut client = ClientFigures {
            cores: 4,
            cpu_share,
            ..ClientFigures::default()
        };
        for (late, us) in [
            (&mut client.lateness, lateness_us),
            (&mut client.loop_delay, delay_us),
        ] {
            late.record_n(5, 98);
            late.record_n(us, 2);
        }
        client
    }

    #[test]
    fn a_client_that_is_late_or_busy_lags_and_says_by_how_much() {
        for (client, says) in [
            (
                client(12_000, 50, 0.1),
                "requests were begun 12.0 ms late at p99, want 10 ms at most",
            ),
            (
                client(50, 12_000, 0.1),
                "the client noticed what came 12.0 ms late at p99, want 10 ms",
            ),
            (
                client(50, 50, 0.9),
                "the client used 90 % of its 4 cores, want 80 % at most",
            ),
        ] {
            let found = lags(&client, &BOUNDS);
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].starts_with(says), "{found:?}");
        }
        assert_eq!(lags(&client(9_900, 9_900, 0.8), &BOUNDS), [""; 0]);
        assert_eq!(lags(&client(50_000, 50_000, 2.0), &BOUNDS).len(), 3);
        assert_eq!(lags(&ClientFigures::default(), &BOUNDS), [""; 0]);
    }
}

//! What the terminal shows while a test goes on. Nothing where there is none.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tandem_loadtest::Live;
use tandem_loadtest::campaign::{Runs, Watcher};
use tandem_loadtest::plan::RunPlan;
use tandem_loadtest::results::Run;
use tandem_loadtest::schedule::Schedule;

use super::args::LoadtestArgs;
use super::interrupt::Stop;

/// Follows a test.
pub(super) struct Progress<'a> {
    stop: &'a Stop,
    shown: bool,
    /// How many runs there will be, where that is known.
    all: Option<usize>,
    begun: usize,
    ticker: Option<Ticker>,
}

/// One run's bar, and the thread that moves it.
struct Ticker {
    end: Sender<()>,
    thread: JoinHandle<()>,
}

const TICK: Duration = Duration::from_millis(200);
const BAR: &str = "{prefix} [{bar:30}] {elapsed_precise} {msg}";

impl<'a> Progress<'a> {
    pub(super) fn new(args: &LoadtestArgs, runs: &Runs, stop: &'a Stop) -> Self {
        Self {
            stop,
            shown: !args.quiet && std::io::stderr().is_terminal(),
            all: match runs {
                Runs::Each { loads, repeats } => Some(loads.len() * *repeats as usize),
                Runs::Search { .. } => None,
            },
            begun: 0,
            ticker: None,
        }
    }

    /// Takes the bar off the terminal.
    pub(super) fn clear(&mut self) {
        if let Some(ticker) = self.ticker.take() {
            drop(ticker.end);
            let _ = ticker.thread.join();
        }
    }
}

impl Watcher for Progress<'_> {
    fn begins(&mut self, plan: &RunPlan, live: &Arc<Live>) {
        self.stop.watch(live);
        self.begun += 1;
        if !self.shown {
            return;
        }
        let name = match self.all {
            Some(1) => plan.point.to_string(),
            Some(all) => format!("{}/{all} {}", self.begun, plan.point),
            None => format!("{} {}", self.begun, plan.point),
        };
        self.ticker = Ticker::start(name, plan, live);
    }

    fn ends(&mut self, _: &Run) {
        self.clear();
    }

    fn is_stopped(&self) -> bool {
        self.stop.is_asked()
    }
}

impl Ticker {
    /// `None` where there is no thread for it: the test goes on without.
    fn start(name: String, plan: &RunPlan, live: &Arc<Live>) -> Option<Self> {
        let schedule = Schedule::of(plan).ok()?;
        let of = u64::from(plan.part.of);
        let requests = schedule.requests.map(|all| all.div_ceil(of));
        let length = schedule.length.unwrap_or(Duration::MAX);
        let (end, ended) = channel();
        let live = Arc::clone(live);
        let draw = move || {
            let target = ProgressDrawTarget::stderr();
            let style = ProgressStyle::with_template(BAR);
            let bar = ProgressBar::with_draw_target(Some(1000), target)
                .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
                .with_prefix(name);
            while ended.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                bar.set_position(thousandths(&live, requests, length));
                let now = live.glance();
                bar.set_message(format!(
                    "{} sent, {} under way, {} answered, {} failed",
                    now.sent, now.in_flight, now.answered, now.failed
                ));
            }
            bar.finish_and_clear();
        };
        let thread = thread::Builder::new()
            .name("progress".to_owned())
            .spawn(draw);
        thread.ok().map(|thread| Self { end, thread })
    }
}

/// How far it is: by time or by requests, whichever is farther.
fn thousandths(live: &Live, requests: Option<u64>, length: Duration) -> u64 {
    let now = live.glance();
    let by_count = requests.map_or(0, |all| (now.answered + now.failed) * 1000 / all.max(1));
    let elapsed = live
        .started()
        .map_or(Duration::ZERO, |started| started.elapsed());
    let by_time = match requests {
        Some(_) => 0.0,
        None => elapsed.as_secs_f64() / length.as_secs_f64() * 1000.0,
    };
    by_count.max(by_time as u64).min(1000)
}

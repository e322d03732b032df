//! What the terminal shows while a test goes on. Nothing where there is none, but for how long a start is waited for.

use std::collections::VecDeque;
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tandem_loadtest::Live;
use tandem_loadtest::campaign::{Runs, Watcher};
use tandem_loadtest::plan::RunPlan;
use tandem_loadtest::results::{Place, Run};
use tandem_loadtest::schedule::Schedule;

use super::args::LoadtestArgs;
use super::interrupt::Stop;
use super::view::{self, View};
use crate::console::complain;

/// Follows a test.
pub(super) struct Progress<'a> {
    stop: &'a Stop,
    quiet: bool,
    shown: bool,
    /// With rates and times.
    live: bool,
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

/// One run, for who draws it.
struct Drawn {
    name: String,
    live: Arc<Live>,
    requests: Option<u64>,
    length: Option<Duration>,
}

const TICK: Duration = Duration::from_millis(250);
/// As often as that.
const HZ: u8 = 4;
/// Ticks over which events are counted.
const TICKS: usize = 40;
/// Of a terminal that does not tell its own.
const WIDTH: usize = 80;
const BAR: &str = "{prefix} [{bar:30}] {elapsed_precise} {msg}";

impl<'a> Progress<'a> {
    /// `settings`: for how many of them each run is made.
    pub(super) fn new(args: &LoadtestArgs, runs: &Runs, settings: usize, stop: &'a Stop) -> Self {
        Self {
            stop,
            quiet: args.quiet,
            shown: !args.quiet && std::io::stderr().is_terminal(),
            live: args.live,
            all: runs.count().map(|runs| runs * settings.max(1)),
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
        if !self.quiet
            && let Some(seconds) = until(plan.start_at)
        {
            complain(&format!("starts in {seconds} s"));
        }
        if !self.shown {
            return;
        }
        let place = Place {
            setting: plan.setting.clone(),
            load: plan.point,
        };
        let name = match self.all {
            Some(1) => place.to_string(),
            Some(all) => format!("{}/{all} {place}", self.begun),
            None => format!("{} {place}", self.begun),
        };
        if self.live {
            live.follow();
        }
        let drawn = Drawn::new(name, plan, live);
        self.ticker = drawn.and_then(|drawn| Ticker::start(drawn, self.live));
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
    fn start(drawn: Drawn, live: bool) -> Option<Self> {
        let (end, ended) = channel();
        let draw = move || match live {
            true => drawn.view(&ended),
            false => drawn.bar(&ended),
        };
        let thread = thread::Builder::new()
            .name("progress".to_owned())
            .spawn(draw);
        thread.ok().map(|thread| Self { end, thread })
    }
}

fn goes_on(ended: &Receiver<()>) -> bool {
    ended.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout)
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

impl Drawn {
    fn new(name: String, plan: &RunPlan, live: &Arc<Live>) -> Option<Self> {
        let schedule = Schedule::of(plan).ok()?;
        let of = u64::from(plan.part.of);
        Some(Self {
            name,
            live: Arc::clone(live),
            requests: schedule.requests.map(|all| all.div_ceil(of)),
            length: schedule.length,
        })
    }

    /// One line until the end.
    fn bar(self, ended: &Receiver<()>) {
        let target = ProgressDrawTarget::stderr_with_hz(HZ);
        let bar = ProgressBar::with_draw_target(Some(1000), target)
            .with_style(style(BAR))
            .with_prefix(self.name.clone());
        while goes_on(ended) {
            bar.set_position(self.thousandths());
            let now = self.live.glance();
            bar.set_message(format!(
                "{} sent, {} under way, {} answered, {} failed",
                now.sent, now.in_flight, now.answered, now.failed
            ));
        }
        bar.finish_and_clear();
    }

    /// The view of the last ten seconds until the end.
    fn view(self, ended: &Receiver<()>) {
        let target = ProgressDrawTarget::stderr_with_hz(HZ);
        let bar = ProgressBar::with_draw_target(None, target).with_style(style("{msg}"));
        let mut ticks: VecDeque<(Instant, u64)> = VecDeque::new();
        while goes_on(ended) {
            let (now, whole) = (Instant::now(), self.live.glance());
            let (since, before) = *ticks.front().unwrap_or(&(now, whole.events));
            ticks.push_back((now, whole.events));
            if ticks.len() > TICKS {
                ticks.pop_front();
            }
            let span_s = (now - since).as_secs_f64().max(f64::MIN_POSITIVE);
            let lately = self.live.lately();
            let started = self.live.started();
            let view = View {
                name: &self.name,
                thousandths: self.thousandths(),
                elapsed: started.map_or(Duration::ZERO, |started| started.elapsed()),
                length: self.length,
                whole,
                peak_in_flight: self.live.peak_in_flight(),
                events_per_s: (whole.events - before) as f64 / span_s,
                lately: lately.as_ref(),
            };
            bar.set_message(view::lines(&view, width()).join("\n"));
        }
        bar.finish_and_clear();
    }

    /// How far it is: by time or by requests, whichever is farther.
    fn thousandths(&self) -> u64 {
        let now = self.live.glance();
        let done = (now.answered + now.failed) * 1000;
        let by_count = self.requests.map_or(0, |all| done / all.max(1));
        let elapsed = self
            .live
            .started()
            .map_or(Duration::ZERO, |started| started.elapsed());
        let by_time = match (self.requests, self.length) {
            (None, Some(length)) => elapsed.as_secs_f64() / length.as_secs_f64() * 1000.0,
            _ => 0.0,
        };
        by_count.max(by_time as u64).min(1000)
    }
}

/// Whole seconds until a start that is far enough for somebody to wonder.
fn until(start: Option<SystemTime>) -> Option<u64> {
    let left = start?.duration_since(SystemTime::now()).ok()?;
    (left >= AT_ONCE).then(|| left.as_secs_f64().round() as u64)
}

/// A start that is closer is not told.
const AT_ONCE: Duration = Duration::from_secs(1);

/// Columns of the terminal.
fn width() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stderr());
    size.map_or(WIDTH, |size| usize::from(size.ws_col).max(1))
}

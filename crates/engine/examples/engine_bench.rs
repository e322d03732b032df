//! Prompt and decode speed of the embedded engine.
//!
//! `cargo run --release -p tandem-engine --example engine_bench -- MODEL [THREADS]`
#![expect(clippy::print_stdout, reason = "it prints what it measures")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tandem_core::layout::WorkerLayout;
use tandem_core::{PageIndex, SequenceId};
use tandem_engine::{
    Arenas, Command, EmbeddedEngine, EmbeddedModel, Engine, EngineOptions, Event, ModelOptions,
    Sampling, StepPlan, StepWatch, StopConditions,
};
use tandem_text::TextModel;
use tokio::sync::mpsc::{Receiver, channel};

struct Unwatched;

impl StepWatch for Unwatched {
    fn step_planned(&mut self, _: StepPlan) {}
}

struct Bench {
    engine: EmbeddedEngine,
    events: Receiver<Event>,
    next: u64,
    page_tokens: usize,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let path = PathBuf::from(args.next().ok_or("usage: engine_bench MODEL [THREADS]")?);
    let threads = args.next().map(|n| n.parse()).transpose()?;
    let start = Instant::now();
    let model = EmbeddedModel::load(&path, ModelOptions::default())?;
    println!(
        "{} loaded in {:.1?}",
        model.describe().model,
        start.elapsed()
    );
    for threads in threads.map_or_else(|| vec![1, 2], |n: usize| vec![n]) {
        run(&model, &path, threads)?;
    }
    Ok(())
}

fn run(
    model: &EmbeddedModel,
    path: &Path,
    threads: usize,
) -> Result<(), Box<dyn std::error::Error>> {
    let text = Arc::new(TextModel::load(path)?);
    let layout = WorkerLayout::tensor_parallel(model.geometry(), 1024, 1)?;
    let arenas = Arenas::create("engine-bench", Arc::new(layout))?;
    let (sender, events) = channel(1024);
    let options = EngineOptions {
        threads,
        ..EngineOptions::new(arenas, text)
    };
    let engine = EmbeddedEngine::start(model.clone(), options, Box::new(Unwatched), sender)?;
    let page_tokens = usize::from(model.geometry().page_tokens);
    let mut bench = Bench {
        engine,
        events,
        next: 0,
        page_tokens,
    };
    println!("threads {threads}");
    bench.prefill(64);
    for tokens in [128, 512, 2000] {
        let best = Cost::best(3, || bench.prefill(tokens));
        best.print(&format!("prefill {tokens:5} tokens     "), tokens);
    }
    for streams in [1, 4] {
        for context in [16, 512, 2000] {
            let tokens = 64;
            let best = Cost::best(2, || bench.decode(streams, context, tokens));
            best.print(
                &format!("decode {streams} x context {context:5}"),
                streams * tokens,
            );
        }
    }
    Ok(())
}

/// Wall time, and processor time of all threads: on a busy machine only the second says much.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
struct Cost {
    wall: Duration,
    cpu: Duration,
}

impl Cost {
    fn of(work: impl FnOnce()) -> Self {
        let (start, cpu) = (Instant::now(), cpu_time());
        work();
        Self {
            wall: start.elapsed(),
            cpu: cpu_time().saturating_sub(cpu),
        }
    }

    fn best(rounds: usize, mut work: impl FnMut() -> Self) -> Self {
        let all: Vec<Self> = (0..rounds).map(|_| work()).collect();
        let wall = all.iter().map(|c| c.wall).min().unwrap_or_default();
        Self {
            wall,
            cpu: all.iter().map(|c| c.cpu).min().unwrap_or_default(),
        }
    }

    fn print(self, what: &str, tokens: usize) {
        let rate = |time: Duration| tokens as f64 / time.as_secs_f64();
        println!(
            "  {what}: {:7.1} tokens/s, {:7.1} per second of processor time",
            rate(self.wall),
            rate(self.cpu)
        );
    }
}

/// User and system time of this process, in steps of 10 ms.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace();
    let ticks: u64 = fields
        .skip(11)
        .take(2)
        .filter_map(|n| n.parse::<u64>().ok())
        .sum();
    Duration::from_millis(ticks * 10)
}

impl Bench {
    fn submit(&self, command: Command) {
        assert!(
            self.engine.submit(command).is_ok(),
            "the engine takes no command"
        );
    }

    fn event(&mut self) -> Event {
        self.events.blocking_recv().expect("the engine has died")
    }

    fn id(&mut self) -> SequenceId {
        self.next += 1;
        SequenceId(self.next)
    }

    fn pages(&self, lane: usize, tokens: usize) -> Arc<[PageIndex]> {
        let first = (lane * 200) as u32;
        (first..first + tokens.div_ceil(self.page_tokens) as u32)
            .map(PageIndex)
            .collect()
    }

    fn prefill(&mut self, tokens: usize) -> Cost {
        let sequence = self.id();
        let prompt = prompt(tokens + 1);
        let pages = self.pages(0, tokens);
        Cost::of(|| {
            self.submit(Command::Prefill {
                sequence,
                tokens: prompt,
                pages,
                cached: 0,
            });
            assert!(
                matches!(self.event(), Event::Prefilled { .. }),
                "the prompt was not computed"
            );
        })
    }

    fn decode(&mut self, streams: usize, context: usize, tokens: usize) -> Cost {
        let mut ids = Vec::new();
        for lane in 0..streams {
            let sequence = self.id();
            let pages = self.pages(lane, context + tokens);
            let stop = StopConditions {
                ignore_eos: true,
                ..StopConditions::after(tokens as u32)
            };
            let tokens = prompt(context);
            self.submit(Command::Admit {
                sequence,
                tokens,
                generated: 0,
                pages,
                sampling: Sampling::GREEDY,
                stop,
            });
            ids.push(sequence);
        }
        Cost::of(|| {
            for sequence in ids {
                self.submit(Command::MakeReady {
                    sequence,
                    context: true,
                });
            }
            let mut ended = 0;
            while ended < streams {
                match self.event() {
                    Event::Finished { .. } => ended += 1,
                    Event::Token { .. } => {}
                    other => panic!("{other:?}"),
                }
            }
        })
    }
}

fn prompt(tokens: usize) -> Arc<[u32]> {
    (0..tokens as u32).map(|i| 100 + i * 37 % 20_000).collect()
}

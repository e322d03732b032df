//! A server, a harness and a plan.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tandem_loadtest::body::{Api, Asking};
use tandem_loadtest::known_server::{Asked, Behaviour, KnownServer, Note, Script};
use tandem_loadtest::plan::{Bounds, Load, Margin, RunPlan};
use tandem_loadtest::record::Record;
use tandem_loadtest::results::{LoadPoint, Part, Run};
use tandem_loadtest::slo::Slos;
use tandem_loadtest::workload::{Class, Source, Speech, Synthetic, Think, Workload};
use tandem_loadtest::{Harness, Live, StartError, Target};
use tokio::runtime::Runtime;

pub(crate) const MODEL: &str = "known";

/// A server on a runtime of its own.
pub(crate) struct Server {
    pub(crate) runtime: Runtime,
    pub(crate) known: KnownServer,
}

pub(crate) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(crate) const SCRIPT: Script = Script {
    first: ms(20),
    gap: ms(5),
    tokens: 4,
    tokens_per_event: 1,
    fault: None,
};

pub(crate) fn behaviour(answer: impl Fn(&Asked) -> Script + Send + Sync + 'static) -> Behaviour {
    Behaviour {
        models: vec![MODEL.to_owned()],
        key: None,
        chunk_usage: true,
        notes: true,
        answer: Box::new(answer),
    }
}

impl Server {
    pub(crate) fn start(behaviour: Behaviour) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let known = runtime
            .block_on(KnownServer::start("127.0.0.1:0", behaviour))
            .unwrap();
        Self { runtime, known }
    }

    pub(crate) fn answering(answer: impl Fn(&Asked) -> Script + Send + Sync + 'static) -> Self {
        Self::start(behaviour(answer))
    }

    pub(crate) fn target(&self) -> Target {
        target(&format!("http://{}", self.known.address()))
    }

    pub(crate) fn harness(&self) -> Result<Harness, StartError> {
        Harness::start(self.target(), Api::Chat, None)
    }

    pub(crate) fn notes(&self) -> Vec<Note> {
        self.known.notes()
    }

    /// All notes, once those of all whole answers are among them: one is noted after its last byte was written.
    pub(crate) fn notes_of(&self, records: &[Record]) -> Vec<Note> {
        let until = Instant::now() + Duration::from_secs(10);
        loop {
            let notes = self.notes();
            let noted: HashSet<&str> = notes.iter().map(|note| note.request_id.as_str()).collect();
            let mut answered = records.iter().filter(|record| record.failure.is_none());
            if answered.all(|record| noted.contains(record.request_id.as_str())) {
                return notes;
            }
            assert!(Instant::now() < until, "an answer was never noted");
            std::thread::yield_now();
        }
    }
}

pub(crate) fn target(url: &str) -> Target {
    Target {
        url: url.parse().unwrap(),
        key: None,
        headers: Vec::new(),
        http2: false,
        ca: None,
    }
}

pub(crate) fn open(curve: &str, process: &str) -> Load {
    Load::Open {
        curve: curve.parse().unwrap(),
        process: process.parse().unwrap(),
    }
}

pub(crate) fn closed(concurrency: u32) -> Load {
    Load::Closed {
        concurrency,
        ramp: Duration::ZERO,
    }
}

pub(crate) fn synthetic(turns: &str, think: &str) -> Workload {
    let class = Class {
        name: "default".to_owned(),
        share: 1.0,
        input: "8".parse().unwrap(),
        output: "4".parse().unwrap(),
    };
    Workload {
        seed: 5,
        renewed: 0,
        speech: Arc::new(Speech::Words),
        source: Arc::new(Source::Synthetic(Synthetic {
            classes: vec![class],
            prefix: None,
            turns: turns.parse().unwrap(),
            think: think.parse::<Think>().unwrap(),
        })),
        max_context: None,
        chat: true,
    }
}

pub(crate) fn plan(harness: &Harness, load: Load, workload: Workload) -> RunPlan {
    RunPlan {
        load,
        point: LoadPoint::Rate(1.0),
        setting: None,
        repeat: 1,
        workload: Arc::new(workload),
        asking: Asking {
            api: Api::Chat,
            model: harness.model().to_owned(),
            usage: harness.usage(),
            ignore_eos: false,
            extra: serde_json::Map::new(),
        },
        class_header: None,
        session_header: None,
        slos: Slos::default(),
        requests: None,
        duration: None,
        warm_up: Margin::None,
        cool_down: Margin::None,
        timeout: Duration::from_secs(20),
        max_in_flight: 500,
        part: Part { number: 1, of: 1 },
        start_at: None,
        bounds: Bounds::default(),
    }
}

/// A run that is over: its results, its records by number, and when it started.
pub(crate) struct Done {
    pub(crate) run: Run,
    pub(crate) records: Vec<Record>,
    pub(crate) live: Arc<Live>,
}

pub(crate) fn run(harness: &Harness, plan: &RunPlan) -> Done {
    run_with(harness, plan, Arc::default())
}

pub(crate) fn run_with(harness: &Harness, plan: &RunPlan, live: Arc<Live>) -> Done {
    let mut lines: Vec<u8> = Vec::new();
    let run = harness.run(plan, &live, Some(&mut lines)).unwrap();
    let lines = String::from_utf8(lines).unwrap();
    let mut records: Vec<Record> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    records.sort_by_key(|record| (record.index, record.turn));
    Done { run, records, live }
}

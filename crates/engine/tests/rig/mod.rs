//! One engine on an arena of its own, driven step by step from a test.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;

use tandem_core::flow::flows;
use tandem_core::geometry::KvOrder;
use tandem_core::layout::WorkerLayout;
use tandem_core::plan::{Side, grain, templates, travelling};
use tandem_core::{PageIndex, SequenceId};
use tandem_engine::testing::TinyLlama;
use tandem_engine::{
    Arenas, Command, Elapsed, EmbeddedEngine, EmbeddedModel, Engine, EngineOptions, Event,
    FinishReason, Grammars, JumpClock, ModelOptions, Sampling, StepPlan, StepWatch, StopConditions,
    TimedEngine, TimedModel, TimedModelOptions, TimedOptions, TokenLogprob,
};
use tandem_text::TextModel;
use tandem_timing::Profile;
use tokio::sync::mpsc::{Receiver, channel};

pub(crate) const GREEDY: Sampling = Sampling::GREEDY;

/// The real model's file, which `make test` fetches.
pub(crate) fn real_model() -> PathBuf {
    let home = std::env::var_os("HOME")
        .map(PathBuf::from)
        .unwrap_or_default();
    let cached = home.join(".cache/tandem/models/SmolLM2-135M-Instruct.Q4_1.gguf");
    let path = std::env::var_os("TANDEM_TEST_MODEL").map_or(cached, PathBuf::from);
    assert!(
        path.exists(),
        "test model {} is missing: run `make test`, which fetches it, or set TANDEM_TEST_MODEL",
        path.display()
    );
    path
}

pub(crate) fn stop_after(max_tokens: u32) -> StopConditions {
    StopConditions::after(max_tokens)
}

pub(crate) fn prompt(seed: u32, tokens: usize) -> Vec<u32> {
    (0..tokens as u32)
        .map(|i| (i * i * 31 + seed * 17 + i) % 256)
        .collect()
}

pub(crate) fn on(max_tokens: u32) -> StopConditions {
    StopConditions {
        ignore_eos: true,
        ..stop_after(max_tokens)
    }
}

/// An engine of a tiny random model.
pub(crate) fn tiny(pages: u32, adjust: impl FnOnce(&mut EngineOptions)) -> Rig {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.gguf");
    TinyLlama::default().write_gguf(&path).unwrap();
    Rig::new(&path, pages, adjust)
}

pub(crate) struct Plans(mpsc::Sender<StepPlan>);

impl StepWatch for Plans {
    fn step_planned(&mut self, plan: StepPlan) {
        self.0.send(plan).unwrap();
    }
}

/// What a sequence generated.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Answer {
    pub(crate) tokens: Vec<u32>,
    pub(crate) text: String,
    /// The text that came with each token.
    pub(crate) pieces: Vec<String>,
    pub(crate) reason: Option<FinishReason>,
    pub(crate) stop_text: Option<String>,
    pub(crate) logprobs: Vec<Vec<TokenLogprob>>,
    /// What a draft head proposed, and how much of it was right.
    pub(crate) verified: Vec<(Vec<u32>, u32)>,
}

pub(crate) struct Rig {
    pub(crate) engine: Box<dyn Engine>,
    pub(crate) events: Receiver<Event>,
    pub(crate) plans: mpsc::Receiver<StepPlan>,
    pub(crate) arenas: Arenas,
    pub(crate) text: Arc<TextModel>,
    next: u64,
}

impl Rig {
    pub(crate) fn new(path: &Path, pages: u32, adjust: impl FnOnce(&mut EngineOptions)) -> Self {
        Self::sharded(path, pages, (1, ModelOptions::default()), adjust)
    }

    /// With so many tensor-parallel ranks.
    pub(crate) fn sharded(
        path: &Path,
        pages: u32,
        (ranks, model): (u16, ModelOptions),
        adjust: impl FnOnce(&mut EngineOptions),
    ) -> Self {
        let model = EmbeddedModel::load(path, model).unwrap();
        Self::of(model, path, pages, ranks, adjust)
    }

    /// A loaded model, with the tokenizer of this file.
    pub(crate) fn of(
        model: EmbeddedModel,
        path: &Path,
        pages: u32,
        ranks: u16,
        adjust: impl FnOnce(&mut EngineOptions),
    ) -> Self {
        let text = Arc::new(TextModel::load(path).unwrap());
        let layout = model.layout(pages, ranks).unwrap();
        let arenas = Arenas::create("test", Arc::new(layout)).unwrap();
        let mut options = EngineOptions::new(arenas.clone(), text.clone());
        options.threads = 2;
        adjust(&mut options);
        let (sender, events) = channel(4096);
        let (plan_sender, plans) = mpsc::channel();
        let watch = Box::new(Plans(plan_sender));
        let engine = EmbeddedEngine::start(model, options, watch, sender).unwrap();
        Self {
            engine: Box::new(engine),
            events,
            plans,
            arenas,
            text,
            next: 0,
        }
    }

    /// An engine that takes the time of a profile, on a clock that jumps: and that clock's time.
    pub(crate) fn timed(
        profile: Profile,
        (pages, page_tokens, ranks): (u32, u16, u16),
        adjust: impl FnOnce(&mut TimedOptions),
    ) -> (Self, Elapsed) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tiny.gguf");
        TinyLlama::default().write_gguf(&path).unwrap();
        let text = Arc::new(TextModel::load(&path).unwrap());
        let model = TimedModelOptions {
            page_tokens,
            kv_order: KvOrder::Together,
            entry_bytes: 4,
            name: None,
        };
        let model = TimedModel::new(profile, &text, model).unwrap();
        let layout = model.layout(pages, ranks).unwrap();
        let arenas = Arenas::create("test", Arc::new(layout)).unwrap();
        let clock = JumpClock::default();
        let elapsed = clock.elapsed();
        let mut options = TimedOptions {
            arenas: arenas.clone(),
            chunk_tokens: 512,
            max_batch: 64,
            max_sequences: 1024,
            pushes: false,
            clock: Box::new(clock),
            grammars: Arc::new(Grammars::new(Arc::clone(&text))),
            text: Arc::clone(&text),
        };
        adjust(&mut options);
        let (sender, events) = channel(4096);
        let (plan_sender, plans) = mpsc::channel();
        let watch = Box::new(Plans(plan_sender));
        let engine = TimedEngine::start(model, options, watch, sender).unwrap();
        let rig = Self {
            engine: Box::new(engine),
            events,
            plans,
            arenas,
            text,
            next: 0,
        };
        (rig, elapsed)
    }

    pub(crate) fn id(&mut self) -> SequenceId {
        self.next += 1;
        SequenceId(self.next)
    }

    pub(crate) fn submit(&self, command: Command) {
        self.engine
            .submit(command)
            .expect("the engine takes commands");
    }

    pub(crate) fn event(&mut self) -> Event {
        self.events.blocking_recv().expect("the engine lives")
    }

    /// `count` pages from number `first` on.
    pub(crate) fn pages(first: u32, count: u32) -> Arc<[PageIndex]> {
        (first..first + count).map(PageIndex).collect()
    }

    pub(crate) fn pages_for(&self, first: u32, tokens: usize) -> Arc<[PageIndex]> {
        Self::pages(
            first,
            self.arenas.layout().geometry().pages_for(tokens) as u32,
        )
    }

    pub(crate) fn prefill(&mut self, tokens: &[u32], pages: Arc<[PageIndex]>) {
        let sequence = self.id();
        self.submit(Command::Prefill {
            sequence,
            tokens: tokens.into(),
            pages,
            cached: 0,
        });
        assert_eq!(self.event(), Event::Prefilled { sequence });
    }

    /// Admits a sequence and makes it ready at once.
    pub(crate) fn start(
        &mut self,
        tokens: &[u32],
        generated: u32,
        pages: Arc<[PageIndex]>,
        sampling: Sampling,
        stop: StopConditions,
    ) -> SequenceId {
        let sequence = self.id();
        let tokens = tokens.into();
        self.submit(Command::Admit {
            sequence,
            tokens,
            generated,
            pages,
            sampling,
            stop,
        });
        self.submit(Command::MakeReady {
            sequence,
            context: true,
        });
        sequence
    }

    /// Collects the answers of these sequences until all have finished.
    pub(crate) fn answers(&mut self, ids: &[SequenceId]) -> Vec<Answer> {
        let mut answers: Vec<Answer> = ids.iter().map(|_| Answer::default()).collect();
        while answers.iter().any(|a| a.reason.is_none()) {
            let event = self.event();
            let (Event::Token { sequence, .. }
            | Event::Verified { sequence, .. }
            | Event::Finished { sequence, .. }) = event
            else {
                panic!("{event:?}");
            };
            let answer = &mut answers[ids.iter().position(|id| *id == sequence).unwrap()];
            assert_eq!(answer.reason, None, "an event after the end");
            match event {
                Event::Token {
                    token,
                    text,
                    logprobs,
                    ..
                } => {
                    answer.tokens.push(token);
                    answer.text += &text;
                    answer.pieces.push(text);
                    answer.logprobs.push(logprobs);
                }
                Event::Finished {
                    text,
                    reason,
                    stop_text,
                    ..
                } => {
                    answer.stop_text = stop_text;
                    answer.text += &text;
                    answer.reason = Some(reason);
                }
                Event::Verified {
                    proposed, accepted, ..
                } => answer.verified.push((proposed, accepted)),
                _ => unreachable!(),
            }
        }
        answers
    }

    /// Prefills and generates in pages from `first` on.
    pub(crate) fn generate(
        &mut self,
        tokens: &[u32],
        first: u32,
        sampling: Sampling,
        stop: StopConditions,
    ) -> Answer {
        let pages = self.pages_for(first, tokens.len() + stop.max_tokens as usize);
        self.prefill(tokens, pages.clone());
        let id = self.start(tokens, 0, pages, sampling, stop);
        self.answers(&[id]).remove(0)
    }
}

/// What a transfer does: carries out the plan, from arenas to arenas.
pub(crate) fn push(source: &Rig, from: &[PageIndex], target: &Rig, to: &[PageIndex]) {
    let (sl, tl) = (source.arenas.layout(), target.arenas.layout());
    let (sp, tp) = (sl.geometry().page_tokens, tl.geometry().page_tokens);
    let room = |pages: &[PageIndex], tokens: u16| pages.len() as u32 * u32::from(tokens);
    let tokens = travelling(0, room(from, sp).min(room(to, tp)), grain(sp, tp));
    let first = |l: &WorkerLayout, s: u16| l.shards()[usize::from(s)].heads.start;
    for flow in flows((sl, 0), (tl, 0), 5).unwrap() {
        let (sa, ta) = (sl.arena(flow.source), tl.arena(flow.target));
        let side = |arena, pages, first| Side {
            arena,
            pages,
            from: 0,
            head: flow.heads.start - first,
        };
        if flow.context {
            let (from, to) = (from[from.len() - 1], to[to.len() - 1]);
            let mut bytes = vec![0; sl.geometry().context_bytes as usize];
            let memory = source.arenas.memory(usize::from(flow.source));
            memory.read(sa.context(from), &mut bytes);
            let memory = target.arenas.memory(usize::from(flow.target));
            memory.write(ta.context(to), &bytes);
        }
        let writes = templates(
            side(&sa, from, first(sl, flow.source)),
            side(&ta, to, first(tl, flow.target)),
            flow.heads.len() as u16,
            tokens.clone(),
            1 << 20,
        );
        for layer in 0..usize::from(sl.geometry().layers) {
            for write in &writes {
                let mut bytes = vec![0; write.bytes as usize];
                let at = write.source as usize + layer * sa.layer_bytes();
                let memory = source.arenas.memory(usize::from(flow.source));
                memory.read(at, &mut bytes);
                let at = write.target as usize + layer * ta.layer_bytes();
                let memory = target.arenas.memory(usize::from(flow.target));
                memory.write(at, &bytes);
            }
        }
    }
}

//! One engine on an arena of its own, driven step by step from a test.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;

use tandem_core::layout::WorkerLayout;
use tandem_core::{PageIndex, SequenceId};
use tandem_engine::{
    Arenas, Command, EmbeddedEngine, EmbeddedModel, Engine, EngineOptions, Event, FinishReason,
    ModelOptions, Sampling, StepPlan, StepWatch, StopConditions, TokenLogprob,
};
use tandem_text::TextModel;
use tokio::sync::mpsc::{Receiver, channel};

pub(crate) const GREEDY: Sampling = Sampling {
    temperature: 0.0,
    top_p: 1.0,
    top_k: 0,
    seed: 0,
    logprobs: None,
};

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
    StopConditions {
        max_tokens,
        stop: Vec::new(),
        ignore_eos: false,
    }
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
    pub(crate) reason: Option<FinishReason>,
    pub(crate) logprobs: Vec<Vec<TokenLogprob>>,
}

pub(crate) struct Rig {
    pub(crate) engine: EmbeddedEngine,
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
        let text = Arc::new(TextModel::load(path).unwrap());
        let layout = WorkerLayout::tensor_parallel(model.geometry(), pages, ranks).unwrap();
        let arenas = Arenas::create("test", Arc::new(layout)).unwrap();
        let mut options = EngineOptions::new(arenas.clone(), text.clone());
        options.threads = 2;
        adjust(&mut options);
        let (sender, events) = channel(4096);
        let (plan_sender, plans) = mpsc::channel();
        let watch = Box::new(Plans(plan_sender));
        let engine = EmbeddedEngine::start(model, options, watch, sender).unwrap();
        Self {
            engine,
            events,
            plans,
            arenas,
            text,
            next: 0,
        }
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
        self.submit(Command::MakeReady { sequence });
        sequence
    }

    /// Collects the answers of these sequences until all have finished.
    pub(crate) fn answers(&mut self, ids: &[SequenceId]) -> Vec<Answer> {
        let mut answers: Vec<Answer> = ids.iter().map(|_| Answer::default()).collect();
        while answers.iter().any(|a| a.reason.is_none()) {
            let event = self.event();
            let (Event::Token { sequence, .. } | Event::Finished { sequence, .. }) = event else {
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
                    answer.logprobs.push(logprobs);
                }
                Event::Finished { text, reason, .. } => {
                    answer.text += &text;
                    answer.reason = Some(reason);
                }
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

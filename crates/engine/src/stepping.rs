//! The thread of an engine: commands in, one step after the other, events out.
//!
//! Owns what every engine does alike: taking commands, batching ([`batch`]), choosing tokens and their
//! text, constraints, ends. What a step computes, and where a token's logits come from, is a
//! [`Compute`]'s.

pub(crate) mod batch;
mod constraints;
mod growing;
pub(crate) mod sampling;
pub(crate) mod sequence;
mod steps;

use std::ops::Range;
use std::sync::Arc;

use crossbeam_channel::{Sender as CommandSender, TrySendError, bounded};
use tandem_constraint::Grammars;
use tandem_text::TextModel;
use tokio::sync::mpsc::Sender;

use crate::{Command, EngineDescription, Event, Progress, StepWatch};
use batch::{Batch, Plan, StepLimits};
use constraints::Compiler;
use sampling::Choice;
use sequence::{DecodeSequence, Limits};
use steps::Steps;
use tandem_core::layout::WorkerLayout;

/// Commands that wait for a step's border, at most.
const QUEUE: usize = 1024;

/// What computes steps.
pub(crate) trait Compute: Send + 'static {
    /// What it keeps for a prompt.
    type Prompt: Default + Send;
    /// What it keeps for a sequence that generates.
    type Answer: Default + Send;

    /// The KV entries of all tokens but the last are in the pages, and the `context` in its slot or not.
    fn make_ready(
        &mut self,
        sequence: &mut DecodeSequence<Self::Answer>,
        limits: &Limits,
        context: bool,
    );

    /// Runs a step. Where it holds prompts' tokens, `progress` is bumped as [`Progress`] says.
    fn run(
        &mut self,
        batch: &mut Batch<Self::Prompt, Self::Answer>,
        plan: &Plan,
        progress: &Progress,
    );

    /// Computes what the constraints of these sequences allow next, ahead of choosing.
    fn look_ahead(&self, _: &mut [DecodeSequence<Self::Answer>], _: &[usize]) {}

    /// Guesses that the step ran behind a sequence's last token, each in a row of its own.
    fn proposed(&self, _: &mut DecodeSequence<Self::Answer>) -> Vec<u32> {
        Vec::new()
    }

    /// The token that follows the one of a row. Rows are those of the step's decoding sequences: each
    /// one's last token, then its guesses.
    fn choose(&mut self, row: usize, sequence: &mut DecodeSequence<Self::Answer>) -> Choice;

    /// The logits of a row.
    fn logits(&mut self, row: usize) -> &[f32];

    /// These rows' tokens, of this sequence, are kept.
    fn keep(&self, _: Range<usize>, _: &mut DecodeSequence<Self::Answer>) {}

    /// These sequences end.
    fn finish(&mut self, _: &[DecodeSequence<Self::Answer>], _: &[(usize, Event)]) {}
}

/// What an engine's thread runs on, but for what computes.
pub(crate) struct Parts {
    pub(crate) description: EngineDescription,
    pub(crate) layout: Arc<WorkerLayout>,
    pub(crate) limits: StepLimits,
    pub(crate) text: Arc<TextModel>,
    pub(crate) grammars: Arc<Grammars>,
}

/// A running thread. Dropping it ends the thread at the next step's border, without waiting for it.
#[derive(Debug)]
pub(crate) struct EngineThread {
    description: EngineDescription,
    commands: CommandSender<Command>,
    progress: Arc<Progress>,
}

impl EngineThread {
    /// Starts the thread `tandem-engine`.
    pub(crate) fn start<C: Compute>(
        compute: C,
        parts: Parts,
        watch: Box<dyn StepWatch>,
        events: Sender<Event>,
    ) -> Result<Self, StartError> {
        parts.limits.check()?;
        let progress = Arc::new(Progress::create()?);
        let (commands, queue) = bounded(QUEUE);
        let compiler = Compiler::start(Arc::clone(&parts.grammars))?;
        let description = parts.description.clone();
        let told = (Arc::clone(&progress), watch, events);
        let steps = Steps::new(compute, parts, compiler, told);
        std::thread::Builder::new()
            .name("tandem-engine".to_owned())
            .spawn(move || steps.run(queue))
            .map_err(|e| StartError::Threads(e.to_string()))?;
        Ok(Self {
            description,
            commands,
            progress,
        })
    }

    pub(crate) const fn describe(&self) -> &EngineDescription {
        &self.description
    }

    #[allow(
        clippy::result_large_err,
        reason = "the error is the command itself, moved back"
    )]
    pub(crate) fn submit(&self, command: Command) -> Result<(), Command> {
        let sent = self.commands.try_send(command);
        sent.map_err(TrySendError::into_inner)
    }

    pub(crate) fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.progress)
    }
}

impl StepLimits {
    fn check(&self) -> Result<(), StartError> {
        let limits = [
            ("chunk_tokens", self.chunk_tokens as usize),
            ("max_batch", self.max_batch),
            ("max_sequences", self.max_sequences),
        ];
        match limits.iter().find(|(_, limit)| *limit == 0) {
            Some((name, _)) => Err(StartError::Zero(name)),
            None => Ok(()),
        }
    }
}

/// Why an engine could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The arena was laid out for another model.
    #[error("the arena is laid out for {arena}, the model needs {model}")]
    Geometry {
        /// The arena's.
        arena: String,
        /// The model's.
        model: String,
    },
    /// A limit of 0 lets nothing run.
    #[error("{0} must be at least 1")]
    Zero(&'static str),
    /// There is no memory for the progress counter.
    #[error(transparent)]
    Memory(#[from] tandem_memory::CreateError),
    /// The system gave no thread.
    #[error("cannot start the engine's threads: {0}")]
    Threads(String),
}

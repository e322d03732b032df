//! The embedded engine: a thread that runs steps of a model over pages of an arena.

mod constraints;
mod drafting;
mod growing;
mod sampling;
mod sequence;
mod steps;

use std::sync::Arc;

use crossbeam_channel::{Sender as CommandSender, TrySendError, bounded};
use tandem_constraint::Grammars;

use tandem_text::TextModel;
use tokio::sync::mpsc::Sender;

use crate::{
    Arenas, Command, EmbeddedModel, Engine, EngineDescription, Event, Progress, StepWatch,
};
use constraints::Compiler;
use steps::Steps;

/// Tokens that a draft head may propose for one step, at most.
pub const MAX_SPECULATIVE_TOKENS: u32 = 16;
/// Commands that wait for a step's border, at most.
const QUEUE: usize = 1024;

/// What an engine runs on.
#[derive(Clone)]
pub struct EngineOptions {
    /// Where KV entries lie; the layout's geometry is the model's.
    pub arenas: Arenas,
    /// Prompt tokens in one step, over all sequences, at most.
    pub chunk_tokens: u32,
    /// Sequences that generate in one step, at most.
    pub max_batch: usize,
    /// Sequences the engine holds, at most.
    pub max_sequences: usize,
    /// Threads that compute.
    pub threads: usize,
    /// Tokens that the model's draft head, where it has one, proposes to each sequence for a step, at
    /// most (and [`MAX_SPECULATIVE_TOKENS`]). The tokens of an answer do not depend on it.
    pub speculative_tokens: u32,
    /// Makes text of tokens.
    pub text: Arc<TextModel>,
    /// Compiles constraints of answers.
    pub grammars: Arc<Grammars>,
}

impl EngineOptions {
    /// Options for some arenas, the rest as it is by default: 512 tokens a step, batches of 64, 1024
    /// sequences, a thread for each core, one speculative token.
    #[must_use]
    pub fn new(arenas: Arenas, text: Arc<TextModel>) -> Self {
        let threads = std::thread::available_parallelism().map_or(1, Into::into);
        Self {
            arenas,
            chunk_tokens: 512,
            max_batch: 64,
            max_sequences: 1024,
            threads,
            speculative_tokens: 1,
            grammars: Arc::new(Grammars::new(Arc::clone(&text))),
            text,
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

/// A running engine with a model of its own.
///
/// Dropping it ends its thread at the next step's border, without waiting for it; sequences that
/// are still in it get no further event. If its thread panics, the event channel closes and
/// [`Engine::submit`] gives commands back.
#[derive(Debug)]
pub struct EmbeddedEngine {
    description: EngineDescription,
    commands: CommandSender<Command>,
    progress: Arc<Progress>,
}

impl EmbeddedEngine {
    /// Starts the thread `tandem-engine` and `threads` threads that compute for it.
    pub fn start(
        model: EmbeddedModel,
        options: EngineOptions,
        watch: Box<dyn StepWatch>,
        events: Sender<Event>,
    ) -> Result<Self, StartError> {
        check(&model, &options)?;
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(options.threads)
            .thread_name(|index| format!("tandem-math-{index}"))
            .build()
            .map_err(|e| StartError::Threads(e.to_string()))?;
        let description = model.describe();
        let progress = Arc::new(Progress::create()?);
        let (commands, queue) = bounded(QUEUE);
        let compiler = Compiler::start(Arc::clone(&options.grammars), options.max_sequences)?;
        let tools = (pool, compiler);
        let steps = Steps::new(model, options, tools, progress.clone(), watch, events);
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
}

fn check(model: &EmbeddedModel, options: &EngineOptions) -> Result<(), StartError> {
    let geometry = options.arenas.layout().geometry();
    if *geometry != model.geometry() {
        return Err(StartError::Geometry {
            arena: geometry.to_string(),
            model: model.geometry().to_string(),
        });
    }
    let limits = [
        ("chunk_tokens", options.chunk_tokens as usize),
        ("max_batch", options.max_batch),
        ("max_sequences", options.max_sequences),
        ("threads", options.threads),
    ];
    match limits.iter().find(|(_, limit)| *limit == 0) {
        Some((name, _)) => Err(StartError::Zero(name)),
        None => Ok(()),
    }
}

impl Engine for EmbeddedEngine {
    fn describe(&self) -> &EngineDescription {
        &self.description
    }

    fn submit(&self, command: Command) -> Result<(), Command> {
        let sent = self.commands.try_send(command);
        sent.map_err(TrySendError::into_inner)
    }

    fn progress(&self) -> Arc<Progress> {
        self.progress.clone()
    }
}

//! The embedded engine: a thread that runs steps of a model over pages of an arena.

mod compute;
mod drafting;

use std::sync::Arc;

use tandem_constraint::Grammars;
use tandem_text::TextModel;
use tokio::sync::mpsc::Sender;

use crate::stepping::batch::StepLimits;
use crate::stepping::{EngineThread, Parts, StartError};
use crate::{
    Arenas, Command, EmbeddedModel, Engine, EngineDescription, Event, Progress, StepWatch,
};
use compute::Passes;

/// Tokens that a draft head may propose for one step, at most.
pub const MAX_SPECULATIVE_TOKENS: u32 = 16;

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

/// A running engine with a model of its own.
///
/// Dropping it ends its thread at the next step's border, without waiting for it; sequences that
/// are still in it get no further event. If its thread panics, the event channel closes and
/// [`Engine::submit`] gives commands back.
#[derive(Debug)]
pub struct EmbeddedEngine(EngineThread);

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
        let parts = Parts {
            description: model.describe(),
            layout: Arc::clone(options.arenas.layout()),
            limits: StepLimits {
                chunk_tokens: options.chunk_tokens,
                max_batch: options.max_batch,
                max_sequences: options.max_sequences,
            },
            text: options.text,
            grammars: options.grammars,
        };
        let passes = Passes::new(model, options.arenas, pool, options.speculative_tokens);
        EngineThread::start(passes, parts, watch, events).map(Self)
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
    if options.threads == 0 {
        return Err(StartError::Zero("threads"));
    }
    Ok(())
}

impl Engine for EmbeddedEngine {
    fn describe(&self) -> &EngineDescription {
        self.0.describe()
    }

    fn submit(&self, command: Command) -> Result<(), Command> {
        self.0.submit(command)
    }

    fn progress(&self) -> Arc<Progress> {
        self.0.progress()
    }
}

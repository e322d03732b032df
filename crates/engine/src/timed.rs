//! The timed engine: no model, a clock.
//!
//! It takes the time that a model on some GPUs would ([`tandem_timing`]), batches as the embedded engine
//! does, fills pages with bytes that depend on the prompt, and derives its tokens from the bytes that it
//! finds in them. So a byte that is wrong, missing or another request's shows as another token.
//!
//! **Architecture Invariant:** what lies in a page, and what follows from it, depends on tokens and their
//! positions alone: never on pages, chunks, shards, batches or time.

mod clock;
mod compute;
mod entries;
mod words;

use std::sync::Arc;

use sha2::{Digest, Sha256};
use tandem_constraint::Grammars;
use tandem_core::geometry::{KvDtype, KvGeometry, KvOrder};
use tandem_core::layout::{LayoutError, WorkerLayout};
use tandem_text::TextModel;
use tandem_timing::Profile;
use tokio::sync::mpsc::Sender;

use crate::stepping::batch::StepLimits;
use crate::stepping::{EngineThread, Parts, StartError};
use crate::{Arenas, Command, Engine, EngineDescription, Event, Progress, StepWatch};
pub use clock::{Clock, Elapsed, JumpClock, WallClock};
use compute::Timed;
use words::Words;

/// Changes whenever the same tokens come to other bytes or other answers.
const VERSION: u32 = 1;

/// A model and its GPUs, as far as a timed engine knows them.
#[derive(Clone, Debug)]
pub struct TimedModel {
    profile: Profile,
    name: String,
    geometry: KvGeometry,
    vocabulary: u32,
}

/// How pages of a timed engine look, and what its model is called.
#[derive(Clone, Debug)]
pub struct TimedModelOptions {
    /// Tokens in one page.
    pub page_tokens: u16,
    /// Where a layer's keys and values lie.
    pub kv_order: KvOrder,
    /// Bytes of one head's entry of a token in its plane, instead of the model's own: even.
    pub entry_bytes: u16,
    /// The name that clients ask for; `None`: the profile's.
    pub name: Option<String>,
}

/// A profile, tokenizer or page that no timed engine can have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimedModelError {
    /// Entries larger than the model's.
    #[error(
        "entry_bytes is {found}; {model} has entries of {model_bytes}: want an even number up to that"
    )]
    EntryBytes {
        /// Asked for.
        found: u16,
        /// The profile's model.
        model: String,
        /// Its own.
        model_bytes: u16,
    },
    /// A tokenizer without words to say.
    #[error("the tokenizer has no token of printable text")]
    NoWords,
}

impl TimedModel {
    /// A profile's model, that speaks with a tokenizer's tokens.
    pub fn new(
        profile: Profile,
        text: &TextModel,
        options: TimedModelOptions,
    ) -> Result<Self, TimedModelError> {
        let kv = profile.kv;
        let entry = options.entry_bytes;
        let model_bytes = kv.head_dim.saturating_mul(2);
        if entry == 0 || !entry.is_multiple_of(2) || entry > model_bytes {
            return Err(TimedModelError::EntryBytes {
                found: entry,
                model: profile.model,
                model_bytes,
            });
        }
        if Words::of(text).is_none() {
            return Err(TimedModelError::NoWords);
        }
        let geometry = KvGeometry {
            layers: kv.layers,
            kv_heads: kv.heads,
            head_dim: entry / 2,
            page_tokens: options.page_tokens,
            // Numbers of two bytes; nobody calculates with them.
            dtype: KvDtype::F16,
            kind: kv.kind,
            order: options.kv_order,
            context_bytes: 0,
        };
        Ok(Self {
            name: options.name.unwrap_or_else(|| profile.model.clone()),
            vocabulary: text.vocabulary(),
            profile,
            geometry,
        })
    }

    /// What it announces.
    #[must_use]
    pub fn describe(&self) -> EngineDescription {
        let mut sum = Sha256::new();
        let g = &self.geometry;
        // What makes bytes and answers equal; not how long they take, nor how they are paged.
        let same = (g.layers, g.kv_heads, g.head_dim, g.kind, self.vocabulary);
        sum.update(format!("timed {VERSION} {} {same:?}", self.profile.model));
        let digits = sum.finalize();
        EngineDescription {
            model: self.name.clone(),
            fingerprint: digits.iter().map(|byte| format!("{byte:02x}")).collect(),
            context_length: self.profile.context_length,
            vocabulary: self.vocabulary,
            geometry: self.geometry,
            layers: tandem_core::layout::layer_names(self.geometry.layers),
        }
    }

    /// Pages that the profile's GPUs have room for.
    #[must_use]
    pub fn room(&self) -> u32 {
        self.profile.kv.tokens / u32::from(self.geometry.page_tokens.max(1))
    }

    /// Its KV cache, cut for so many ranks.
    pub fn layout(&self, pages: u32, ranks: u16) -> Result<WorkerLayout, LayoutError> {
        WorkerLayout::tensor_parallel(self.geometry, pages, ranks)
    }
}

/// What a timed engine runs on.
pub struct TimedOptions {
    /// Where KV entries lie; the layout's geometry is the model's.
    pub arenas: Arenas,
    /// Prompt tokens in one step, over all sequences, at most.
    pub chunk_tokens: u32,
    /// Sequences that generate in one step, at most.
    pub max_batch: usize,
    /// Sequences the engine holds, at most.
    pub max_sequences: usize,
    /// Whether prompts' pages go to other workers: a layer counts as complete when it has passed the
    /// profile's link.
    pub pushes: bool,
    /// What it waits with.
    pub clock: Box<dyn Clock>,
    /// Makes text of tokens.
    pub text: Arc<TextModel>,
    /// Compiles constraints of answers.
    pub grammars: Arc<Grammars>,
}

/// A running engine without a model; it ends as [`crate::EmbeddedEngine`] does.
#[derive(Debug)]
pub struct TimedEngine(EngineThread);

impl TimedEngine {
    /// Starts the thread `tandem-engine`, which sleeps through most of each step.
    pub fn start(
        model: TimedModel,
        options: TimedOptions,
        watch: Box<dyn StepWatch>,
        events: Sender<Event>,
    ) -> Result<Self, StartError> {
        let arena = options.arenas.layout().geometry();
        let words = Words::of(&options.text);
        if *arena != model.geometry || words.is_none() {
            return Err(StartError::Geometry {
                arena: arena.to_string(),
                model: model.geometry.to_string(),
            });
        }
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
        let words = words.expect("looked at above");
        let timed = Timed::new(
            model.profile,
            options.arenas,
            words,
            options.clock,
            options.pushes,
        );
        EngineThread::start(timed, parts, watch, events).map(Self)
    }
}

impl Engine for TimedEngine {
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

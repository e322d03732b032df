//! What agents and engines say to each other.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tandem_core::geometry::KvGeometry;
use tandem_core::{PageIndex, SequenceId};
use tandem_memory::{CreateError, HostMemory};

use crate::{Sampling, StopConditions};

/// What an engine is, announced when a worker registers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineDescription {
    /// The name clients ask for, such as `SmolLM2-135M-Instruct`.
    pub model: String,
    /// SHA-256 of the weights, in hexadecimal: two workers pair only where it is equal.
    pub fingerprint: String,
    /// Tokens of prompt and answer together.
    pub context_length: u32,
    /// Tokens in the vocabulary.
    pub vocabulary: u32,
    /// Shape of its KV cache.
    pub geometry: KvGeometry,
    /// Names of the layers that have KV entries, in the order in which a step computes them.
    pub layers: Arc<[String]>,
}

/// What an agent asks of an engine. Commands of one sequence are carried out in order.
#[derive(Clone, Debug)]
pub enum Command {
    /// Compute the KV entries of all tokens but the last into `pages`, in order: token `t` lies in
    /// `pages[t / page_tokens]`. Where the geometry has a context, and there is something to compute,
    /// leave the last one's in the context slot of its page (in every shard). Ends with [`Event::Prefilled`], [`Event::Cancelled`] or
    /// [`Event::Failed`]. One token needs no step: it is prefilled at once.
    Prefill {
        /// Which sequence; never used before.
        sequence: SequenceId,
        /// The prompt, at least one token.
        tokens: Arc<[u32]>,
        /// Room for all tokens but the last.
        pages: Arc<[PageIndex]>,
        /// How many tokens' entries are in the pages already, and are not to be written.
        cached: u32,
    },
    /// Get ready to generate, but do not start: the KV entries of all tokens but the last are
    /// still to come. Ends with [`Event::Finished`], [`Event::Cancelled`] or [`Event::Failed`].
    Admit {
        /// Which sequence; never used before.
        sequence: SequenceId,
        /// Prompt, then tokens generated elsewhere (`generated` of them).
        tokens: Arc<[u32]>,
        /// How many of `tokens`, at the end, are an answer begun elsewhere.
        generated: u32,
        /// Room for all tokens and all that may be generated, less one.
        pages: Arc<[PageIndex]>,
        /// How to choose tokens.
        sampling: Sampling,
        /// When to stop.
        stop: StopConditions,
    },
    /// The KV entries of all tokens but the last are in the pages: run the last one as the first
    /// decode step.
    MakeReady {
        /// An admitted sequence.
        sequence: SequenceId,
        /// Whether the context of the last token but one lies in the context slot of its page.
        /// Otherwise the engine computes it, where it needs one.
        context: bool,
    },
    /// Stop a sequence at the next step's border. Answered by [`Event::Cancelled`], unless the
    /// sequence ended before; an unknown sequence is ignored.
    Cancel {
        /// Which sequence.
        sequence: SequenceId,
    },
}

/// A token's log probability.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprob {
    /// Token id.
    pub token: u32,
    /// Its bytes (not always whole characters).
    pub bytes: Vec<u8>,
    /// Natural logarithm of its probability under the model's own distribution (temperature 1,
    /// nothing cut off).
    pub logprob: f32,
}

/// Why a sequence ended well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// An end-of-text token, a stop text, or a constraint that left nothing else to say.
    Stop,
    /// `max_tokens`, or the pages' room.
    Length,
}

/// What an engine reports.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// All tokens but the last have their KV entries; the engine touches the pages no more.
    Prefilled {
        /// Which sequence.
        sequence: SequenceId,
    },
    /// One token was generated.
    Token {
        /// Which sequence.
        sequence: SequenceId,
        /// Its id.
        token: u32,
        /// Text that is now certain: whole characters, none of a possible stop text. May be empty,
        /// may belong to earlier tokens.
        text: String,
        /// Where asked for: the chosen token, then the likeliest ones.
        logprobs: Vec<TokenLogprob>,
    },
    /// A step checked tokens that a draft head had proposed. The tokens themselves are told as any
    /// others are.
    Verified {
        /// Which sequence.
        sequence: SequenceId,
        /// What was proposed, in order.
        proposed: Vec<u32>,
        /// How many of them, from the first on, were what the model itself chose.
        accepted: u32,
    },
    /// The sequence ended; the engine touches its pages no more.
    Finished {
        /// Which sequence.
        sequence: SequenceId,
        /// Text that had been held back.
        text: String,
        /// Why.
        reason: FinishReason,
        /// The stop text that ended it, where one did.
        stop_text: Option<String>,
    },
    /// As asked; the engine touches its pages no more.
    Cancelled {
        /// Which sequence.
        sequence: SequenceId,
    },
    /// The sequence failed; the engine touches its pages no more.
    Failed {
        /// Which sequence.
        sequence: SequenceId,
        /// What went wrong.
        message: String,
    },
}

/// The word in memory that an engine bumps after each layer's attention output projection of a
/// prefill step, and where there is a context once more when that is complete. A watcher thread polls it and may see several bumps at once.
#[derive(Debug)]
pub struct Progress(HostMemory);

impl Progress {
    /// A counter at 0.
    pub fn create() -> Result<Self, CreateError> {
        HostMemory::create("tandem-progress", 4096).map(Self)
    }

    /// The counter in another process's memory, of eight bytes at least.
    #[must_use]
    pub const fn of(memory: HostMemory) -> Self {
        Self(memory)
    }

    /// Its memory, to share it.
    #[must_use]
    pub const fn memory(&self) -> &HostMemory {
        &self.0
    }

    /// Says that one more layer's KV entries of the current step are complete.
    pub fn bump(&self) {
        self.0.counter(0).fetch_add(1, Ordering::Release);
    }

    /// Layers completed since the engine started, over all prefill steps.
    #[must_use]
    pub fn layers(&self) -> u64 {
        self.0.counter(0).load(Ordering::Acquire)
    }
}

/// The prefill part of one step, told before the step runs. Decode-only steps are not told and do
/// not bump the counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepPlan {
    /// [`Progress::layers`] when the step starts; layer `l` is complete at `first_layer + l + 1`, and
    /// the context, where the geometry has one, counts as one layer more.
    pub first_layer: u64,
    /// What the step holds.
    pub items: Vec<StepItem>,
}

/// One sequence's tokens in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepItem {
    /// Which sequence.
    pub sequence: SequenceId,
    /// First token of the chunk.
    pub start: u32,
    /// One past its last token.
    pub end: u32,
    /// Whether this is the sequence's last prefill step.
    pub last: bool,
}

/// Who wants to know of steps before they run. Called on the engine's thread: must not block.
pub trait StepWatch: Send {
    /// A step with prefill tokens is about to run.
    fn step_planned(&mut self, plan: StepPlan);
}

/// A running engine. Dropping it stops its thread at the next step's border.
pub trait Engine: Send + Sync {
    /// What it is.
    fn describe(&self) -> &EngineDescription;

    /// Hands a command over. Never blocks: `Err` gives the command back where the queue is full or
    /// the engine has died.
    #[allow(
        clippy::result_large_err,
        reason = "the error is the command itself, moved back"
    )]
    fn submit(&self, command: Command) -> Result<(), Command>;

    /// The counter of prefill layers.
    fn progress(&self) -> Arc<Progress>;
}

//! An engine that takes a profile's time: which sequences it holds, and its steps.

use std::collections::VecDeque;
use std::time::Duration;

use tandem_core::SequenceId;
use tandem_core::batching::{Step, StepBounds, next_step, served_to_the_back};
use tandem_timing::Work;

use crate::plan::{Pool, Transfer};

/// A request, by its number in the trace.
pub(crate) type Number = usize;

/// What one worker's engine holds.
#[derive(Debug)]
pub(crate) struct Engine<'p> {
    pool: &'p Pool,
    /// When prompts' pages go to other workers; `None` where they stay.
    pushes: Option<Transfer>,
    prefills: VecDeque<Prefill>,
    /// Those that wait longest for a step come first.
    decodes: Vec<Decode>,
    running: Option<Running>,
}

/// A prompt that is computed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prefill {
    pub(crate) number: Number,
    /// Tokens whose entries are there.
    pub(crate) done: u32,
    /// All tokens of the prompt but the last.
    pub(crate) end: u32,
    /// Tokens, from the first, that the decode worker has.
    pub(crate) sent: u32,
    /// When its first step began.
    pub(crate) began: Option<Duration>,
    /// Time by which its steps were longer because layers had to pass the link.
    pub(crate) exposed: Duration,
}

/// A sequence that generates, or will.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decode {
    pub(crate) number: Number,
    pub(crate) sequence: SequenceId,
    /// Its prompt's entries are there.
    pub(crate) ready: bool,
    /// Tokens before the one that is run next.
    pub(crate) before: u32,
    pub(crate) left: u32,
}

#[derive(Debug)]
struct Running {
    ends: Duration,
    step: Step,
}

/// What a step brought.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    /// Prompts that are computed.
    pub(crate) prefilled: Vec<Prefill>,
    /// Sequences that got a token.
    pub(crate) tokens: Vec<Decode>,
}

/// A step that has begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun {
    pub(crate) ends: Duration,
    /// Sequences that generate in it.
    pub(crate) batch: usize,
    /// Tokens of prompts in it.
    pub(crate) prompt_tokens: u64,
}

impl<'p> Engine<'p> {
    pub(crate) const fn new(pool: &'p Pool, pushes: Option<Transfer>) -> Self {
        Self {
            pool,
            pushes,
            prefills: VecDeque::new(),
            decodes: Vec::new(),
            running: None,
        }
    }

    /// What a whole prompt's pages of so many tokens take on the link, where they do not travel while it is
    /// computed.
    pub(crate) fn travels_afterwards(&self, tokens: u32) -> Option<Duration> {
        let afterwards = self.pushes == Some(Transfer::Afterwards);
        afterwards.then(|| self.pool.profile.push_all(u64::from(tokens)))
    }

    pub(crate) fn prefill(&mut self, prefill: Prefill) {
        self.prefills.push_back(prefill);
    }

    pub(crate) fn admit(&mut self, decode: Decode) {
        self.decodes.push(decode);
    }

    pub(crate) fn make_ready(&mut self, sequence: SequenceId) {
        let mut waiting = self.decodes.iter_mut();
        if let Some(decode) = waiting.find(|d| d.sequence == sequence) {
            decode.ready = true;
        }
    }

    /// Starts a step, where none runs and there is something to run.
    pub(crate) fn begin(&mut self, now: Duration) -> Option<Begun> {
        if self.running.is_some() {
            return None;
        }
        let bounds = StepBounds {
            chunk_tokens: self.pool.chunk_tokens,
            max_batch: self.pool.max_batch as usize,
        };
        let left = self.prefills.iter().map(|p| (p.end - p.done) as usize);
        let step = next_step(left, self.decodes.iter().map(|d| d.ready), bounds);
        if step.is_empty() {
            return None;
        }
        let decodes = step
            .decodes
            .iter()
            .map(|at| Work::decode(self.decodes[*at].before));
        let decodes: Work = decodes.sum();
        let mut work = decodes;
        let mut pushed = 0;
        for (prefill, tokens) in self.prefills.iter_mut().zip(&step.chunks) {
            let tokens = *tokens as u32;
            work = work.and(Work::chunk(prefill.done, tokens));
            prefill.began.get_or_insert(now);
            let end = prefill.done + tokens;
            pushed += u64::from(end.saturating_sub(prefill.sent));
            prefill.sent = prefill.sent.max(end);
        }
        let computes = self.pool.profile.step(&work);
        let takes = self.takes(&work, pushed).unwrap_or(computes);
        for (prefill, _) in self.prefills.iter_mut().zip(&step.chunks) {
            prefill.exposed += takes.saturating_sub(computes);
        }
        let ends = now + takes;
        let begun = Begun {
            ends,
            batch: step.decodes.len(),
            prompt_tokens: work.tokens - decodes.tokens,
        };
        self.running = Some(Running { ends, step });
        Some(begun)
    }

    /// What a step takes until its last layer has passed the link; `None` where nothing is to pass while it runs.
    fn takes(&self, work: &Work, pushed: u64) -> Option<Duration> {
        if pushed == 0 || self.pushes != Some(Transfer::LayerByLayer) {
            return None;
        }
        self.pool.profile.layer_ends(work, pushed).last()
    }

    /// The step that runs has ended, if this is its time.
    pub(crate) fn end(&mut self, now: Duration) -> Ended {
        let mut ended = Ended::default();
        let Some(running) = self.running.take_if(|running| running.ends <= now) else {
            return ended;
        };
        let Step { chunks, decodes } = running.step;
        for (prefill, tokens) in self.prefills.iter_mut().zip(&chunks) {
            prefill.done += *tokens as u32;
        }
        self.prefills.retain(|prefill| {
            let goes_on = prefill.done < prefill.end;
            if !goes_on {
                ended.prefilled.push(*prefill);
            }
            goes_on
        });
        for at in &decodes {
            let decode = &mut self.decodes[*at];
            decode.before += 1;
            decode.left -= 1;
            ended.tokens.push(*decode);
        }
        served_to_the_back(&mut self.decodes, &decodes);
        self.decodes.retain(|decode| decode.left > 0);
        ended
    }
}

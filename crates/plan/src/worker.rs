//! One worker: steps of prompts' chunks and decoding sequences.

use std::collections::VecDeque;
use std::time::Duration;

use tandem_core::batching::shares;
use tandem_timing::{Profile, Work};

use crate::fleet::Pool;

/// A request, by its number in the trace.
pub(crate) type Number = usize;

/// A worker and what it holds.
#[derive(Debug)]
pub(crate) struct Worker<'p> {
    pool: &'p Pool,
    /// Whether prompts' pages go to another worker.
    pushes: bool,
    prefills: VecDeque<Prefill>,
    /// Those that wait longest for a step come first.
    decodes: VecDeque<Decode>,
    /// Room that requests have leased.
    leased: u64,
    step: Option<Step>,
}

#[derive(Clone, Copy, Debug)]
struct Prefill {
    number: Number,
    done: u32,
    /// All tokens of the prompt but the last.
    end: u32,
}

#[derive(Clone, Copy, Debug)]
struct Decode {
    number: Number,
    /// Tokens before the one that is run next.
    before: u32,
    left: u32,
}

#[derive(Debug)]
struct Step {
    ends: Duration,
    /// Chunks of the first prefills, and how many of the first decodes take part.
    chunks: Vec<u32>,
    decodes: usize,
}

/// What a step brought.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    /// Prompts that are computed, and have reached the other side.
    pub(crate) prefilled: Vec<Number>,
    /// Each sequence that got a token, and whether that was its last.
    pub(crate) tokens: Vec<(Number, bool)>,
}

impl<'p> Worker<'p> {
    pub(crate) fn new(pool: &'p Pool, pushes: bool) -> Self {
        Self {
            pool,
            pushes,
            prefills: VecDeque::new(),
            decodes: VecDeque::new(),
            leased: 0,
            step: None,
        }
    }

    /// Prompt tokens that are still to be computed.
    pub(crate) fn backlog(&self) -> u64 {
        self.prefills
            .iter()
            .map(|p| u64::from(p.end - p.done))
            .sum()
    }

    /// Room that nobody has leased.
    pub(crate) fn free(&self) -> u64 {
        self.pool.kv_tokens.saturating_sub(self.leased)
    }

    pub(crate) fn lease(&mut self, tokens: u64) {
        self.leased += tokens;
    }

    pub(crate) fn give_back(&mut self, tokens: u64) {
        self.leased -= tokens;
    }

    /// Takes a prompt in. `false`: of one token, of which there is nothing to compute.
    pub(crate) fn prefill(&mut self, number: Number, prompt: u32) -> bool {
        let (done, end) = (0, prompt - 1);
        if end > 0 {
            self.prefills.push_back(Prefill { number, done, end });
        }
        end > 0
    }

    /// A prompt's entries are here: its last token is run next.
    pub(crate) fn decode(&mut self, number: Number, prompt: u32, answer: u32) {
        self.decodes.push_back(Decode {
            number,
            before: prompt - 1,
            left: answer,
        });
    }

    /// When the step that runs ends.
    pub(crate) fn ends(&self) -> Option<Duration> {
        self.step.as_ref().map(|step| step.ends)
    }

    /// Starts a step, where none runs and there is something to run.
    pub(crate) fn start(&mut self, now: Duration) {
        if self.step.is_some() || (self.prefills.is_empty() && self.decodes.is_empty()) {
            return;
        }
        let chunk = self.pool.chunk_tokens as usize;
        let left = self.prefills.iter().take(chunk);
        let left: Vec<usize> = left.map(|p| (p.end - p.done) as usize).collect();
        let chunks = shares(&left, chunk);
        let chunks: Vec<u32> = chunks.into_iter().map(|tokens| tokens as u32).collect();
        let decodes = self.decodes.len().min(self.pool.max_batch as usize);
        let prompts = self.prefills.iter().zip(&chunks);
        let prompts = prompts.map(|(p, tokens)| Work::chunk(p.done, *tokens));
        let answers = self.decodes.iter().take(decodes);
        let answers = answers.map(|d| Work::decode(d.before));
        let work: Work = prompts.chain(answers).sum();
        let pushed = match self.pushes {
            true => chunks.iter().copied().map(u64::from).sum(),
            false => 0,
        };
        self.step = Some(Step {
            ends: now + self.takes(&work, pushed),
            chunks,
            decodes,
        });
    }

    fn takes(&self, work: &Work, pushed: u64) -> Duration {
        let profile: &Profile = &self.pool.profile;
        let last = profile.layer_ends(work, pushed).last();
        last.unwrap_or_default()
    }

    /// The step that runs has ended.
    pub(crate) fn end(&mut self) -> Ended {
        let mut ended = Ended::default();
        let Some(step) = self.step.take() else {
            return ended;
        };
        for (prefill, tokens) in self.prefills.iter_mut().zip(&step.chunks) {
            prefill.done += tokens;
        }
        self.prefills.retain(|p| {
            let goes_on = p.done < p.end;
            if !goes_on {
                ended.prefilled.push(p.number);
            }
            goes_on
        });
        for _ in 0..step.decodes {
            let Some(mut decode) = self.decodes.pop_front() else {
                break;
            };
            decode.before += 1;
            decode.left -= 1;
            let last = decode.left == 0;
            ended.tokens.push((decode.number, last));
            if !last {
                self.decodes.push_back(decode);
            }
        }
        ended
    }
}

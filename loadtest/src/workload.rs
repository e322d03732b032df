//! What the requests of a test are: prompts, lengths, classes, sessions.
//!
//! Request `n` is a function of the seed and of `n` alone, so several processes can each send their part
//! of one test, and a second run sends the same. Nothing here knows a server.

mod prompts;
mod speech;
mod synthetic;
mod think;

pub use prompts::Prompts;
pub use speech::{Prompt, SMALLEST_VOCABULARY, Speech, TooFewWords, Vocabulary};
pub use synthetic::{Class, PrefixGroups, Synthetic};
pub use think::Think;

use std::sync::Arc;
use std::time::Duration;

use rand::Rng;
use rand_chacha::ChaCha8Rng;

use crate::lengths::Lengths;
use crate::seed::{Purpose, stream};
use crate::trace::{Trace, TraceRow};

/// One request, or one session of several.
#[derive(Clone, Debug)]
pub struct Item {
    /// Its place in the test, over all parts.
    pub index: u64,
    /// Its class: a place in [`Workload::class_names`].
    pub class: usize,
    /// What its session goes by; `None` where the trace does not say.
    pub session: Option<u64>,
    /// What is asked, one after the other.
    pub turns: Vec<Turn>,
}

/// One request of a session.
#[derive(Clone, Debug)]
pub struct Turn {
    /// From the last answer's end to this request.
    pub think: Duration,
    /// What is said now; the conversation so far goes before it.
    pub prompt: Prompt,
    /// Tokens that were wanted for `prompt`, where its length was chosen.
    pub input_tokens: Option<u32>,
    /// Tokens of the answer.
    pub output_tokens: u32,
    /// Whether prompt or answer was shortened to fit the model's context.
    pub clipped: bool,
}

/// Where requests come from.
#[derive(Debug)]
pub enum Source {
    /// Made up.
    Synthetic(Synthetic),
    /// A file's prompts, over and over in an order by the seed, with answers of these lengths.
    Prompts(Prompts, Lengths),
    /// A trace's lengths and blocks, once.
    Trace(Trace),
}

/// The requests of a test.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Equal seeds give equal requests.
    pub seed: u64,
    /// 0, or another number to have the same times, lengths and shared blocks with other text: no server knows it from
    /// before.
    pub renewed: u64,
    /// What made-up prompts are made of.
    pub speech: Arc<Speech>,
    /// Where requests come from.
    pub source: Arc<Source>,
    /// Tokens of prompt and answer together that the model takes, where known.
    pub max_context: Option<u32>,
    /// Whether requests are chats, whose template has tokens of its own.
    pub chat: bool,
}

/// The class of what has none.
pub const DEFAULT_CLASS: &str = "default";

impl Workload {
    /// How many requests or sessions there are; `None`: without an end.
    #[must_use]
    pub fn len(&self) -> Option<u64> {
        match &*self.source {
            Source::Trace(trace) => Some(trace.rows.len() as u64),
            Source::Synthetic(_) | Source::Prompts(..) => None,
        }
    }

    /// Whether there is nothing to send.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// Whether no prompt begins as another one does: a server that has much of one in its cache was asked it before.
    #[must_use]
    pub fn prompts_differ(&self) -> bool {
        match &*self.source {
            Source::Synthetic(made) => {
                made.prefix.is_none() && matches!(made.turns, Lengths::Fixed(1))
            }
            Source::Prompts(..) => false,
            Source::Trace(trace) => trace.rows.iter().all(|row| row.blocks.is_empty()),
        }
    }

    /// All classes, sorted where a file names them.
    #[must_use]
    pub fn class_names(&self) -> Vec<String> {
        let named = |names: &mut dyn Iterator<Item = &str>| {
            let mut names: Vec<String> = names.map(str::to_owned).collect();
            names.push(DEFAULT_CLASS.to_owned());
            names.sort();
            names.dedup();
            names
        };
        match &*self.source {
            Source::Synthetic(made) => made.classes.iter().map(|c| c.name.clone()).collect(),
            Source::Prompts(own, _) => named(&mut own.classes()),
            Source::Trace(trace) => {
                named(&mut trace.rows.iter().filter_map(|r| r.class.as_deref()))
            }
        }
    }

    /// Request or session `index`; `None` past the end.
    #[must_use]
    pub fn item(&self, index: u64, classes: &[String]) -> Option<Item> {
        let mut rng = stream(self.seed, Purpose::Request, index);
        let class = |name: Option<&str>| {
            let name = name.unwrap_or(DEFAULT_CLASS);
            classes.iter().position(|known| known == name).unwrap_or(0)
        };
        match &*self.source {
            Source::Synthetic(made) => Some(made.item(self, index, &mut rng)),
            Source::Prompts(own, lengths) => {
                let count = own.list.len() as u64;
                let own = &own.list[place(self.seed, index, count)];
                let wanted = own.output_tokens.unwrap_or_else(|| lengths.draw(&mut rng));
                let turn = Turn {
                    think: Duration::ZERO,
                    prompt: own.prompt.clone(),
                    input_tokens: None,
                    output_tokens: wanted.min(self.max_context.unwrap_or(u32::MAX)),
                    clipped: false,
                };
                Some(Item {
                    index,
                    class: class(own.class.as_deref()),
                    session: Some(index),
                    turns: vec![turn],
                })
            }
            Source::Trace(trace) => {
                let row = trace.rows.get(usize::try_from(index).ok()?)?;
                Some(Item {
                    index,
                    class: class(row.class.as_deref()),
                    session: row.session(),
                    turns: vec![self.replay(row, trace.block_tokens, index)],
                })
            }
        }
    }

    /// A row's prompt: the words of a block depend on its id alone.
    fn replay(&self, row: &TraceRow, block_tokens: u32, index: u64) -> Turn {
        let (input, output, clipped) = self.clip(row.input_tokens, row.output_tokens);
        let mut left = self.said(input);
        let mut prompt = self.speech.empty();
        if row.blocks.is_empty() {
            let mut rng = stream(self.said_by(), Purpose::Unique, index);
            self.speech.say(&mut prompt, left, &mut rng);
        }
        for block in &row.blocks {
            let tokens = left.min(block_tokens);
            let mut rng = stream(self.said_by(), Purpose::Block, *block);
            self.speech.say(&mut prompt, tokens, &mut rng);
            left -= tokens;
        }
        Turn {
            think: Duration::ZERO,
            prompt,
            input_tokens: Some(input),
            output_tokens: output,
            clipped,
        }
    }

    /// What all text follows from.
    pub(crate) const fn said_by(&self) -> u64 {
        self.seed.wrapping_add(self.renewed << 32)
    }

    /// How many tokens to say for a prompt of so many: the server adds some around it.
    fn said(&self, input: u32) -> u32 {
        input.saturating_sub(self.speech.around(self.chat)).max(1)
    }

    /// Lengths that fit the model's context: the answer keeps up to half of it, the prompt the rest.
    fn clip(&self, input: u32, output: u32) -> (u32, u32, bool) {
        let Some(most) = self.max_context else {
            return (input, output, false);
        };
        let answer = output.min((most / 2).max(1));
        let prompt = input.min(most.saturating_sub(answer).max(1));
        (prompt, answer, (prompt, answer) != (input, output))
    }

    fn unique(&self, prompt: &mut Prompt, tokens: u32, index: u64, turn: u64) {
        let mut rng: ChaCha8Rng = stream(self.said_by(), Purpose::Unique, index);
        // Turns draw from stretches of one stream that do not meet.
        rng.set_stream(turn);
        self.speech.say(prompt, tokens, &mut rng);
    }
}

/// The place of the `index`-th of endlessly many draws: each round through `count` has an order of its own.
fn place(seed: u64, index: u64, count: u64) -> usize {
    let round = index / count;
    let mut rng = stream(seed, Purpose::Order, round);
    // An odd-stepped walk visits every place once where step and count share no factor.
    let start = rng.random_range(0..count);
    let mut step = rng.random_range(0..count) | 1;
    while greatest_common_divisor(step, count) != 1 {
        step += 2;
    }
    let within = u128::from(index % count) * u128::from(step) + u128::from(start);
    (within % u128::from(count)) as usize
}

const fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests;

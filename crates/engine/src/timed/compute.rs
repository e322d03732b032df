//! Steps of the timed engine: it writes what a step would, and waits until it would be done.

use std::time::Duration;

use tandem_timing::{Profile, Work};

use super::clock::Clock;
use super::entries::{Entries, Run, START, chain, mix, runs};
use super::words::Words;
use crate::stepping::Compute;
use crate::stepping::batch::{self, Plan};
use crate::stepping::sampling::Choice;
use crate::stepping::sequence::{self, Limits};
use crate::{Arenas, Progress};

type PrefillSequence = sequence::PrefillSequence<Prompt>;
type DecodeSequence = sequence::DecodeSequence<Found>;
type Batch = batch::Batch<Prompt, Found>;

/// What is kept of a prompt: for each of its tokens the hash of those up to it. Empty before the first step.
#[derive(Debug, Default)]
pub(super) struct Prompt(Vec<u64>);

/// What is kept of a sequence that generates.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// The hash of all tokens but the last.
    chain: u64,
    /// What each page's entries came to when they were last looked at, and all of them together.
    pages: Vec<u64>,
    total: u64,
    /// The page that is looked at next.
    next: usize,
    /// It was in a step before.
    stepped: bool,
}

/// A profile, and where it writes.
pub(super) struct Timed {
    profile: Profile,
    clock: Box<dyn Clock>,
    entries: Entries,
    words: Words,
    pushes: bool,
    /// When the last step ended, by the profile.
    ended: Duration,
    /// What the step's decoding sequences found, in the plan's order.
    rows: Vec<u64>,
    logits: Vec<f32>,
    changed: Vec<f32>,
}

/// What one step writes: runs, with the hashes of their tokens.
struct Writes {
    runs: Vec<(Run, Vec<u64>)>,
    /// Tokens of prompts among them.
    prompt_tokens: u64,
}

impl Timed {
    pub(super) fn new(
        profile: Profile,
        arenas: Arenas,
        words: Words,
        clock: Box<dyn Clock>,
        pushes: bool,
    ) -> Self {
        Self {
            profile,
            clock,
            entries: Entries::new(arenas),
            words,
            pushes,
            ended: Duration::ZERO,
            rows: Vec::new(),
            logits: Vec::new(),
            changed: Vec::new(),
        }
    }

    fn page_tokens(&self) -> usize {
        usize::from(self.entries.geometry().page_tokens)
    }

    /// When this step starts: where the one before it had left work, when that ended. What the thread
    /// overslept is no part of the model.
    fn start(&self, batch: &Batch, plan: &Plan) -> Duration {
        let now = self.clock.now();
        let mut decodes = plan.decodes.iter().map(|index| &batch.decodes[*index]);
        let goes_on = decodes.any(|sequence| sequence.own.stepped)
            || batch.prefills.iter().any(|p| !p.own.0.is_empty());
        let late = now.saturating_sub(self.ended);
        if goes_on && late <= self.clock.grace() {
            self.ended
        } else {
            now.max(self.ended)
        }
    }

    /// What the step's prompts write.
    fn prompts(&self, batch: &mut Batch, plan: &Plan) -> Writes {
        let page = self.page_tokens();
        let mut writes = Writes {
            runs: Vec::new(),
            prompt_tokens: 0,
        };
        for (sequence, end) in batch.prefills.iter_mut().zip(&plan.prefills) {
            let PrefillSequence {
                tokens,
                pages,
                done,
                own: Prompt(chains),
                ..
            } = sequence;
            if chains.is_empty() {
                chains.extend(tokens.iter().scan(START, |hash, token| {
                    *hash = chain(*hash, *token);
                    Some(*hash)
                }));
            }
            for run in runs(pages, page, *done, *end) {
                let of = chains[run.first..run.first + run.tokens].to_vec();
                writes.prompt_tokens += run.tokens as u64;
                writes.runs.push((run, of));
            }
        }
        writes
    }

    /// What the step's decoding sequences write: their last tokens.
    fn answers(&self, batch: &mut Batch, plan: &Plan, writes: &mut Writes) {
        let page = self.page_tokens();
        let write = |index: &usize| {
            let sequence = &mut batch.decodes[*index];
            let position = sequence.position();
            let own = &mut sequence.own;
            own.chain = chain(own.chain, sequence.tokens[position]);
            let run = runs(&sequence.pages, page, position, position + 1).next();
            run.map(|run| (run, vec![own.chain]))
        };
        writes.runs.extend(plan.decodes.iter().filter_map(write));
    }

    /// Writes, and lets the step's time pass, layer by layer where somebody looks.
    fn pass(&mut self, start: Duration, work: &Work, writes: &Writes, counter: Option<&Progress>) {
        let pushed = match (counter, self.pushes) {
            (Some(_), true) => writes.prompt_tokens,
            _ => 0,
        };
        let mut end = start;
        for (layer, at) in (0..).zip(self.profile.layer_ends(work, pushed)) {
            for (run, chains) in &writes.runs {
                self.entries.write(layer, run, chains);
            }
            end = start + at;
            if let Some(progress) = counter {
                if self.pushes {
                    self.clock.wait_until(end);
                }
                progress.bump();
            }
        }
        self.clock.wait_until(end);
        self.ended = end;
    }

    /// What a sequence finds after its step: the entry that was written now, and one page of the others
    /// again, so that what comes over a page later shows too.
    fn look(&mut self, sequence: &mut DecodeSequence) -> u64 {
        let page = self.page_tokens();
        let end = sequence.position() + 1;
        let DecodeSequence { pages, own, .. } = sequence;
        own.stepped = true;
        own.next = (own.next + 1) % end.div_ceil(page);
        let again = [own.next, (end - 1) / page];
        own.pages.resize(end.div_ceil(page), 0);
        for index in again {
            let tokens = index * page..end.min((index + 1) * page);
            let run = runs(pages, page, tokens.start, tokens.end).next();
            let sum = run.map_or(0, |run| self.entries.sum(&run));
            let old = std::mem::replace(&mut own.pages[index], sum);
            own.total = own.total.wrapping_add(sum.wrapping_sub(old));
        }
        own.total
    }

    /// The number that a sequence's next word is.
    fn number(&self, row: usize, sequence: &DecodeSequence) -> u64 {
        let found = self.rows[row];
        let drawn = sequence
            .sampler
            .seed()
            .map_or(0, |seed| mix(seed ^ mix(u64::from(sequence.generated()))));
        mix(found ^ drawn)
    }
}

impl Compute for Timed {
    type Prompt = Prompt;
    type Answer = Found;

    fn make_ready(&mut self, sequence: &mut DecodeSequence, _: &Limits, _: bool) {
        let page = self.page_tokens();
        let end = sequence.position();
        let before = &sequence.tokens[..end];
        let hash = before.iter().fold(START, |hash, t| chain(hash, *t));
        let pages: Vec<u64> = runs(&sequence.pages, page, 0, end)
            .map(|run| self.entries.sum(&run))
            .collect();
        sequence.own = Found {
            chain: hash,
            total: pages.iter().copied().fold(0, u64::wrapping_add),
            pages,
            next: 0,
            stepped: false,
        };
    }

    fn run(&mut self, batch: &mut Batch, plan: &Plan, progress: &Progress) {
        let work = work(batch, plan);
        let start = self.start(batch, plan);
        let mut writes = self.prompts(batch, plan);
        self.answers(batch, plan, &mut writes);
        let counter = (!plan.prefills.is_empty()).then_some(progress);
        self.pass(start, &work, &writes, counter);
        self.rows.clear();
        for index in &plan.decodes {
            let found = self.look(&mut batch.decodes[*index]);
            self.rows.push(found);
        }
    }

    fn choose(&mut self, row: usize, sequence: &mut DecodeSequence) -> Choice {
        let number = self.number(row, sequence);
        if sequence.sampler.is_plain() {
            return Choice::Token(self.words.pick(number));
        }
        self.words.logits(number, &mut self.logits);
        let index = sequence.generated();
        let sampler = &mut sequence.sampler;
        sampler.choose(&self.logits, index, &mut self.changed)
    }

    /// Of the row that was chosen from last, whose sequence is not plain.
    fn logits(&mut self, _: usize) -> &[f32] {
        &self.logits
    }
}

fn work(batch: &Batch, plan: &Plan) -> Work {
    let prompts = batch.prefills.iter().zip(&plan.prefills);
    let chunks = prompts.map(|(p, end)| Work::chunk(p.done as u32, (end - p.done) as u32));
    let decodes = plan.decodes.iter().map(|index| &batch.decodes[*index]);
    chunks
        .chain(decodes.map(|d| Work::decode(d.position() as u32)))
        .sum()
}

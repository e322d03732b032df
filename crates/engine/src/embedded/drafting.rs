//! Speculative decoding with the model's draft head: guess a few tokens, have the model check all of
//! them in one step, keep those that it would have chosen itself.
//!
//! What is kept is what the model chose, token by token, from logits that do not depend on how many
//! tokens share a pass: so an answer is the same with a draft head and without. And a guess depends on
//! nothing but the tokens before it: so guesses are the same wherever the prompt was computed.
//!
//! The draft layer's entry of a token is *final* once it was made of the model's own hidden state of the
//! token before. Entries of guesses are made of the draft layer's and are made again when the guess was
//! right.

use std::ops::Range;

use super::compute::{Batch, DecodeSequence, Passes, PrefillSequence};
use crate::forward::{DraftInput, SpanInput};
use crate::stepping::batch::Plan;
use crate::stepping::sampling::choose;
use crate::stepping::sequence::Limits;
use crate::{Event, Sampling};

/// What a sequence that generates keeps for the draft head.
#[derive(Debug)]
pub(super) struct Drafting {
    /// Tokens whose entries in the draft layer are final.
    done: usize,
    /// The model's hidden states of positions `done - 1` up to the last but one token's. Empty where
    /// they are to be computed first.
    contexts: Vec<f32>,
    /// Guesses at what follows the last token.
    proposed: Vec<u32>,
}

/// A sequence that is being guessed for.
struct Guessing {
    /// In `decodes`.
    index: usize,
    /// How many more may follow.
    guesses: usize,
    /// Position of the first of `tokens`.
    first: usize,
    tokens: Vec<u32>,
    contexts: Vec<f32>,
}

impl DecodeSequence {
    /// What the model runs next: the last token and the guesses behind it.
    pub(super) fn run(&self) -> Vec<u32> {
        let guesses = self.own.as_ref().map_or(&[][..], |d| &d.proposed);
        let last = self.tokens[self.position()..].iter();
        last.chain(guesses).copied().collect()
    }

    pub(super) fn take_proposed(&mut self) -> Vec<u32> {
        let drafting = self.own.as_mut();
        drafting.map_or_else(Vec::new, |d| std::mem::take(&mut d.proposed))
    }
}

impl Passes {
    /// What a sequence keeps when it is made ready, where the engine speculates. The `context` of its
    /// last token but one lies in its slot, or is to be computed.
    pub(super) fn begin_drafting(
        &self,
        sequence: &DecodeSequence,
        limits: &Limits,
        context: bool,
    ) -> Option<Drafting> {
        let speculates = self.speculative_tokens > 0;
        self.model
            .inner
            .weights
            .draft
            .as_ref()
            .filter(|_| speculates)?;
        let done = sequence.position();
        let contexts = match done.checked_sub(1) {
            None => vec![0.0; self.model.inner.shape.hidden],
            Some(_) if !context => Vec::new(),
            Some(before) => {
                let page = usize::from(limits.layout.geometry().page_tokens);
                self.arenas.read_context(sequence.pages[before / page])
            }
        };
        Some(Drafting {
            done,
            contexts,
            proposed: Vec::new(),
        })
    }

    /// Guesses for the sequences of a step.
    pub(super) fn propose(&mut self, batch: &mut Batch, plan: &Plan) {
        self.compute_contexts(batch, plan);
        let most = self.speculative_tokens.min(super::MAX_SPECULATIVE_TOKENS) as usize;
        let wants = |index: &usize| {
            let sequence = &mut batch.decodes[*index];
            let guesses = sequence.may_propose(&batch.limits).min(most);
            let drafting = sequence.own.as_mut()?;
            (guesses > 0).then(|| Guessing {
                index: *index,
                guesses,
                first: drafting.done,
                tokens: sequence.tokens[drafting.done..].to_vec(),
                contexts: std::mem::take(&mut drafting.contexts),
            })
        };
        let mut guessing: Vec<Guessing> = plan.decodes.iter().filter_map(wants).collect();
        while !guessing.is_empty() {
            self.guess(&mut batch.decodes, &mut guessing);
        }
    }

    /// One guess for each of these sequences. Those that may have another one stay, with the draft
    /// layer's own hidden state as its context.
    fn guess(&mut self, decodes: &mut [DecodeSequence], guessing: &mut Vec<Guessing>) {
        let model = &self.model.inner;
        let Some(head) = &model.weights.draft else {
            return guessing.clear();
        };
        let inputs = guessing.iter().map(|of| DraftInput {
            pages: &decodes[of.index].pages,
            first: of.first,
            tokens: &of.tokens,
            contexts: &of.contexts,
        });
        let inputs: Vec<DraftInput<'_>> = inputs.collect();
        let (draft, arenas) = (&mut self.draft, &self.arenas);
        self.pool
            .install(|| draft.draft(model, head, arenas, &inputs, true));
        let (mut row, mut n) = (0, 0);
        guessing.retain_mut(|of| {
            let guess = choose(draft.logits(n, model), &Sampling::GREEDY, 0);
            row += of.tokens.len();
            n += 1;
            let sequence = &mut decodes[of.index];
            let end = sequence.tokens.len();
            let Some(drafting) = &mut sequence.own else {
                return false;
            };
            drafting.done = end;
            let Some(guess) = guess else { return false };
            drafting.proposed.push(guess);
            of.guesses -= 1;
            of.first += of.tokens.len();
            of.tokens = vec![guess];
            of.contexts = draft.hidden(row - 1, model).to_vec();
            of.guesses > 0
        });
    }

    /// Computes the contexts that are missing: runs the last token but one again, for its hidden state.
    fn compute_contexts(&mut self, batch: &mut Batch, plan: &Plan) {
        let missing = |index: &&usize| {
            let drafting = batch.decodes[**index].own.as_ref();
            drafting.is_some_and(|d| d.contexts.is_empty())
        };
        let indices: Vec<usize> = plan.decodes.iter().filter(missing).copied().collect();
        if indices.is_empty() {
            return;
        }
        let input = |index: &usize| {
            let sequence = &batch.decodes[*index];
            let first = sequence.position() - 1;
            SpanInput {
                pages: &sequence.pages,
                first,
                tokens: &sequence.tokens[first..=first],
                stored: 1,
                logits: 0,
            }
        };
        let inputs: Vec<SpanInput<'_>> = indices.iter().map(input).collect();
        let (model, arenas) = (&self.model.inner, &self.arenas);
        let forward = &mut self.forward;
        self.pool
            .install(|| forward.run(model, arenas, &inputs, || ()));
        for (row, index) in indices.into_iter().enumerate() {
            self.keep_contexts(row..row + 1, &mut batch.decodes[index]);
        }
    }

    /// Keeps the hidden states of these rows of the model's last pass for the draft head.
    pub(super) fn keep_contexts(&self, rows: Range<usize>, sequence: &mut DecodeSequence) {
        if let Some(drafting) = &mut sequence.own {
            for row in rows {
                let hidden = self.forward.hidden(row, &self.model.inner);
                drafting.contexts.extend_from_slice(hidden);
            }
        }
    }

    /// Makes the draft layer's entries of finished sequences final: their pages may be found again.
    pub(super) fn finish_drafts(&mut self, decodes: &[DecodeSequence], ended: &[(usize, Event)]) {
        let size = self.model.inner.shape.hidden;
        let input = |(index, end): &(usize, Event)| {
            let sequence = &decodes[*index];
            let drafting = sequence.own.as_ref()?;
            let tokens = sequence.tokens.get(drafting.done..sequence.position())?;
            let wanted = matches!(end, Event::Finished { .. }) && !tokens.is_empty();
            wanted.then_some(DraftInput {
                pages: &sequence.pages,
                first: drafting.done,
                tokens,
                contexts: &drafting.contexts[..tokens.len() * size],
            })
        };
        let inputs: Vec<DraftInput<'_>> = ended.iter().filter_map(input).collect();
        let model = &self.model.inner;
        if let (Some(head), false) = (&model.weights.draft, inputs.is_empty()) {
            let (draft, arenas) = (&mut self.draft, &self.arenas);
            self.pool
                .install(|| draft.draft(model, head, arenas, &inputs, false));
        }
    }

    /// Tokens before a prompt's next one that the model runs again, without storing them: the one
    /// before it, where the draft head needs its hidden state and nobody has kept it.
    pub(super) fn rerun(&self, sequence: &PrefillSequence) -> usize {
        let needs = self.model.inner.weights.draft.is_some();
        usize::from(needs && sequence.own.is_none() && sequence.done > 0)
    }

    /// Behind the model's pass, whose rows from `row` on are the prompts': the draft layer's entries,
    /// and the contexts of prompts that are complete now. Whether there is a draft head.
    pub(super) fn draft_prefills(
        &mut self,
        batch: &mut Batch,
        plan: &Plan,
        mut row: usize,
    ) -> bool {
        let model = &self.model.inner;
        let Some(head) = &model.weights.draft else {
            return false;
        };
        let mut contexts: Vec<Vec<f32>> = Vec::new();
        let mut carried = Vec::new();
        for (sequence, end) in batch.prefills.iter().zip(&plan.prefills) {
            let mut before = match &sequence.own {
                Some(hidden) => hidden.clone(),
                None if sequence.done == 0 => vec![0.0; model.shape.hidden],
                None => Vec::new(),
            };
            let rows = end - sequence.done + self.rerun(sequence);
            for row in row..row + rows - 1 {
                before.extend_from_slice(self.forward.hidden(row, model));
            }
            contexts.push(before);
            row += rows;
            carried.push(self.forward.hidden(row - 1, model).to_vec());
        }
        let prompts = batch.prefills.iter().zip(&plan.prefills).zip(&contexts);
        let input = prompts.map(|((sequence, end), contexts)| DraftInput {
            pages: &sequence.pages,
            first: sequence.done,
            tokens: &sequence.tokens[sequence.done..*end],
            contexts,
        });
        let inputs: Vec<DraftInput<'_>> = input.collect();
        let (draft, arenas) = (&mut self.draft, &self.arenas);
        self.pool
            .install(|| draft.draft(model, head, arenas, &inputs, false));
        let page = usize::from(batch.limits.layout.geometry().page_tokens);
        let prompts = batch.prefills.iter_mut().zip(&plan.prefills);
        for ((sequence, end), hidden) in prompts.zip(carried) {
            if *end == sequence.end() {
                let last = sequence.pages[(end - 1) / page];
                self.arenas.write_context(last, &hidden);
            }
            sequence.own = Some(hidden);
        }
        true
    }
}

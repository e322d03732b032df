//! Steps of the embedded engine: passes of the model over a batch's tokens.

use std::ops::Range;

use rayon::ThreadPool;
use rayon::prelude::*;

use super::drafting::Drafting;
use crate::forward::{Forward, SpanInput};
use crate::stepping::Compute;
use crate::stepping::batch::{self, Plan};
use crate::stepping::sampling::Choice;
use crate::stepping::sequence::{self, Limits};
use crate::{Arenas, EmbeddedModel, Event, Progress};

/// A prompt, with the hidden state of the last token that is computed, where a draft head needs it and it
/// is known.
pub(super) type PrefillSequence = sequence::PrefillSequence<Option<Vec<f32>>>;
/// A sequence that generates, with what a draft head needs, once it is ready and where there is one.
pub(super) type DecodeSequence = sequence::DecodeSequence<Option<Drafting>>;
pub(super) type Batch = batch::Batch<Option<Vec<f32>>, Option<Drafting>>;

/// The model and its working memory.
pub(super) struct Passes {
    pub(super) model: EmbeddedModel,
    pub(super) arenas: Arenas,
    pub(super) pool: ThreadPool,
    pub(super) speculative_tokens: u32,
    pub(super) forward: Forward,
    /// The draft head's working memory.
    pub(super) draft: Forward,
    /// Logits that a sequence's settings have changed.
    changed: Vec<f32>,
}

impl Passes {
    pub(super) fn new(
        model: EmbeddedModel,
        arenas: Arenas,
        pool: ThreadPool,
        speculative_tokens: u32,
    ) -> Self {
        Self {
            model,
            arenas,
            pool,
            speculative_tokens,
            forward: Forward::default(),
            draft: Forward::default(),
            changed: Vec::new(),
        }
    }

    /// Runs the model; the decode sequences' logits stay in `forward`, in the plan's order: of each
    /// one's last token, then of those that were proposed behind it.
    fn compute(&mut self, batch: &mut Batch, plan: &Plan, progress: &Progress) {
        let decodes = plan.decodes.iter().map(|index| &batch.decodes[*index]);
        let runs: Vec<Vec<u32>> = decodes.clone().map(DecodeSequence::run).collect();
        let decodes = decodes.zip(&runs).map(|(sequence, tokens)| SpanInput {
            pages: &sequence.pages,
            first: sequence.position(),
            tokens,
            stored: 0,
            logits: tokens.len(),
        });
        let prefills = batch.prefills.iter().zip(&plan.prefills);
        let prefills = prefills.map(|(sequence, end)| {
            let stored = self.rerun(sequence);
            let first = sequence.done - stored;
            SpanInput {
                pages: &sequence.pages,
                first,
                tokens: &sequence.tokens[first..*end],
                stored,
                logits: 0,
            }
        });
        let inputs: Vec<SpanInput<'_>> = decodes.chain(prefills).collect();
        let arenas = &self.arenas;
        let counted = !plan.prefills.is_empty();
        let (forward, model) = (&mut self.forward, &self.model);
        self.pool.install(|| {
            forward.run(&model.inner, arenas, &inputs, || {
                if counted {
                    progress.bump();
                }
            });
        });
        let rows = runs.iter().map(Vec::len).sum();
        if counted && self.draft_prefills(batch, plan, rows) {
            // The draft layer's entries, and the context.
            progress.bump();
            progress.bump();
        }
    }
}

impl Compute for Passes {
    type Prompt = Option<Vec<f32>>;
    type Answer = Option<Drafting>;

    fn make_ready(&mut self, sequence: &mut DecodeSequence, limits: &Limits, context: bool) {
        sequence.own = self.begin_drafting(sequence, limits, context);
    }

    fn run(&mut self, batch: &mut Batch, plan: &Plan, progress: &Progress) {
        self.propose(batch, plan);
        self.compute(batch, plan, progress);
    }

    fn look_ahead(&self, decodes: &mut [DecodeSequence], indices: &[usize]) {
        let decodes = decodes.par_iter_mut().enumerate();
        let planned = decodes.filter(|(index, _)| indices.binary_search(index).is_ok());
        self.pool
            .install(|| planned.for_each(|(_, sequence)| sequence.sampler.look_ahead()));
    }

    fn proposed(&self, sequence: &mut DecodeSequence) -> Vec<u32> {
        sequence.take_proposed()
    }

    fn choose(&mut self, row: usize, sequence: &mut DecodeSequence) -> Choice {
        let index = sequence.generated();
        let logits = self.forward.logits(row, &self.model.inner);
        sequence.sampler.choose(logits, index, &mut self.changed)
    }

    fn logits(&mut self, row: usize) -> &[f32] {
        self.forward.logits(row, &self.model.inner)
    }

    fn keep(&self, rows: Range<usize>, sequence: &mut DecodeSequence) {
        self.keep_contexts(rows, sequence);
    }

    fn finish(&mut self, decodes: &[DecodeSequence], ended: &[(usize, Event)]) {
        self.finish_drafts(decodes, ended);
    }
}

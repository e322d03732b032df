//! What the engine holds and which of it runs next: continuous batching with chunked prefill.
//!
//! Pure: what computes the step, and how long that takes, is nothing to it. So an engine that only takes
//! the time batches as one that computes.

use std::collections::VecDeque;

use tandem_core::SequenceId;
use tandem_core::batching::{StepBounds, next_step, served_to_the_back};

use super::sequence::{DecodeSequence, Limits, PrefillSequence, Refusal};
use crate::{StepItem, StepPlan};

/// All sequences of an engine.
pub(crate) struct Batch<P, A> {
    pub(crate) limits: Limits,
    /// In the order they came.
    pub(crate) prefills: VecDeque<PrefillSequence<P>>,
    /// Those that wait longest for a step come first.
    pub(crate) decodes: Vec<DecodeSequence<A>>,
}

/// What one step may hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepLimits {
    /// Prompt tokens, at most.
    pub(crate) chunk_tokens: u32,
    /// Sequences that generate, at most.
    pub(crate) max_batch: usize,
    /// Sequences the engine holds, at most.
    pub(crate) max_sequences: usize,
}

/// What one step runs.
pub(crate) struct Plan {
    /// Index in `decodes`.
    pub(crate) decodes: Vec<usize>,
    /// The first of `prefills`, with the end of each one's chunk.
    pub(crate) prefills: Vec<usize>,
}

impl Plan {
    pub(super) fn is_empty(&self) -> bool {
        self.decodes.is_empty() && self.prefills.is_empty()
    }
}

impl<P: Default, A: Default> Batch<P, A> {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            prefills: VecDeque::new(),
            decodes: Vec::new(),
        }
    }

    /// Whether something can run.
    pub(super) fn runs(&self) -> bool {
        !self.prefills.is_empty() || self.decodes.iter().any(DecodeSequence::runs)
    }

    /// Whether one more sequence, of this name, may come.
    pub(super) fn room_for(&self, sequence: SequenceId, limits: StepLimits) -> Result<(), Refusal> {
        let prefills = self.prefills.iter().map(|p| p.id);
        let mut known = prefills.chain(self.decodes.iter().map(|d| d.id));
        if known.any(|id| id == sequence) {
            return Err(Refusal::InUse);
        }
        match self.prefills.len() + self.decodes.len() {
            held if held >= limits.max_sequences => Err(Refusal::Full(held)),
            _ => Ok(()),
        }
    }

    /// Forgets a sequence. Whether it was there.
    pub(super) fn remove(&mut self, sequence: SequenceId) -> bool {
        let held = self.prefills.len() + self.decodes.len();
        self.prefills.retain(|p| p.id != sequence);
        self.decodes.retain(|d| d.id != sequence);
        self.prefills.len() + self.decodes.len() < held
    }

    /// The next step.
    pub(super) fn plan(&self, limits: StepLimits) -> Plan {
        let bounds = StepBounds {
            chunk_tokens: limits.chunk_tokens,
            max_batch: limits.max_batch,
        };
        let left = self.prefills.iter().map(|p| p.end() - p.done);
        let ready = self.decodes.iter().map(DecodeSequence::runs);
        let step = next_step(left, ready, bounds);
        let prefills = self.prefills.iter().zip(step.chunks);
        Plan {
            decodes: step.decodes,
            prefills: prefills.map(|(p, tokens)| p.done + tokens).collect(),
        }
    }

    /// What is told of a step before it runs, where the counter stands at `first_layer`.
    pub(super) fn announcement(&self, plan: &Plan, first_layer: u64) -> StepPlan {
        let item = |(sequence, end): (&PrefillSequence<P>, &usize)| StepItem {
            sequence: sequence.id,
            start: sequence.done as u32,
            end: *end as u32,
            last: *end == sequence.end(),
        };
        let items = self.prefills.iter().zip(&plan.prefills).map(item).collect();
        StepPlan { first_layer, items }
    }

    /// A step is over: the prompts that are complete with it, which are forgotten.
    pub(super) fn end_prefills(&mut self, plan: &Plan) -> Vec<SequenceId> {
        for (sequence, end) in self.prefills.iter_mut().zip(&plan.prefills) {
            sequence.done = *end;
        }
        let mut ended = Vec::new();
        self.prefills.retain(|p| {
            let goes_on = p.done < p.end();
            if !goes_on {
                ended.push(p.id);
            }
            goes_on
        });
        ended
    }

    /// A step is over for those that generated in it: who was served goes to the back, who `ended` is
    /// forgotten.
    pub(super) fn end_decodes(&mut self, plan: &Plan, ended: &[SequenceId]) {
        served_to_the_back(&mut self.decodes, &plan.decodes);
        self.decodes.retain(|d| !ended.contains(&d.id));
    }
}

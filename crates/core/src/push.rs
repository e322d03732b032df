//! Turning layer progress into writes: what the watcher thread decides.
//!
//! Owns which transfer belongs to which engine sequence and which steps are under way. Refuses to
//! guess: a step's content is announced before it runs, a layer counts as complete only when the
//! engine's counter has passed it. Where the geometry has a context, it counts as one layer more,
//! behind the others, and goes out in a sequence's last step.
//!
//! What must hold: every layer of every completed page goes out exactly once, however many bumps
//! the watcher sees at once; after [`PushPlanner::stop`] nothing of a transfer goes out.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::arena::ArenaLayout;
use crate::flow::Flow;
use crate::immediate::{Immediate, SlotKey};
use crate::layout::WorkerLayout;
use crate::plan::{self, PlannedWrite, Side};
use crate::{FlowId, PageIndex, SequenceId, TransferId};

/// A transfer that is to be pushed while its sequence is prefilled.
#[derive(Clone, Debug)]
pub struct Push {
    /// Which transfer.
    pub transfer: TransferId,
    /// The sequence that computes it.
    pub sequence: SequenceId,
    /// Its pages here, from the prompt's first token on.
    pub source_pages: Arc<[PageIndex]>,
    /// The pages at the target, from the token `target_from` on.
    pub target_pages: Arc<[PageIndex]>,
    /// Tokens before it are held there, in whole pages whose numbers are nobody's business.
    pub target_from: u32,
    /// Tokens that travel; see [`plan::travelling`].
    pub tokens: std::ops::Range<u32>,
    /// Which shard sends what where.
    pub flows: Vec<PushFlow>,
}

/// One flow of a push.
#[derive(Clone, Debug)]
pub struct PushFlow {
    /// Names it to the source shard's fabric.
    pub id: FlowId,
    /// Which heads and layers.
    pub flow: Flow,
    /// Layout of the target shard's arena.
    pub target: ArenaLayout,
    /// The first head of that shard.
    pub target_head: u16,
    /// What its immediates carry.
    pub key: SlotKey,
}

/// One sequence's tokens in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepPart {
    /// Which sequence.
    pub sequence: SequenceId,
    /// One past the last token.
    pub end: u32,
    /// Whether it is the sequence's last step.
    pub last: bool,
}

/// What the watcher is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "explore", derive(Hash))]
pub enum PushAction {
    /// Post this write.
    Write {
        /// Of which flow.
        flow: FlowId,
        /// From which shard.
        source: u16,
        /// What to copy.
        write: PlannedWrite,
        /// What the target counts.
        immediate: Immediate,
    },
    /// Every write of the flow has been handed out.
    Seal {
        /// Which flow.
        flow: FlowId,
        /// Of which shard.
        source: u16,
    },
    /// Every flow of the transfer has been sealed.
    Sealed {
        /// Which transfer.
        transfer: TransferId,
    },
}

/// Plans pushes from layer progress.
#[derive(Debug)]
pub struct PushPlanner {
    source: WorkerLayout,
    max_write_bytes: u32,
    pushes: HashMap<SequenceId, Pushing>,
    sequences: HashMap<TransferId, SequenceId>,
    steps: VecDeque<Step>,
    /// Layers handed out, over all steps.
    seen: u64,
}

#[derive(Debug)]
struct Pushing {
    push: Push,
    /// Tokens before this one have been planned.
    planned: u32,
}

#[derive(Debug)]
struct Step {
    first_layer: u64,
    parts: Vec<Part>,
}

/// What one sequence sends in each layer of a step.
#[derive(Debug)]
struct Part {
    sequence: SequenceId,
    last: bool,
    /// For each flow, its writes as offsets within a layer.
    writes: Vec<Vec<PlannedWrite>>,
    /// For each flow, the write that carries the context in it.
    context: Vec<Option<PlannedWrite>>,
}

impl PushPlanner {
    /// A planner for an engine whose pages lie in `source`, whose counter stands at `layers`, and which
    /// runs no step.
    #[must_use]
    pub fn new(source: WorkerLayout, max_write_bytes: u32, layers: u64) -> Self {
        Self {
            source,
            max_write_bytes,
            pushes: HashMap::new(),
            sequences: HashMap::new(),
            steps: VecDeque::new(),
            seen: layers,
        }
    }

    /// Starts to push a transfer. Call it before its sequence is given to the engine.
    ///
    /// # Panics
    /// Where the sequence or transfer is being pushed already: ids are never used twice.
    pub fn start(&mut self, push: Push) {
        let old = self.sequences.insert(push.transfer, push.sequence);
        assert!(old.is_none(), "{:?} is being pushed already", push.transfer);
        let planned = push.tokens.start;
        let old = self.pushes.insert(push.sequence, Pushing { push, planned });
        assert!(old.is_none(), "a sequence has one transfer");
    }

    /// Nothing of this transfer goes out any more. Harmless where it has gone out already.
    pub fn stop(&mut self, transfer: TransferId) {
        if let Some(sequence) = self.sequences.remove(&transfer) {
            self.pushes.remove(&sequence);
        }
    }

    /// A step is about to run, after those announced before. Its writes are planned now, while the
    /// step still computes, so that a layer's first write goes out at once.
    ///
    /// # Panics
    /// Where it does not start where the step before it ends.
    pub fn step_planned(&mut self, first_layer: u64, parts: &[StepPart]) {
        let in_step = self.in_step();
        let next = self
            .steps
            .back()
            .map_or(self.seen, |s| s.first_layer + in_step);
        assert_eq!(first_layer, next, "steps follow one another");
        let parts = parts.iter().filter_map(|part| self.plan(part)).collect();
        self.steps.push_back(Step { first_layer, parts });
    }

    /// How far the counter moves in one step.
    fn in_step(&self) -> u64 {
        self.source.geometry().bumps()
    }

    fn plan(&mut self, part: &StepPart) -> Option<Part> {
        let Pushing { push, planned } = self.pushes.get_mut(&part.sequence)?;
        let page = u32::from(self.source.geometry().page_tokens);
        let complete = if part.last {
            push.tokens.end
        } else {
            (part.end / page * page).min(push.tokens.end)
        };
        let tokens = *planned..complete.max(*planned);
        *planned = tokens.end;
        let writes = |of: &PushFlow| {
            let arena = self.source.arena(of.flow.source);
            let first = self.source.shards()[usize::from(of.flow.source)]
                .heads
                .start;
            let source = Side {
                arena: &arena,
                pages: &push.source_pages,
                from: 0,
                head: of.flow.heads.start - first,
            };
            let target = Side {
                arena: &of.target,
                pages: &push.target_pages,
                from: push.target_from,
                head: of.flow.heads.start - of.target_head,
            };
            let heads = of.flow.heads.len() as u16;
            plan::templates(source, target, heads, tokens.clone(), self.max_write_bytes)
        };
        let context = |of: &PushFlow| {
            let (from, to) = (push.source_pages.last()?, push.target_pages.last()?);
            let source = self.source.arena(of.flow.source);
            let goes = part.last && of.flow.context;
            goes.then(|| plan::context((&source, *from), (&of.target, *to)))
        };
        Some(Part {
            sequence: part.sequence,
            last: part.last,
            writes: push.flows.iter().map(writes).collect(),
            context: push.flows.iter().map(context).collect(),
        })
    }

    /// Whether a step is under way, so that the counter will move.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        !self.steps.is_empty()
    }

    /// The counter stands at `layers`: what is to be done now, in order. Layers of a step whose
    /// announcement is still on its way wait for it.
    pub fn progress(&mut self, layers: u64, mut act: impl FnMut(PushAction)) {
        let in_step = self.in_step();
        while self.seen < layers {
            let Some(step) = self.steps.pop_front() else {
                return;
            };
            let done = (step.first_layer + in_step).min(layers);
            for layer in self.seen..done {
                let layer = (layer - step.first_layer) as u16;
                if layer < self.source.geometry().layers {
                    self.layer(&step, layer, &mut act);
                } else {
                    self.context(&step, &mut act);
                }
            }
            self.seen = done;
            if done < step.first_layer + in_step {
                self.steps.push_front(step);
            } else {
                self.end(&step, &mut act);
            }
        }
    }

    fn layer(&self, step: &Step, layer: u16, act: &mut impl FnMut(PushAction)) {
        for part in &step.parts {
            let Some(Pushing { push, .. }) = self.pushes.get(&part.sequence) else {
                continue;
            };
            for (of, writes) in push.flows.iter().zip(&part.writes) {
                let Some((ours, theirs)) = of.flow.layer(layer) else {
                    continue;
                };
                let arena = self.source.arena(of.flow.source);
                let source = u64::from(ours) * arena.layer_bytes() as u64;
                let target = u64::from(theirs) * of.target.layer_bytes() as u64;
                for write in writes {
                    act(PushAction::Write {
                        flow: of.id,
                        source: of.flow.source,
                        write: PlannedWrite {
                            source: source + write.source,
                            target: target + write.target,
                            ..*write
                        },
                        immediate: Immediate::new(of.key, write.pieces),
                    });
                }
            }
        }
    }

    fn context(&self, step: &Step, act: &mut impl FnMut(PushAction)) {
        for part in &step.parts {
            let Some(Pushing { push, .. }) = self.pushes.get(&part.sequence) else {
                continue;
            };
            for (of, write) in push.flows.iter().zip(&part.context) {
                if let Some(write) = write {
                    act(PushAction::Write {
                        flow: of.id,
                        source: of.flow.source,
                        write: *write,
                        immediate: Immediate::new(of.key, write.pieces),
                    });
                }
            }
        }
    }

    fn end(&mut self, step: &Step, act: &mut impl FnMut(PushAction)) {
        for part in step.parts.iter().filter(|p| p.last) {
            let Some(Pushing { push, .. }) = self.pushes.remove(&part.sequence) else {
                continue;
            };
            self.sequences.remove(&push.transfer);
            for of in &push.flows {
                act(PushAction::Seal {
                    flow: of.id,
                    source: of.flow.source,
                });
            }
            act(PushAction::Sealed {
                transfer: push.transfer,
            });
        }
    }
}

#[cfg(test)]
mod tests;

//! Turning layer progress into writes: what the watcher thread decides.
//!
//! Owns which transfer belongs to which engine sequence and which steps are under way. Refuses to
//! guess: a step's content is announced before it runs, a layer counts as complete only when the
//! engine's counter has passed it.
//!
//! What must hold: every layer of every completed page goes out exactly once, however many bumps
//! the watcher sees at once; after [`PushPlanner::stop`] nothing of a transfer goes out.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::arena::ArenaLayout;
use crate::immediate::{Immediate, SlotKey};
use crate::plan::{self, PlannedWrite};
use crate::{PageIndex, SequenceId, TransferId};

/// A transfer that is to be pushed while its sequence is prefilled.
#[derive(Clone, Debug)]
pub struct Push {
    /// Which transfer.
    pub transfer: TransferId,
    /// The sequence that computes it.
    pub sequence: SequenceId,
    /// Its pages here.
    pub source_pages: Arc<[PageIndex]>,
    /// The pages at the target, at least as many.
    pub target_pages: Arc<[PageIndex]>,
    /// Layout of the target's arena.
    pub target: ArenaLayout,
    /// What the immediates carry.
    pub key: SlotKey,
}

/// One sequence's tokens in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepPart {
    /// Which sequence.
    pub sequence: SequenceId,
    /// First token.
    pub start: u32,
    /// One past the last token.
    pub end: u32,
    /// Whether it is the sequence's last step.
    pub last: bool,
}

/// What the watcher is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushAction {
    /// Post this write.
    Write {
        /// Of which transfer.
        transfer: TransferId,
        /// What to copy.
        write: PlannedWrite,
        /// What the target counts.
        immediate: Immediate,
    },
    /// Every write of the transfer has been handed out.
    Seal {
        /// Which transfer.
        transfer: TransferId,
    },
}

/// Plans pushes from layer progress.
#[derive(Debug)]
pub struct PushPlanner {
    source: ArenaLayout,
    max_write_bytes: u32,
    pushes: HashMap<SequenceId, Push>,
    sequences: HashMap<TransferId, SequenceId>,
    steps: VecDeque<Step>,
    /// Layers handed out, over all steps.
    seen: u64,
}

#[derive(Debug)]
struct Step {
    first_layer: u64,
    parts: Vec<StepPart>,
}

impl PushPlanner {
    /// A planner for an engine whose pages lie in `source`.
    #[must_use]
    pub fn new(source: ArenaLayout, max_write_bytes: u32) -> Self {
        Self {
            source,
            max_write_bytes,
            pushes: HashMap::new(),
            sequences: HashMap::new(),
            steps: VecDeque::new(),
            seen: 0,
        }
    }

    /// Starts to push a transfer. Call it before its sequence is given to the engine.
    ///
    /// # Panics
    /// Where the sequence or transfer is being pushed already: ids are never used twice.
    pub fn start(&mut self, push: Push) {
        assert!(
            push.target_pages.len() >= push.source_pages.len(),
            "a target for every page"
        );
        let old = self.sequences.insert(push.transfer, push.sequence);
        assert!(old.is_none(), "{:?} is being pushed already", push.transfer);
        let old = self.pushes.insert(push.sequence, push);
        assert!(old.is_none(), "a sequence has one transfer");
    }

    /// Nothing of this transfer goes out any more. Harmless where it has gone out already.
    pub fn stop(&mut self, transfer: TransferId) {
        if let Some(sequence) = self.sequences.remove(&transfer) {
            self.pushes.remove(&sequence);
        }
    }

    /// A step is about to run, after those announced before.
    ///
    /// # Panics
    /// Where it does not start where the step before it ends.
    pub fn step_planned(&mut self, first_layer: u64, parts: Vec<StepPart>) {
        let layers = u64::from(self.source.geometry().layers);
        let next = self
            .steps
            .back()
            .map_or(self.seen, |s| s.first_layer + layers);
        assert_eq!(first_layer, next, "steps follow one another");
        self.steps.push_back(Step { first_layer, parts });
    }

    /// Whether a step is under way, so that the counter will move.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        !self.steps.is_empty()
    }

    /// The counter stands at `layers`: what is to be done now, in order.
    ///
    /// # Panics
    /// Where the counter ran past the announced steps.
    pub fn progress(&mut self, layers: u64, actions: &mut Vec<PushAction>) {
        let in_step = u64::from(self.source.geometry().layers);
        while self.seen < layers {
            let step = self
                .steps
                .pop_front()
                .expect("the counter moves in announced steps only");
            let done = (step.first_layer + in_step).min(layers);
            for layer in self.seen..done {
                self.layer(&step, (layer - step.first_layer) as u16, actions);
            }
            self.seen = done;
            if done < step.first_layer + in_step {
                self.steps.push_front(step);
            } else {
                self.end(&step, actions);
            }
        }
    }

    fn layer(&self, step: &Step, layer: u16, actions: &mut Vec<PushAction>) {
        for part in &step.parts {
            let Some(push) = self.pushes.get(&part.sequence) else {
                continue;
            };
            let page_tokens = self.source.geometry().page_tokens;
            let pages = plan::completed_pages(page_tokens, part.start, part.end, part.last);
            let pages = pages.start as usize..pages.end as usize;
            let writes = plan::writes(
                &self.source,
                &push.target,
                &push.source_pages[pages.clone()],
                &push.target_pages[pages],
                layer,
                self.max_write_bytes,
            );
            actions.extend(writes.into_iter().map(|write| PushAction::Write {
                transfer: push.transfer,
                write,
                immediate: Immediate::new(push.key, write.pieces),
            }));
        }
    }

    fn end(&mut self, step: &Step, actions: &mut Vec<PushAction>) {
        for part in step.parts.iter().filter(|p| p.last) {
            if let Some(push) = self.pushes.remove(&part.sequence) {
                self.sequences.remove(&push.transfer);
                actions.push(PushAction::Seal {
                    transfer: push.transfer,
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::{KvDtype, KvGeometry};
    use crate::plan::expected_pieces;
    use proptest::prelude::*;

    const G: KvGeometry = KvGeometry {
        layers: 5,
        kv_heads: 1,
        head_dim: 2,
        page_tokens: 4,
        dtype: KvDtype::F16,
    };
    const T: TransferId = TransferId(1);
    const S: SequenceId = SequenceId(9);

    fn planner() -> PushPlanner {
        PushPlanner::new(ArenaLayout::new(G, 64), 1 << 20)
    }

    fn push(transfer: TransferId, sequence: SequenceId, first: u32, pages: u32) -> Push {
        Push {
            transfer,
            sequence,
            source_pages: (first..first + pages).map(PageIndex).collect(),
            target_pages: (0..pages).map(|i| PageIndex(63 - i)).collect(),
            target: ArenaLayout::new(G, 64),
            key: SlotKey::new(3, 1),
        }
    }

    fn part(sequence: SequenceId, start: u32, end: u32, last: bool) -> StepPart {
        StepPart {
            sequence,
            start,
            end,
            last,
        }
    }

    fn pieces(actions: &[PushAction], of: TransferId) -> u32 {
        let weight = |a: &PushAction| match a {
            PushAction::Write {
                transfer,
                immediate,
                ..
            } if *transfer == of => u32::from(immediate.weight()),
            _ => 0,
        };
        actions.iter().map(weight).sum()
    }

    #[test]
    fn a_layer_goes_out_when_the_counter_has_passed_it_and_not_before() {
        let mut p = planner();
        let mut out = Vec::new();
        p.start(push(T, S, 0, 2));
        p.step_planned(0, vec![part(S, 0, 8, true)]);
        p.progress(0, &mut out);
        assert!(out.is_empty());
        p.progress(1, &mut out);
        assert_eq!(pieces(&out, T), 2);
        p.progress(4, &mut out);
        assert_eq!(pieces(&out, T), 8);
        assert!(!out.contains(&PushAction::Seal { transfer: T }));
        p.progress(5, &mut out);
        assert_eq!(pieces(&out, T), 10);
        assert_eq!(out.last(), Some(&PushAction::Seal { transfer: T }));
        assert!(!p.is_busy());
    }

    #[test]
    fn nothing_goes_out_after_a_stop() {
        let mut p = planner();
        let mut out = Vec::new();
        p.start(push(T, S, 0, 2));
        p.step_planned(0, vec![part(S, 0, 8, true)]);
        p.progress(2, &mut out);
        p.stop(T);
        out.clear();
        p.progress(5, &mut out);
        assert!(out.is_empty());
    }

    proptest! {
        /// Two prompts in shared steps, any chunking, any coalescing of bumps: each sends what its
        /// target expects, and one seal, last.
        #[test]
        fn coalesced_bumps_send_every_layer_once(
            a in 1..60u32, b in 1..60u32, chunk in 1..30u32, bumps in proptest::collection::vec(1..12u64, 1..40),
        ) {
            let mut p = planner();
            let (ta, tb) = (TransferId(1), TransferId(2));
            let (sa, sb) = (SequenceId(1), SequenceId(2));
            p.start(push(ta, sa, 0, G.pages_for(a as usize) as u32));
            p.start(push(tb, sb, 20, G.pages_for(b as usize) as u32));
            let mut steps = 0;
            let (mut da, mut db) = (0, 0);
            while da < a || db < b {
                let mut parts = Vec::new();
                for (s, done, all) in [(sa, &mut da, a), (sb, &mut db, b)] {
                    if *done < all {
                        let end = (*done + chunk).min(all);
                        parts.push(part(s, *done, end, end == all));
                        *done = end;
                    }
                }
                p.step_planned(steps * 5, parts);
                steps += 1;
            }
            let mut out = Vec::new();
            let mut at = 0;
            for bump in bumps.into_iter().cycle() {
                at = (at + bump).min(steps * 5);
                p.progress(at, &mut out);
                if at == steps * 5 { break }
            }
            prop_assert_eq!(pieces(&out, ta), expected_pieces(&G, a as usize));
            prop_assert_eq!(pieces(&out, tb), expected_pieces(&G, b as usize));
            for t in [ta, tb] {
                let seals = out.iter().filter(|x| **x == PushAction::Seal { transfer: t }).count();
                prop_assert_eq!(seals, 1);
                let last_write = out.iter().rposition(|x| matches!(x, PushAction::Write { transfer, .. } if *transfer == t));
                let seal = out.iter().position(|x| *x == PushAction::Seal { transfer: t });
                prop_assert!(last_write < seal);
            }
        }
    }
}

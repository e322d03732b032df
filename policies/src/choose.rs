//! The rules.

use std::collections::BTreeMap;

use tandem_core::WorkerId;
use tandem_core::fleet::Worker;
use tandem_core::pairing::{Choice, Stage};

use crate::Rule;
use crate::random::Random;

/// One stage's rule, and what it remembers.
#[derive(Debug)]
pub(crate) struct Chooser {
    rule: Rule,
    random: Random,
    /// Whom round robin chose last.
    last: Option<WorkerId>,
    /// Hundredths of a turn that workers of other weights than 100 have saved up.
    turns: BTreeMap<WorkerId, u32>,
}

/// A worker's weight that is no operator's.
const FULL: u32 = 100;

impl Chooser {
    pub(crate) const fn new(rule: Rule, seed: u64) -> Self {
        Self {
            rule,
            random: Random::new(seed),
            last: None,
            turns: BTreeMap::new(),
        }
    }

    pub(crate) fn choose(&mut self, stage: Stage, candidates: &[&Worker]) -> Choice {
        assert!(!candidates.is_empty(), "a policy chooses among candidates");
        let (index, figures) = match self.rule {
            Rule::RoundRobin => (self.turn(candidates), String::new()),
            Rule::Random => (self.any(candidates, |_| true), String::new()),
            Rule::LeastLoaded => self.least(stage, candidates),
        };
        let worker = &candidates[index].facts.worker;
        let why = format!("{worker} by {}{figures}", self.rule.as_str());
        Choice { index, why }
    }

    /// Whose turn it is, where a worker of weight 50 has every second one and a worker of 200 two.
    fn turn(&mut self, candidates: &[&Worker]) -> usize {
        let weight = |w: &Worker| w.weight;
        if candidates.iter().all(|w| weight(w) == FULL) {
            self.turns.clear();
            return self.next(candidates);
        }
        let known = |id: &WorkerId| candidates.iter().any(|w| w.facts.worker == *id);
        self.turns.retain(|id, _| known(id));
        let spend = |saved: &mut u32| saved.checked_sub(FULL).map(|rest| *saved = rest).is_some();
        let last = self.last.clone();
        let again = last.and_then(|id| candidates.iter().position(|w| w.facts.worker == id));
        if let Some(index) = again
            && self
                .turns
                .get_mut(&candidates[index].facts.worker)
                .is_some_and(spend)
        {
            return index;
        }
        loop {
            // Ends: each round gives every candidate one hundredth of a turn at least.
            let index = self.next(candidates);
            let chosen = candidates[index];
            let saved = self.turns.entry(chosen.facts.worker.clone()).or_default();
            *saved += weight(chosen);
            if spend(saved) {
                return index;
            }
        }
    }

    /// One of those that `fits`, with chances in proportion to their weights.
    fn any(&mut self, candidates: &[&Worker], fits: impl Fn(usize) -> bool) -> usize {
        let weight = |index: usize| candidates[index].weight as usize;
        let fitting = || (0..candidates.len()).filter(|index| fits(*index));
        let mut drawn = self.random.below(fitting().map(weight).sum());
        let mut chosen = 0;
        for index in fitting() {
            chosen = index;
            match drawn.checked_sub(weight(index)) {
                Some(rest) => drawn = rest,
                None => break,
            }
        }
        chosen
    }

    /// The first candidate whose name comes after the last choice's, so that workers that come and
    /// go, or are full for a while, do not shift the others' turns.
    fn next(&mut self, candidates: &[&Worker]) -> usize {
        let after = |w: &&Worker| self.last.as_ref().is_none_or(|last| w.facts.worker > *last);
        let index = candidates.iter().position(after).unwrap_or(0);
        self.last = Some(candidates[index].facts.worker.clone());
        index
    }

    fn least(&mut self, stage: Stage, candidates: &[&Worker]) -> (usize, String) {
        let own = |w: &Worker| match stage {
            Stage::Prefill => w.queued_tokens(),
            // Parts of 2^20 in use, so that workers of different sizes compare.
            Stage::Decode => {
                let total = u64::from(w.facts.layout.pages());
                (total - u64::from(w.free_pages()).min(total)) * (1 << 20) / total
            }
        };
        let load = |w: &Worker| own(w).saturating_mul(100) / u64::from(w.weight);
        let least = candidates.iter().map(|w| load(w)).min().unwrap_or(0);
        let index = self.any(candidates, |index| load(candidates[index]) == least);
        let chosen = candidates[index];
        let figures = match stage {
            Stage::Prefill => format!(" ({} prompt tokens waiting)", chosen.queued_tokens()),
            Stage::Decode => {
                format!(
                    " ({} of {} pages free)",
                    chosen.free_pages(),
                    chosen.facts.layout.pages()
                )
            }
        };
        (index, figures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tandem_core::fleet::{Standing, WorkerFacts, WorkerLoad};
    use tandem_core::geometry::{KvDtype, KvGeometry, KvKind, KvOrder};
    use tandem_core::layout::WorkerLayout;
    use tandem_core::{Incarnation, WorkerRole};

    fn worker(name: &str, free_pages: u32, pages: u32, tokens: u64) -> Worker {
        let geometry = KvGeometry {
            layers: 1,
            kv_heads: 1,
            head_dim: 1,
            page_tokens: 1,
            dtype: KvDtype::F16,
            kind: KvKind::Heads,
            order: KvOrder::Together,
            context_bytes: 0,
        };
        let layout = WorkerLayout::tensor_parallel(geometry, pages, 1).unwrap();
        Worker {
            facts: WorkerFacts {
                worker: WorkerId::new(name).unwrap(),
                incarnation: Incarnation(1),
                role: WorkerRole::Decode,
                model: String::new(),
                fingerprint: String::new(),
                context_length: 1,
                layout: layout.into(),
                provider: String::new(),
            },
            load: WorkerLoad {
                free_pages,
                queued_prompt_tokens: tokens,
                ..WorkerLoad::default()
            },
            picked_pages: 0,
            picked_tokens: 0,
            full: false,
            standing: Standing::default(),
            weight: 100,
        }
    }

    fn names(chooser: &mut Chooser, stage: Stage, all: &[Worker], times: usize) -> Vec<String> {
        let refs: Vec<&Worker> = all.iter().collect();
        (0..times)
            .map(|_| {
                all[chooser.choose(stage, &refs).index]
                    .facts
                    .worker
                    .to_string()
            })
            .collect()
    }

    #[test]
    fn round_robin_keeps_its_turn_when_a_worker_is_full_for_a_while() {
        let mut chooser = Chooser::new(Rule::RoundRobin, 0);
        let all = [
            worker("a", 1, 1, 0),
            worker("b", 1, 1, 0),
            worker("c", 1, 1, 0),
        ];
        assert_eq!(
            names(&mut chooser, Stage::Decode, &all, 4),
            ["a", "b", "c", "a"]
        );
        assert_eq!(names(&mut chooser, Stage::Decode, &all[2..], 1), ["c"]);
        assert_eq!(names(&mut chooser, Stage::Decode, &all, 2), ["a", "b"]);
    }

    #[test]
    fn least_loaded_counts_shares_for_decode_and_tokens_for_prefill() {
        let mut chooser = Chooser::new(Rule::LeastLoaded, 0);
        let all = [worker("big", 50, 100, 5), worker("small", 9, 10, 7)];
        assert_eq!(names(&mut chooser, Stage::Decode, &all, 1), ["small"]);
        assert_eq!(names(&mut chooser, Stage::Prefill, &all, 1), ["big"]);
    }

    #[test]
    fn equals_are_chosen_by_chance_and_the_seed_repeats_the_chances() {
        let all = [
            worker("a", 1, 1, 0),
            worker("b", 1, 1, 0),
            worker("c", 1, 1, 0),
        ];
        for rule in [Rule::LeastLoaded, Rule::Random] {
            let first = names(&mut Chooser::new(rule, 7), Stage::Decode, &all, 60);
            let again = names(&mut Chooser::new(rule, 7), Stage::Decode, &all, 60);
            assert_eq!(first, again);
            for name in ["a", "b", "c"] {
                assert!(first.iter().filter(|n| *n == name).count() > 5, "{name}");
            }
        }
    }

    #[test]
    fn every_rule_gives_a_worker_work_by_its_weight() {
        let mut all = [worker("a", 10, 10, 0), worker("b", 10, 10, 0)];
        all[1].weight = 50;
        for rule in [Rule::RoundRobin, Rule::Random, Rule::LeastLoaded] {
            let names = names(&mut Chooser::new(rule, 7), Stage::Decode, &all, 300);
            let share = names.iter().filter(|name| *name == "b").count();
            assert!((80..=120).contains(&share), "{}: {share}", rule.as_str());
        }
        let mut all = [worker("a", 6, 10, 0), worker("b", 5, 10, 0)];
        all[1].weight = 200;
        let mut chooser = Chooser::new(Rule::LeastLoaded, 0);
        assert_eq!(names(&mut chooser, Stage::Decode, &all, 1), ["b"]);
        let mut chooser = Chooser::new(Rule::RoundRobin, 0);
        let turns = names(&mut chooser, Stage::Decode, &all, 6);
        assert_eq!(turns, ["a", "b", "b", "a", "b", "b"]);
    }

    #[test]
    fn a_choice_says_why() {
        let all = [worker("a", 3, 4, 0)];
        let refs: Vec<&Worker> = all.iter().collect();
        let choice = Chooser::new(Rule::LeastLoaded, 0).choose(Stage::Decode, &refs);
        assert_eq!(choice.why, "a by least_loaded (3 of 4 pages free)");
    }
}

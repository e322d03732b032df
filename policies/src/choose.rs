//! The rules.

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
}

impl Chooser {
    pub(crate) const fn new(rule: Rule, seed: u64) -> Self {
        Self {
            rule,
            random: Random::new(seed),
            last: None,
        }
    }

    pub(crate) fn choose(&mut self, stage: Stage, candidates: &[&Worker]) -> Choice {
        assert!(!candidates.is_empty(), "a policy chooses among candidates");
        let (index, figures) = match self.rule {
            Rule::RoundRobin => (self.next(candidates), String::new()),
            Rule::Random => (self.random.below(candidates.len()), String::new()),
            Rule::LeastLoaded => self.least(stage, candidates),
        };
        let worker = &candidates[index].facts.worker;
        let why = format!("{worker} by {}{figures}", self.rule.as_str());
        Choice { index, why }
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
        let load = |w: &Worker| match stage {
            Stage::Prefill => w.queued_tokens(),
            // Parts of 2^20 in use, so that workers of different sizes compare.
            Stage::Decode => {
                let total = u64::from(w.facts.layout.pages());
                (total - u64::from(w.free_pages()).min(total)) * (1 << 20) / total
            }
        };
        let least = candidates.iter().map(|w| load(w)).min().unwrap_or(0);
        let equals: Vec<usize> = (0..candidates.len())
            .filter(|i| load(candidates[*i]) == least)
            .collect();
        let index = equals[self.random.below(equals.len())];
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
    use tandem_core::fleet::{WorkerFacts, WorkerLoad};
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
    fn a_choice_says_why() {
        let all = [worker("a", 3, 4, 0)];
        let refs: Vec<&Worker> = all.iter().collect();
        let choice = Chooser::new(Rule::LeastLoaded, 0).choose(Stage::Decode, &refs);
        assert_eq!(choice.why, "a by least_loaded (3 of 4 pages free)");
    }
}

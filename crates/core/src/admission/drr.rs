//! Deficit round robin over flows whose next cost is known.
//!
//! Whoever's turn it is stays it until it is charged: asking twice changes nothing. A flow that was
//! served out of turn goes into debt and pays it back before its next turn.

use std::collections::{BTreeMap, VecDeque};

/// Tokens that a flow of weight 1 gets in each round. Any value is fair in the long run; this is
/// about a prompt, so that most turns serve one or two requests.
pub(super) const QUANTUM: i64 = 1024;
/// Quanta that a flow may be ahead of its share by being served out of turn.
const AHEAD: i64 = 4;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Account {
    weight: i64,
    credit: i64,
}

/// Flows in the order of their turns.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Rotation<K: Ord> {
    turns: VecDeque<K>,
    accounts: BTreeMap<K, Account>,
    /// The first has had its quantum for this turn.
    paid: bool,
}

impl<K: Ord + Clone> Rotation<K> {
    pub(super) const fn new() -> Self {
        Self {
            turns: VecDeque::new(),
            accounts: BTreeMap::new(),
            paid: false,
        }
    }

    /// A flow has something to send; it comes last. Nothing changes for one that is there.
    pub(super) fn enter(&mut self, key: K, weight: u32) {
        if !self.accounts.contains_key(&key) {
            let weight = i64::from(weight.max(1));
            let account = Account { weight, credit: 0 };
            self.accounts.insert(key.clone(), account);
            self.turns.push_back(key);
        }
    }

    /// A flow has nothing more to send. Its credit is gone.
    pub(super) fn leave(&mut self, key: &K) {
        if self.accounts.remove(key).is_some() {
            if self.turns.front() == Some(key) {
                self.paid = false;
            }
            self.turns.retain(|k| k != key);
        }
    }

    /// The flow whose turn it is, then those that may be served where it cannot be: who is owed most
    /// comes first, and who is ahead of its share by [`AHEAD`] quanta already is left out.
    pub(super) fn ahead(&self) -> Vec<&K> {
        let owed = |key: &&K| {
            let account = self.accounts.get(*key);
            account.map_or(0, |a| a.credit / a.weight)
        };
        let mut others: Vec<&K> = self.turns.iter().skip(1).collect();
        others.retain(|key| owed(key) > -AHEAD * QUANTUM);
        others.sort_by_key(|key| -owed(key));
        self.turns.front().into_iter().chain(others).collect()
    }

    /// All flows, the one whose turn it is first.
    pub(super) fn flows(&self) -> impl Iterator<Item = &K> {
        self.turns.iter()
    }

    /// Whose turn it is. `cost` is that of a flow's next request.
    pub(super) fn turn(&mut self, cost: impl Fn(&K) -> i64) -> Option<&K> {
        for visit in 0.. {
            let front = self.turns.front()?;
            let account = self.accounts.get_mut(front)?;
            if !self.paid {
                account.credit += QUANTUM * account.weight;
                self.paid = true;
            }
            if account.credit >= cost(front) {
                break;
            }
            self.turns.rotate_left(1);
            self.paid = false;
            if visit == self.turns.len() {
                self.skip_rounds(&cost);
            }
        }
        self.turns.front()
    }

    /// Pays at once the rounds in which nobody could afford its next request.
    fn skip_rounds(&mut self, cost: impl Fn(&K) -> i64) {
        let rounds = |(key, a): (&K, &Account)| {
            let (lacks, share) = (cost(key) - a.credit, QUANTUM * a.weight);
            (lacks.max(0) + share - 1) / share - 1
        };
        let rounds = self.accounts.iter().map(rounds).min().unwrap_or(0);
        for account in self.accounts.values_mut() {
            account.credit += rounds.max(0) * QUANTUM * account.weight;
        }
    }

    /// A flow's request was served, in turn or out of it.
    pub(super) fn charge(&mut self, key: &K, cost: i64) {
        if let Some(account) = self.accounts.get_mut(key) {
            account.credit -= cost;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_next_after_one_that_left_in_its_turn_is_paid_for_its_own() {
        let mut rotation = Rotation::new();
        for key in ["a", "b", "c"] {
            rotation.enter(key, 1);
        }
        assert_eq!(rotation.turn(|_| QUANTUM), Some(&"a"));
        rotation.leave(&"a");
        assert_eq!(rotation.turn(|_| QUANTUM), Some(&"b"));
        rotation.leave(&"c");
        assert_eq!(rotation.turn(|_| QUANTUM), Some(&"b"), "its turn goes on");
    }
}

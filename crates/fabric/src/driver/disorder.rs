//! For tests: what a queue gave is held back for a while and let through out of order.
//!
//! Nothing is promised about order (EFA delivers out of order), and software providers keep it all
//! the same; so what must not rely on order is run with this in between.

use std::collections::VecDeque;

/// Turns that something is held back, at most.
const LONGEST: u32 = 64;

/// A queue that lets everything through at once, in order; or, with a seed, later and shuffled.
pub(crate) struct Disorder<T> {
    state: Option<u64>,
    held: VecDeque<(u32, T)>,
}

impl<T> Disorder<T> {
    pub(crate) fn new(seed: Option<u64>) -> Self {
        Self {
            // Zero is the one state that xorshift never leaves.
            state: seed.map(|s| s.wrapping_mul(2).wrapping_add(1)),
            held: VecDeque::new(),
        }
    }

    /// Whether anything is held back or shuffled.
    pub(crate) const fn is_on(&self) -> bool {
        self.state.is_some()
    }

    fn random(&mut self) -> Option<u64> {
        let state = self.state.as_mut()?;
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        Some(*state)
    }

    pub(crate) fn push(&mut self, item: T) {
        let turns = self.random().map_or(0, |r| r as u32 % LONGEST);
        self.held.push_back((turns, item));
    }

    /// Where to put something new between `least` and `len`, which is where it belongs.
    pub(crate) fn place(&mut self, least: usize, len: usize) -> usize {
        self.random()
            .map_or(len, |r| least + r as usize % (len - least + 1))
    }

    /// Another turn has come.
    pub(crate) fn turn(&mut self) {
        if self.state.is_some() {
            for (turns, _) in &mut self.held {
                *turns = turns.saturating_sub(1);
            }
        }
    }

    /// The next thing whose time has come.
    pub(crate) fn pop(&mut self) -> Option<T> {
        if self.state.is_none() {
            return self.held.pop_front().map(|(_, item)| item);
        }
        let due = self.held.iter().position(|(turns, _)| *turns == 0)?;
        self.held.remove(due).map(|(_, item)| item)
    }

    /// Everything, whether its time has come or not.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = T> + '_ {
        self.held.drain(..).map(|(_, item)| item)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_seed_order_and_time_stay() {
        let mut queue = Disorder::new(None);
        (0..5).for_each(|i| queue.push(i));
        assert_eq!(queue.place(1, 4), 4);
        let out: Vec<i32> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(out, [0, 1, 2, 3, 4]);
    }

    #[test]
    fn with_a_seed_everything_comes_through_once_in_another_order() {
        let mut queue = Disorder::new(Some(7));
        (0..50).for_each(|i| queue.push(i));
        let mut out = Vec::new();
        for _ in 0..LONGEST {
            queue.turn();
            out.extend(std::iter::from_fn(|| queue.pop()));
        }
        assert!(queue.is_empty());
        let sorted: Vec<i32> = (0..50).collect();
        assert_ne!(out, sorted);
        out.sort_unstable();
        assert_eq!(out, sorted);
    }
}

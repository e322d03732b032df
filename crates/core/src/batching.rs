//! Continuous batching with chunked prefill: what one step of an engine holds.
//!
//! The same rules for an engine that computes, one that only takes the time, and a fleet in simulated time.

/// What one step may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepBounds {
    /// Prompt tokens, at most.
    pub chunk_tokens: u32,
    /// Sequences that generate, at most.
    pub max_batch: usize,
}

/// What one step runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Of the first prompts, the tokens that each has in the step.
    pub chunks: Vec<usize>,
    /// Those that generate, by their places among all.
    pub decodes: Vec<usize>,
}

impl Step {
    /// Whether it runs nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty() && self.decodes.is_empty()
    }
}

/// The next step: of prompts with `left` tokens to go, in the order they came, and of sequences of which
/// some are `ready` to generate, those first that wait longest for a step ([`served_to_the_back`]).
#[must_use]
pub fn next_step(
    left: impl Iterator<Item = usize>,
    ready: impl Iterator<Item = bool>,
    bounds: StepBounds,
) -> Step {
    let chunk = bounds.chunk_tokens as usize;
    let left: Vec<usize> = left.take(chunk).collect();
    let ready = ready.enumerate().filter(|(_, ready)| *ready);
    Step {
        chunks: shares(&left, chunk),
        decodes: ready.map(|(at, _)| at).take(bounds.max_batch).collect(),
    }
}

/// A step is over for those that generated in it (their places, rising): they wait behind all others.
pub fn served_to_the_back<T>(sequences: &mut [T], served: &[usize]) {
    if let Some(last) = served.last() {
        sequences.rotate_left(last + 1);
    }
}

/// Shares a step's `chunk` tokens among sequences that have `left` tokens to go, at most as many as
/// the chunk has tokens: equal shares, and what the short ones leave goes to the long ones. So a short
/// prompt passes the long ones that were there before it, and each sequence gets at least one token.
#[must_use]
pub fn shares(left: &[usize], chunk: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..left.len()).collect();
    order.sort_by_key(|index| left[*index]);
    let mut shares = vec![0; left.len()];
    let mut rest = chunk;
    for (served, index) in order.into_iter().enumerate() {
        let share = left[index].min(rest / (left.len() - served));
        shares[index] = share;
        rest -= share;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::{StepBounds, next_step, served_to_the_back, shares};

    #[test]
    fn a_step_is_shared_equally_and_none_of_it_is_wasted() {
        assert_eq!(shares(&[], 16), [0; 0]);
        assert_eq!(shares(&[2000], 512), [512]);
        assert_eq!(shares(&[2000, 2000, 5], 512), [253, 254, 5]);
        assert_eq!(shares(&[3, 4], 512), [3, 4]);
        assert_eq!(shares(&[9, 9, 9], 4), [1, 1, 2]);
    }

    #[test]
    fn who_generated_waits_behind_those_that_did_not() {
        let bounds = StepBounds {
            chunk_tokens: 8,
            max_batch: 2,
        };
        let mut sequences = [("a", true), ("b", false), ("c", true), ("d", true)];
        let ready = |all: &[(&str, bool)]| all.iter().map(|s| s.1).collect::<Vec<_>>();
        let step = next_step([5, 20].into_iter(), ready(&sequences).into_iter(), bounds);
        assert_eq!(
            (step.chunks, step.decodes.as_slice()),
            (vec![4, 4], &[0, 2][..])
        );
        served_to_the_back(&mut sequences, &step.decodes);
        assert_eq!(sequences.map(|s| s.0), ["d", "a", "b", "c"]);
        let idle = next_step([].into_iter(), [false].into_iter(), bounds);
        assert!(idle.is_empty());
    }
}

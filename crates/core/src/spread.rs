//! Spreading writes over lanes, evenly by bytes and by operations.
//!
//! A lane is a pair of NICs, one on each side. The two sides need not have equally many: with `n`
//! here and `m` there, every NIC takes part in as many lanes as every other of its side.

/// What a write costs a NIC beside its bytes, in bytes: a NIC of EFA sends as many bytes in the time
/// that one operation takes (400 Gbit/s over two NICs of 1.05 million writes a second each, measured
/// by Perplexity, arXiv 2510.27656).
pub const WRITE_COST: u64 = 24 * 1024;

/// Pairs of NICs `(ours, theirs)`: each of ours equally often, each of theirs equally often, and no
/// more of them than that takes.
///
/// # Panics
/// Where a side has no NIC.
#[must_use]
pub fn lanes(ours: usize, theirs: usize) -> Vec<(usize, usize)> {
    assert!(ours > 0 && theirs > 0, "a side without a NIC");
    let mut common = ours.max(theirs);
    while !common.is_multiple_of(ours) || !common.is_multiple_of(theirs) {
        common += 1;
    }
    (0..common).map(|i| (i % ours, i % theirs)).collect()
}

/// Chooses a lane for each write.
#[derive(Clone, Debug)]
pub struct Spread {
    /// What each lane was given so far.
    given: Vec<u64>,
    /// Where to look first, so that equal lanes take turns.
    next: usize,
}

impl Spread {
    /// # Panics
    /// Where `lanes` is 0.
    #[must_use]
    pub fn new(lanes: usize) -> Self {
        assert!(lanes > 0, "no lane");
        Self {
            given: vec![0; lanes],
            next: 0,
        }
    }

    /// The lane that was given least, among those that have room. `None` where none has.
    #[must_use]
    pub fn choose(&self, has_room: impl Fn(usize) -> bool) -> Option<usize> {
        let lanes = self.given.len();
        let turned = (0..lanes).map(|i| (self.next + i) % lanes);
        turned
            .filter(|lane| has_room(*lane))
            .min_by_key(|lane| self.given[*lane])
    }

    /// A write of `bytes` went to `lane`.
    pub fn gave(&mut self, lane: usize, bytes: u32) {
        self.given[lane] += u64::from(bytes) + WRITE_COST;
        self.next = (lane + 1) % self.given.len();
        // A lane that was out of use does not get all writes once it is back.
        let most = self.given.iter().copied().max().unwrap_or(0);
        let floor = most.saturating_sub(SLACK);
        self.given.iter_mut().for_each(|g| *g = (*g).max(floor));
        if floor > 0 {
            self.given.iter_mut().for_each(|g| *g -= floor);
        }
    }
}

/// How far a lane may fall behind and still catch up.
const SLACK: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_nic_is_in_as_many_lanes_as_the_others_of_its_side() {
        for ours in 1..=4usize {
            for theirs in 1..=4usize {
                let lanes = lanes(ours, theirs);
                let mut distinct = lanes.clone();
                distinct.sort_unstable();
                distinct.dedup();
                assert_eq!(distinct.len(), lanes.len());
                for nic in 0..ours {
                    let of = lanes.iter().filter(|l| l.0 == nic).count();
                    assert_eq!(of * ours, lanes.len());
                }
                for nic in 0..theirs {
                    let of = lanes.iter().filter(|l| l.1 == nic).count();
                    assert_eq!(of * theirs, lanes.len());
                }
            }
        }
    }

    #[test]
    fn equal_writes_take_turns() {
        let mut spread = Spread::new(3);
        let mut order = Vec::new();
        for _ in 0..6 {
            let lane = spread.choose(|_| true).unwrap();
            spread.gave(lane, 4096);
            order.push(lane);
        }
        assert_eq!(order, [0, 1, 2, 0, 1, 2]);
        assert_eq!(spread.choose(|_| false), None);
    }

    #[test]
    fn a_lane_that_comes_back_does_not_take_everything() {
        let mut spread = Spread::new(2);
        for _ in 0..1000 {
            let lane = spread.choose(|lane| lane == 0).unwrap();
            spread.gave(lane, 1 << 20);
        }
        let mut given = [0, 0];
        for _ in 0..1000 {
            let lane = spread.choose(|_| true).unwrap();
            spread.gave(lane, 1 << 20);
            given[lane] += 1;
        }
        assert!(given[0] > 400, "{given:?}");
    }

    proptest! {
        /// Whatever the sizes, no two lanes differ by more than one largest write.
        #[test]
        fn lanes_get_alike(lanes in 1..13usize, sizes in proptest::collection::vec(1..1_000_000u32, 1..400)) {
            let mut spread = Spread::new(lanes);
            let mut given = vec![0u64; lanes];
            for size in &sizes {
                let lane = spread.choose(|_| true).unwrap();
                spread.gave(lane, *size);
                given[lane] += u64::from(*size) + WRITE_COST;
            }
            let most = u64::from(sizes.iter().copied().max().unwrap_or(0)) + WRITE_COST;
            let (low, high) = (given.iter().min().unwrap(), given.iter().max().unwrap());
            prop_assert!(high - low <= most);
        }
    }
}

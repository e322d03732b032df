//! A table by flow. Its keys are looked up several times for each write, and this process makes them
//! itself: a hash that nobody can aim at is not needed.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use tandem_core::FlowId;

pub(crate) type ByFlow<T> = HashMap<FlowId, T, BuildHasherDefault<FlowHasher>>;

/// Fibonacci hashing (Knuth, volume 3, 6.4): multiplies by 2⁶⁴ ÷ φ.
#[derive(Default)]
pub(crate) struct FlowHasher(u64);

impl Hasher for FlowHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, n: u64) {
        let mixed = (self.0 ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // The table takes its buckets from the low bits and its tags from the high ones.
        self.0 = mixed ^ mixed >> 32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::BuildHasher;

    #[test]
    fn neighbouring_flows_have_their_own_buckets() {
        let hasher = BuildHasherDefault::<FlowHasher>::default();
        let low = |id| hasher.hash_one(FlowId(id)) & 0xfff;
        let buckets: std::collections::HashSet<u64> = (0..256).map(low).collect();
        assert!(buckets.len() > 200, "{}", buckets.len());
    }
}

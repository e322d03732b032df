//! The bytes of KV entries, and what bytes come to.
//!
//! The entry of a token in a layer, plane and head is made of a hash of all tokens up to it, as a real one
//! is of all tokens that it attends to. What is found is summed up number by number, each multiplied by an
//! odd number of its own place: so any one number that is wrong changes the sum, and the sum depends on no
//! order.

use tandem_core::PageIndex;
use tandem_core::geometry::KvGeometry;

use crate::Arenas;

/// Odd, and no pattern in its bits.
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
const SPREAD: u64 = 0xd6e8_feb8_6659_fd93;
/// Bytes of the numbers that entries are summed up by.
const NUMBER: usize = 2;

/// Spreads a number's bits over all of 64.
pub(super) const fn mix(number: u64) -> u64 {
    let wide = (number ^ SPREAD) as u128 * ODD as u128;
    let folded = (wide as u64) ^ (wide >> 64) as u64;
    let wide = (folded ^ ODD) as u128 * SPREAD as u128;
    (wide as u64) ^ (wide >> 64) as u64
}

/// The hash of no tokens.
pub(super) const START: u64 = 0x7461_6e64_656d_2d31;

/// The hash of some tokens and one more.
pub(super) const fn chain(before: u64, token: u32) -> u64 {
    mix(before.rotate_left(7) ^ (token as u64 + 1))
}

/// Consecutive tokens of one sequence that lie in one page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) page: PageIndex,
    /// Position of the first token.
    pub(super) first: usize,
    /// Its place in the page.
    pub(super) slot: usize,
    pub(super) tokens: usize,
}

/// The runs of positions `start..end`.
pub(super) fn runs(
    pages: &[PageIndex],
    page_tokens: usize,
    start: usize,
    end: usize,
) -> impl Iterator<Item = Run> + '_ {
    let mut first = start;
    std::iter::from_fn(move || {
        let left = end.checked_sub(first).filter(|left| *left > 0)?;
        let slot = first % page_tokens;
        let run = Run {
            page: pages[first / page_tokens],
            first,
            slot,
            tokens: left.min(page_tokens - slot),
        };
        first += run.tokens;
        Some(run)
    })
}

/// Reads and writes entries in arenas.
pub(super) struct Entries {
    arenas: Arenas,
    /// Of each layer, plane and head.
    seeds: Vec<u64>,
    /// Of each shard, the first one that holds the same part.
    twins: Vec<usize>,
    /// Working memory.
    bytes: Vec<u8>,
    sums: Vec<u64>,
}

impl Entries {
    pub(super) fn new(arenas: Arenas) -> Self {
        let layout = arenas.layout();
        let g = layout.geometry();
        let seeds = u64::from(g.layers) * u64::from(g.kind.planes()) * u64::from(g.kv_heads);
        let shards = layout.shards();
        let twin = |of: &tandem_core::layout::Shard| {
            let same = |s: &tandem_core::layout::Shard| s == of;
            shards.iter().position(same).unwrap_or(0)
        };
        Self {
            twins: shards.iter().map(twin).collect(),
            seeds: (1..=seeds).map(|n| mix(n.wrapping_mul(ODD))).collect(),
            arenas,
            bytes: Vec::new(),
            sums: Vec::new(),
        }
    }

    pub(super) fn geometry(&self) -> &KvGeometry {
        self.arenas.layout().geometry()
    }

    /// Writes a run's entries of one layer to every shard that holds a part of it. `chains` are the
    /// hashes of the run's tokens, each with those before it.
    pub(super) fn write(&mut self, layer: u16, run: &Run, chains: &[u64]) {
        let g = *self.geometry();
        let (token, head_bytes) = (g.token_bytes(), g.head_bytes());
        let layout = self.arenas.layout();
        for (index, shard) in layout.shards().iter().enumerate() {
            let arena = layout.arena(index as u16);
            let memory = self.arenas.memory(index);
            for plane in 0..g.kind.planes() {
                let at = arena.offset(layer, plane, run.page);
                for (local, head) in shard.heads.clone().enumerate() {
                    let seed = self.seeds[place(&g, layer, plane, head)];
                    self.bytes.clear();
                    for chain in chains {
                        fill(&mut self.bytes, chain ^ seed, token);
                    }
                    let at = at + local * head_bytes + run.slot * token;
                    memory.write(at, &self.bytes);
                }
            }
        }
    }

    /// What the entries of a run come to, in all layers and shards. Copies of one part that differ come to
    /// something else than copies that agree.
    pub(super) fn sum(&mut self, run: &Run) -> u64 {
        let g = *self.geometry();
        let (token, head_bytes) = (g.token_bytes(), g.head_bytes());
        let layout = self.arenas.layout();
        self.sums.clear();
        for (index, shard) in layout.shards().iter().enumerate() {
            let arena = layout.arena(index as u16);
            let memory = self.arenas.memory(index);
            self.bytes.resize(shard.heads.len() * head_bytes, 0);
            let mut sum = 0u64;
            for layer in shard.layers.clone() {
                for plane in 0..g.kind.planes() {
                    memory.read(arena.offset(layer, plane, run.page), &mut self.bytes);
                    for (local, head) in shard.heads.clone().enumerate() {
                        let seed = self.seeds[place(&g, layer, plane, head)];
                        let from = local * head_bytes + run.slot * token;
                        let found = &self.bytes[from..from + run.tokens * token];
                        sum = sum.wrapping_add(weigh(found, seed, run.first * token / NUMBER));
                    }
                }
            }
            self.sums.push(sum);
        }
        let parts = self.sums.iter().zip(&self.twins).enumerate();
        let part = |(index, (sum, twin)): (usize, (&u64, &usize))| {
            if *twin == index {
                return *sum;
            }
            let differ = sum.wrapping_sub(self.sums[*twin]);
            differ.wrapping_mul(self.seeds[0] | 1)
        };
        parts.map(part).fold(0, u64::wrapping_add)
    }
}

fn place(g: &KvGeometry, layer: u16, plane: u16, head: u16) -> usize {
    let (planes, heads) = (usize::from(g.kind.planes()), usize::from(g.kv_heads));
    (usize::from(layer) * planes + usize::from(plane)) * heads + usize::from(head)
}

/// One entry's bytes.
fn fill(bytes: &mut Vec<u8>, of: u64, len: usize) {
    for word in 0..len.div_ceil(8) {
        let value = mix(of ^ (word as u64).rotate_right(8)).to_le_bytes();
        bytes.extend_from_slice(&value[..8.min(len - word * 8)]);
    }
}

/// The sum of numbers, each times an odd number of its place; `first` is the first one's.
fn weigh(bytes: &[u8], seed: u64, first: usize) -> u64 {
    let mut weight = seed.wrapping_add((first as u64).wrapping_mul(ODD << 1)) | 1;
    let mut sum = 0u64;
    for number in bytes.as_chunks::<NUMBER>().0 {
        let number = u64::from(u16::from_le_bytes(*number)) + 1;
        sum = sum.wrapping_add(number.wrapping_mul(weight));
        weight = weight.wrapping_add(ODD << 1);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_one_byte_changes_the_sum() {
        let bytes: Vec<u8> = (0..64).collect();
        let whole = weigh(&bytes, 12_345, 7);
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut other = bytes.clone();
                other[at] ^= 1 << bit;
                assert_ne!(weigh(&other, 12_345, 7), whole, "bit {bit} of byte {at}");
            }
        }
    }

    #[test]
    fn a_sum_is_that_of_its_parts() {
        let bytes: Vec<u8> = (0..64).collect();
        let (front, back) = bytes.split_at(24);
        let parts = weigh(front, 9, 100).wrapping_add(weigh(back, 9, 100 + 12));
        assert_eq!(weigh(&bytes, 9, 100), parts);
    }

    #[test]
    fn runs_cover_positions_page_by_page() {
        let pages = [4, 9, 2].map(PageIndex);
        let found: Vec<_> = runs(&pages, 16, 5, 40)
            .map(|run| (run.page.0, run.first, run.slot, run.tokens))
            .collect();
        assert_eq!(found, [(4, 5, 5, 11), (9, 16, 0, 16), (2, 32, 0, 8)]);
        assert_eq!(runs(&pages, 16, 7, 7).count(), 0);
    }
}

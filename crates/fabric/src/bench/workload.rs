//! A case's page numbers, its planned writes, and the bytes that the pages hold.
//!
//! Both processes compute all of it from the case alone.

use tandem_core::PageIndex;
use tandem_core::arena::ArenaLayout;
use tandem_core::geometry::{KvDtype, KvGeometry, KvKind, KvOrder};
use tandem_core::layout::WorkerLayout;
use tandem_core::plan::{PlannedWrite, Side, expected, templates};
use tandem_memory::HostMemory;

use super::BenchError;
use super::case::Case;

const PAGE_TOKENS: u16 = 16;
/// Bytes that open a connection and warm it up.
const WARM_BYTES: u32 = 4 << 20;

/// Which part of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Before the clock starts.
    Warm,
    /// What is measured.
    Timed,
}

impl Part {
    pub(super) const ALL: [Self; 2] = [Self::Warm, Self::Timed];
}

/// One request's pages in both arenas, which it goes over as often as the case's pieces say.
pub(super) struct Workload {
    case: Case,
    layout: WorkerLayout,
    arena: ArenaLayout,
    source: Vec<PageIndex>,
    target: Vec<PageIndex>,
}

impl Workload {
    pub(super) fn new(case: &Case) -> Result<Self, BenchError> {
        case.check()?;
        let geometry = KvGeometry {
            layers: 1,
            kv_heads: 1,
            // A page is a plane of keys and one of values.
            head_dim: (case.piece_bytes / (2 * u32::from(PAGE_TOKENS) * 2)) as u16,
            page_tokens: PAGE_TOKENS,
            dtype: KvDtype::F16,
            kind: KvKind::Heads,
            order: KvOrder::Together,
            context_bytes: 0,
        };
        let pages = case.arena_pages();
        let layout = WorkerLayout::tensor_parallel(geometry, pages, 1)
            .map_err(|error| BenchError::Case(error.to_string()))?;
        let (source, target) = scattered(pages, case.run());
        Ok(Self {
            case: case.clone(),
            arena: layout.arena(0),
            layout,
            source,
            target,
        })
    }

    /// Pages of each pass over the arena.
    pub(super) fn passes(&self, part: Part) -> Vec<u32> {
        let pages = self.arena.pages();
        match part {
            Part::Warm => vec![(WARM_BYTES / self.case.piece_bytes).clamp(1, pages)],
            Part::Timed => {
                let mut passes = vec![pages; (self.case.pieces / pages) as usize];
                let rest = self.case.pieces % pages;
                passes.extend((rest > 0).then_some(rest));
                passes
            }
        }
    }

    /// The writes that carry the request's first `pages` pages, as offsets in both arenas.
    pub(super) fn writes(&self, pages: u32) -> Vec<PlannedWrite> {
        let side = |pages| Side {
            arena: &self.arena,
            pages,
            from: 0,
            head: 0,
        };
        let most = self.case.max_write_bytes;
        templates(
            side(&self.source),
            side(&self.target),
            1,
            tokens(pages),
            most,
        )
    }

    /// What the receiver counts over a part.
    pub(super) fn expected(&self, part: Part) -> u64 {
        let count = |pages| expected(&self.layout, 0, &tokens(pages), PAGE_TOKENS);
        self.passes(part).into_iter().map(count).sum()
    }

    /// Fills the sender's arena, every word with what only its place has.
    pub(super) fn fill(&self, memory: &HostMemory) {
        for page in 0..self.arena.pages() {
            memory.write(self.offset(PageIndex(page)), &self.page(PageIndex(page)));
        }
    }

    /// Empties the receiver's arena.
    pub(super) fn clear(&self, memory: &HostMemory) {
        let zeroes = vec![0; self.case.piece_bytes as usize];
        for page in 0..self.arena.pages() {
            memory.write(self.offset(PageIndex(page)), &zeroes);
        }
    }

    /// Whether every page of the timed part holds what was sent to it.
    pub(super) fn verify(&self, memory: &HostMemory) -> Result<(), BenchError> {
        let pages = self.passes(Part::Timed)[0] as usize;
        let mut found = vec![0; self.case.piece_bytes as usize];
        for (source, target) in self.source.iter().zip(&self.target).take(pages) {
            memory.read(self.offset(*target), &mut found);
            if found != self.page(*source) {
                return Err(BenchError::Wrong { page: target.0 });
            }
        }
        Ok(())
    }

    fn offset(&self, page: PageIndex) -> usize {
        self.arena.offset(0, 0, page)
    }

    fn page(&self, page: PageIndex) -> Vec<u8> {
        let first = self.offset(page) as u64;
        let words = (0..u64::from(self.case.piece_bytes) / 8).map(|i| mix(first / 8 + i));
        words.flat_map(u64::to_le_bytes).collect()
    }
}

fn tokens(pages: u32) -> std::ops::Range<u32> {
    0..pages * u32::from(PAGE_TOKENS)
}

/// Page numbers of both sides: runs of `run` pages, no two of which follow one another on both sides.
fn scattered(pages: u32, run: u32) -> (Vec<PageIndex>, Vec<PageIndex>) {
    let side = |order: &[u32]| {
        let of = |r: &u32| (r * run..(r + 1) * run).map(PageIndex);
        order.iter().flat_map(of).collect()
    };
    let mut seed = 1;
    loop {
        let source = shuffled(pages / run, &mut seed);
        let target = shuffled(pages / run, &mut seed);
        let mut pairs = source.windows(2).zip(target.windows(2));
        let follows = |(s, t): (&[u32], &[u32])| s[0] + 1 == s[1] && t[0] + 1 == t[1];
        if !pairs.any(follows) {
            return (side(&source), side(&target));
        }
    }
}

/// Fisher and Yates.
fn shuffled(count: u32, seed: &mut u64) -> Vec<u32> {
    let mut order: Vec<u32> = (0..count).collect();
    for i in (1..order.len()).rev() {
        *seed += 1;
        order.swap(i, mix(*seed) as usize % (i + 1));
    }
    order
}

/// Steele, Lea and Flood's SplitMix64.
fn mix(n: u64) -> u64 {
    let n = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ n >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ n >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ n >> 31
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::case::Layout;

    fn workload(layout: Layout, run_pages: u32, pieces: u32) -> Workload {
        let case = Case {
            layout,
            run_pages,
            ..Case::new("tcp", 16 << 10, pieces)
        };
        Workload::new(&case).unwrap()
    }

    #[test]
    fn scattered_pages_have_a_write_each_and_contiguous_ones_share() {
        for pieces in [1, 2, 3, 10, 1000, 4096] {
            let alone = workload(Layout::Scattered, 1, pieces);
            assert_eq!(alone.writes(pieces).len(), pieces as usize);
            let together = workload(Layout::Contiguous, 1, pieces);
            assert_eq!(
                together.writes(pieces).len(),
                pieces.div_ceil(64) as usize,
                "1 MiB each"
            );
        }
        let runs = workload(Layout::Scattered, 4, 1002);
        let passes = runs.passes(Part::Timed);
        assert_eq!(passes, [1000, 2], "whole runs");
        let writes = passes.into_iter().map(|pages| runs.writes(pages).len());
        assert_eq!(writes.sum::<usize>(), 251);
    }

    #[test]
    fn a_load_longer_than_the_arena_goes_over_it_again() {
        let long = workload(Layout::Scattered, 1, 10_000);
        assert_eq!(long.passes(Part::Timed), [4096, 4096, 1808]);
        assert_eq!(long.expected(Part::Timed), 20_000, "keys and values");
    }

    #[test]
    fn a_page_in_the_wrong_place_is_found() {
        let load = workload(Layout::Scattered, 1, 64);
        let bytes = 64 * (16 << 10);
        let from = HostMemory::create("from", bytes).unwrap();
        let into = HostMemory::create("into", bytes).unwrap();
        load.fill(&from);
        load.clear(&into);
        assert!(load.verify(&into).is_err());
        let mut buffer = vec![0; 16 << 10];
        for write in load.writes(64) {
            from.read(write.source as usize, &mut buffer);
            into.write(write.target as usize, &buffer);
        }
        load.verify(&into).unwrap();
        into.write(100_000, &[7]);
        assert!(load.verify(&into).is_err());
    }
}

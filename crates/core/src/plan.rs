//! Which writes carry a run of pages, and how many pieces the target will count.
//!
//! Both sides compute from this same pure code, each from its own knowledge: the sender
//! [`writes`], the target [`expected_pieces`]. Neither trusts the other's sum.
//!
//! For now both sides have the same, unsharded geometry: a page's piece of a layer goes to the same
//! layer of the page that the target gave for it.

use crate::PageIndex;
use crate::arena::ArenaLayout;
use crate::geometry::KvGeometry;
use crate::immediate::MAX_WEIGHT;

/// Bytes to copy from one arena to another, as offsets from the arenas' starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedWrite {
    /// Where they lie in the source arena.
    pub source: u64,
    /// Where they go in the target arena.
    pub target: u64,
    /// How many.
    pub bytes: u32,
    /// Pieces in them, at least 1 and at most [`MAX_WEIGHT`].
    pub pieces: u16,
}

/// Pieces that a prompt of `prefilled` tokens sends in all: one for each page and layer.
#[must_use]
pub const fn expected_pieces(geometry: &KvGeometry, prefilled: usize) -> u32 {
    (geometry.pages_for(prefilled) * geometry.layers as usize) as u32
}

/// Pages, counted from the prompt's first, that a step over the tokens `start..end` completes. A
/// prompt's last step also completes its last, partly filled page.
#[must_use]
pub const fn completed_pages(
    page_tokens: u16,
    start: u32,
    end: u32,
    last: bool,
) -> std::ops::Range<u32> {
    let page = page_tokens as u32;
    let first = start / page;
    let next = if last { end.div_ceil(page) } else { end / page };
    first..if next > first { next } else { first }
}

/// The writes that carry `layer` of `source_pages` to `target_pages`, page by page in order. Pages
/// that are neighbours on both sides share a write of at most `max_bytes` (but at least one piece).
///
/// # Panics
/// Where the two sides differ in length or in the bytes of a piece: pairs are checked when they are
/// made.
#[must_use]
pub fn writes(
    source: &ArenaLayout,
    target: &ArenaLayout,
    source_pages: &[PageIndex],
    target_pages: &[PageIndex],
    layer: u16,
    max_bytes: u32,
) -> Vec<PlannedWrite> {
    assert_eq!(
        source_pages.len(),
        target_pages.len(),
        "one target page for each source page"
    );
    let piece = source.geometry().piece_bytes() as u32;
    assert_eq!(
        piece as usize,
        target.geometry().piece_bytes(),
        "pieces of equal size"
    );
    let most = (max_bytes / piece).clamp(1, u32::from(MAX_WEIGHT));
    let mut planned: Vec<PlannedWrite> = Vec::new();
    for (from, to) in source_pages.iter().zip(target_pages) {
        let from = source.offset(layer, *from) as u64;
        let to = target.offset(layer, *to) as u64;
        if let Some(write) = planned.last_mut() {
            let end = u64::from(write.bytes);
            let follows = write.source + end == from && write.target + end == to;
            if follows && u32::from(write.pieces) < most {
                write.bytes += piece;
                write.pieces += 1;
                continue;
            }
        }
        planned.push(PlannedWrite {
            source: from,
            target: to,
            bytes: piece,
            pieces: 1,
        });
    }
    planned
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::KvDtype;
    use proptest::prelude::*;

    const G: KvGeometry = KvGeometry {
        layers: 3,
        kv_heads: 2,
        head_dim: 2,
        page_tokens: 4,
        dtype: KvDtype::F16,
    };

    fn indices(pages: &[u32]) -> Vec<PageIndex> {
        pages.iter().map(|p| PageIndex(*p)).collect()
    }

    #[test]
    fn neighbours_on_both_sides_share_a_write() {
        let arena = ArenaLayout::new(G, 16);
        let piece = G.piece_bytes() as u32;
        let planned = writes(
            &arena,
            &arena,
            &indices(&[1, 2, 3, 5]),
            &indices(&[7, 8, 10, 11]),
            1,
            1 << 20,
        );
        let weights: Vec<_> = planned
            .iter()
            .map(|w| (w.bytes / piece, w.pieces))
            .collect();
        assert_eq!(weights, [(2, 2), (1, 1), (1, 1)]);
        assert_eq!(planned[0].source, arena.offset(1, PageIndex(1)) as u64);
        assert_eq!(planned[0].target, arena.offset(1, PageIndex(7)) as u64);
    }

    #[test]
    fn a_write_stays_below_the_limit_but_holds_a_piece() {
        let arena = ArenaLayout::new(G, 16);
        let run = indices(&[0, 1, 2, 3, 4]);
        let piece = G.piece_bytes() as u32;
        let sizes = |max| -> Vec<_> {
            writes(&arena, &arena, &run, &run, 0, max)
                .iter()
                .map(|w| w.pieces)
                .collect()
        };
        assert_eq!(sizes(2 * piece), [2, 2, 1]);
        assert_eq!(sizes(1), [1; 5]);
    }

    #[test]
    fn a_page_goes_out_once_in_the_step_that_completes_it() {
        assert_eq!(completed_pages(16, 0, 20, false), 0..1);
        assert_eq!(completed_pages(16, 20, 32, false), 1..2);
        assert_eq!(completed_pages(16, 32, 33, true), 2..3);
        assert_eq!(completed_pages(16, 0, 5, false), 0..0);
        assert_eq!(completed_pages(16, 5, 10, true), 0..1);
        assert_eq!(completed_pages(16, 16, 32, true), 1..2);
    }

    proptest! {
        /// However a prompt is cut into steps, every page goes out exactly once.
        #[test]
        fn chunks_cover_every_page_once(tokens in 1..300u32, chunks in proptest::collection::vec(1..70u32, 1..60)) {
            let mut sent = Vec::new();
            let mut start = 0;
            for chunk in chunks.into_iter().cycle() {
                let end = (start + chunk).min(tokens);
                sent.extend(completed_pages(G.page_tokens, start, end, end == tokens));
                start = end;
                if end == tokens { break }
            }
            prop_assert_eq!(sent, (0..G.pages_for(tokens as usize) as u32).collect::<Vec<_>>());
        }

        /// Executed on byte arrays, the plan puts every page's bytes where the target wants them,
        /// touches no other byte, and its pieces add up to what the target expects.
        #[test]
        fn a_plan_moves_exactly_the_pages(
            pages in 1..12usize,
            seed in any::<u64>(),
            max in 1..2000u32,
        ) {
            let arena = ArenaLayout::new(G, 16);
            let shuffled = |salt: u64| {
                let mut all: Vec<u32> = (0..16).collect();
                all.sort_by_key(|p| (u64::from(*p) + 1).wrapping_mul(seed ^ salt).rotate_left(17));
                if seed % 3 == 0 { all.sort_unstable() }
                indices(&all[..pages])
            };
            let (from, to) = (shuffled(0x9e37_79b9), shuffled(0x7f4a_7c15));
            let source: Vec<u8> = (0..arena.bytes()).map(|i| (i % 251) as u8 + 1).collect();
            let mut target = vec![0u8; arena.bytes()];
            let mut pieces = 0;
            for layer in 0..G.layers {
                for w in writes(&arena, &arena, &from, &to, layer, max) {
                    let (s, t, n) = (w.source as usize, w.target as usize, w.bytes as usize);
                    prop_assert!(target[t..t + n].iter().all(|b| *b == 0), "written once");
                    target[t..t + n].copy_from_slice(&source[s..s + n]);
                    pieces += u32::from(w.pieces);
                }
            }
            let mut wanted = vec![0u8; arena.bytes()];
            for layer in 0..G.layers {
                for (f, t) in from.iter().zip(&to) {
                    let (f, t) = (arena.offset(layer, *f), arena.offset(layer, *t));
                    wanted[t..t + G.piece_bytes()].copy_from_slice(&source[f..f + G.piece_bytes()]);
                }
            }
            prop_assert_eq!(target, wanted);
            prop_assert_eq!(pieces, expected_pieces(&G, pages * usize::from(G.page_tokens)));
        }
    }
}

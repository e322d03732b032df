//! Which writes carry a range of tokens, and how many pieces the target will count.
//!
//! Both sides compute from this same pure code, each from its own knowledge: the sender
//! [`templates`], the target [`expected`]. Neither trusts the other's sum.
//!
//! The unit of counting, a *piece*, is one head of one plane of one layer, over one *grain* of
//! tokens: the greatest common divisor of both sides' page sizes, aligned. Every page of either side
//! is a whole number of grains, so however pages, heads and layers are cut, and however writes are
//! merged, a piece is in exactly one write and the target's sum depends on nothing but its own part,
//! the tokens and the grain. The context, where there is one, is one piece more.

use std::ops::Range;

use crate::PageIndex;
use crate::arena::ArenaLayout;
use crate::immediate::MAX_WEIGHT;
use crate::layout::WorkerLayout;

/// Bytes to copy from one arena to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "explore", derive(Hash))]
pub struct PlannedWrite {
    /// Where they lie, from the start of the source's arena (or of its layer, in a template).
    pub source: u64,
    /// Where they go, from the start of the target's arena (or of its layer, in a template).
    pub target: u64,
    /// How many.
    pub bytes: u32,
    /// Pieces in them, at least 1 and at most [`MAX_WEIGHT`].
    pub pieces: u16,
}

/// Tokens of one piece.
#[must_use]
pub const fn grain(source_page: u16, target_page: u16) -> u16 {
    let (mut a, mut b) = (source_page, target_page);
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// The tokens that travel: from the first that the target does not hold, to the end of the last
/// grain (what is behind the last token fills it up, and nobody reads it). Empty where the target
/// holds all.
#[must_use]
pub const fn travelling(held: u32, tokens: u32, grain: u16) -> Range<u32> {
    if held >= tokens {
        return tokens..tokens;
    }
    held..tokens.next_multiple_of(grain as u32)
}

/// Pieces that a target shard will count for these tokens, and for the context behind them.
///
/// # Panics
/// Where there is no such shard.
#[must_use]
pub fn expected(target: &WorkerLayout, shard: u16, tokens: &Range<u32>, grain: u16) -> u64 {
    let part = &target.shards()[usize::from(shard)];
    let planes = u64::from(target.geometry().kind.planes());
    let parts = part.layers.len() as u64 * part.heads.len() as u64;
    let context = u64::from(target.wants_context(shard) && !tokens.is_empty());
    parts * planes * u64::from(grains(tokens, grain)) + context
}

fn grains(tokens: &Range<u32>, grain: u16) -> u32 {
    let grain = u32::from(grain);
    if tokens.is_empty() {
        return 0;
    }
    tokens.end.div_ceil(grain) - tokens.start / grain
}

/// One side of a flow: its arena, and the pages of the request there.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    /// The shard's arena.
    pub arena: &'a ArenaLayout,
    /// The request's pages, from the token `from` on, at which a page begins.
    pub pages: &'a [PageIndex],
    /// That token.
    pub from: u32,
    /// The flow's first head, by its index in this shard.
    pub head: u16,
}

impl Side<'_> {
    fn page_tokens(&self) -> u32 {
        u32::from(self.arena.geometry().page_tokens)
    }

    /// Where a head's entry of a token lies in its layer.
    fn at(&self, plane: u16, head: u16, token: u32) -> u64 {
        let token = token - self.from;
        let (page, slot) = (token / self.page_tokens(), token % self.page_tokens());
        let g = self.arena.geometry();
        let in_plane =
            usize::from(self.head + head) * g.head_bytes() + slot as usize * g.token_bytes();
        (self.arena.in_layer(plane, self.pages[page as usize]) + in_plane) as u64
    }
}

/// The writes that carry `tokens` of `heads` heads in any one layer, as offsets from the layers'
/// starts, which differ by [`ArenaLayout::layer_bytes`] from layer to layer. What is contiguous on
/// both sides shares a write of at most `max_bytes` (but at least one piece).
///
/// # Panics
/// Where a page or a head is not in its arena: both were checked when they were given out.
pub fn templates(
    source: Side<'_>,
    target: Side<'_>,
    heads: u16,
    tokens: Range<u32>,
    max_bytes: u32,
) -> Vec<PlannedWrite> {
    let mut merge = Merge {
        max_bytes,
        writes: Vec::new(),
    };
    let planes = source.arena.geometry().kind.planes();
    let bytes = source.arena.geometry().token_bytes() as u32;
    let grain = grain(
        source.arena.geometry().page_tokens,
        target.arena.geometry().page_tokens,
    );
    let together = source.arena.geometry().order == crate::geometry::KvOrder::Together;
    // In the order in which the source has them, so that neighbours follow one another.
    let outer = if together { 0..1 } else { 0..planes };
    for first in outer {
        let inner = if together {
            0..planes
        } else {
            first..first + 1
        };
        let mut from = tokens.start;
        while from < tokens.end {
            let end = |side: &Side<'_>| (from / side.page_tokens() + 1) * side.page_tokens();
            let to = tokens.end.min(end(&source)).min(end(&target));
            let pieces = grains(&(from..to), grain) as u16;
            for plane in inner.clone() {
                for head in 0..heads {
                    merge.add(PlannedWrite {
                        source: source.at(plane, head, from),
                        target: target.at(plane, head, from),
                        bytes: bytes * (to - from),
                        pieces,
                    });
                }
            }
            from = to;
        }
    }
    merge.writes
}

/// The write that carries the context from one page's slot to another's, as offsets from the arenas'
/// starts.
///
/// # Panics
/// Where a page is not in its arena.
#[must_use]
pub fn context(
    (source, from): (&ArenaLayout, PageIndex),
    (target, to): (&ArenaLayout, PageIndex),
) -> PlannedWrite {
    PlannedWrite {
        source: source.context(from) as u64,
        target: target.context(to) as u64,
        bytes: source.geometry().context_bytes,
        pieces: 1,
    }
}

struct Merge {
    max_bytes: u32,
    writes: Vec<PlannedWrite>,
}

impl Merge {
    fn add(&mut self, next: PlannedWrite) {
        if let Some(last) = self.writes.last_mut() {
            let end = u64::from(last.bytes);
            let follows = last.source + end == next.source && last.target + end == next.target;
            let fits = u64::from(last.bytes) + u64::from(next.bytes) <= u64::from(self.max_bytes)
                && u32::from(last.pieces) + u32::from(next.pieces) <= u32::from(MAX_WEIGHT);
            if follows && fits {
                last.bytes += next.bytes;
                last.pieces += next.pieces;
                return;
            }
        }
        self.writes.push(next);
    }
}

#[cfg(test)]
mod tests;

//! Where a page's entries lie in one shard's KV arena.
//!
//! ```text
//! arena = [layer 0][layer 1]…
//! layer = [page 0: K, V][page 1: K, V]…             planes together
//!       = [page 0: K][page 1: K]… [page 0: V]…      planes apart
//! arena = [layer 0]…[layer n][context slot of page 0][context slot of page 1]…
//! ```
//!
//! Layer-major, so that contiguous page numbers are contiguous bytes in each layer (and plane) and
//! one write can carry a run of them.
//!
//! Every page has a *context slot* (of 0 bytes for most models): the context of a prompt lies in the
//! slot of the page that holds its last prefilled token. So it is leased, exposed, fenced and freed
//! with that page, by the same rules.

use crate::PageIndex;
use crate::geometry::{KvGeometry, KvOrder};

/// The byte layout of one arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ArenaLayout {
    geometry: KvGeometry,
    pages: u32,
}

impl ArenaLayout {
    /// An arena of `pages` pages, of the shard's own layers and heads.
    #[must_use]
    pub const fn new(geometry: KvGeometry, pages: u32) -> Self {
        Self { geometry, pages }
    }

    /// Shape of the pages.
    #[must_use]
    pub const fn geometry(&self) -> &KvGeometry {
        &self.geometry
    }

    /// Number of pages.
    #[must_use]
    pub const fn pages(&self) -> u32 {
        self.pages
    }

    /// Bytes of the whole arena.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.contexts_at() + self.geometry.context_bytes as usize * self.pages as usize
    }

    /// Where the KV entries end and the context slots begin: at a cache line where there are any.
    const fn contexts_at(&self) -> usize {
        let entries = self.geometry.page_bytes() * self.pages as usize;
        match self.geometry.context_bytes {
            0 => entries,
            _ => entries.next_multiple_of(64),
        }
    }

    /// Byte offset of a page's context slot.
    ///
    /// # Panics
    /// As [`ArenaLayout::in_layer`].
    #[must_use]
    pub fn context(&self, page: PageIndex) -> usize {
        assert!(page.0 < self.pages, "page {} of {}", page.0, self.pages);
        self.contexts_at() + page.0 as usize * self.geometry.context_bytes as usize
    }

    /// Bytes from one layer's start to the next one's.
    #[must_use]
    pub const fn layer_bytes(&self) -> usize {
        self.geometry.piece_bytes() * self.pages as usize
    }

    /// Byte offset of a page's plane within its layer.
    ///
    /// # Panics
    /// Where the plane or the page is not in this arena: that is a broken invariant, never input
    /// (what peers send is checked when it arrives).
    #[must_use]
    pub fn in_layer(&self, plane: u16, page: PageIndex) -> usize {
        let planes = self.geometry.kind.planes();
        assert!(plane < planes, "plane {plane} of {planes}");
        assert!(page.0 < self.pages, "page {} of {}", page.0, self.pages);
        let (plane, page) = (usize::from(plane), page.0 as usize);
        let index = match self.geometry.order {
            KvOrder::Together => page * usize::from(planes) + plane,
            KvOrder::Apart => plane * self.pages as usize + page,
        };
        index * self.geometry.plane_bytes()
    }

    /// Byte offset of a page's plane in a layer.
    ///
    /// # Panics
    /// As [`ArenaLayout::in_layer`], and where the layer is not in this arena.
    #[must_use]
    pub fn offset(&self, layer: u16, plane: u16, page: PageIndex) -> usize {
        let layers = self.geometry.layers;
        assert!(layer < layers, "layer {layer} of {layers}");
        usize::from(layer) * self.layer_bytes() + self.in_layer(plane, page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::{KvDtype, KvKind};
    use std::collections::BTreeSet;

    #[test]
    fn planes_of_all_pages_fill_the_arena_in_either_order() {
        for (kind, order) in [
            (KvKind::Heads, KvOrder::Together),
            (KvKind::Heads, KvOrder::Apart),
            (KvKind::Latent, KvOrder::Together),
        ] {
            let geometry = KvGeometry {
                layers: 2,
                kv_heads: 3,
                head_dim: 4,
                page_tokens: 5,
                dtype: KvDtype::F16,
                kind,
                order,
                context_bytes: 0,
            };
            let arena = ArenaLayout::new(geometry, 7);
            let mut starts = BTreeSet::new();
            for layer in 0..2 {
                for plane in 0..kind.planes() {
                    for page in 0..7 {
                        starts.insert(arena.offset(layer, plane, PageIndex(page)));
                    }
                }
            }
            let plane = geometry.plane_bytes();
            let all: BTreeSet<_> = (0..arena.bytes() / plane).map(|i| i * plane).collect();
            assert_eq!(starts, all, "{kind} {order}");
        }
    }

    #[test]
    fn context_slots_lie_behind_the_layers_and_end_with_the_arena() {
        let geometry = KvGeometry {
            layers: 1,
            kv_heads: 1,
            head_dim: 1,
            page_tokens: 1,
            dtype: KvDtype::F16,
            kind: KvKind::Latent,
            order: KvOrder::Together,
            context_bytes: 24,
        };
        let arena = ArenaLayout::new(geometry, 5);
        let slots: Vec<usize> = (0..5).map(|p| arena.context(PageIndex(p))).collect();
        assert_eq!(slots, [64, 88, 112, 136, 160]);
        assert_eq!(arena.bytes(), 184);
    }
}

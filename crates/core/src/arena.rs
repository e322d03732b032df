//! Where a piece lies in a worker's KV arena.
//!
//! ```text
//! arena = [layer 0: page 0, page 1, …][layer 1: page 0, page 1, …]…
//! ```
//!
//! Layer-major, so that contiguous page numbers are contiguous bytes in each layer and one write
//! can carry a run of them.

use crate::PageIndex;
use crate::geometry::KvGeometry;

/// The byte layout of one arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArenaLayout {
    geometry: KvGeometry,
    pages: u32,
}

impl ArenaLayout {
    /// An arena of `pages` pages.
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
        self.geometry.page_bytes() * self.pages as usize
    }

    /// Byte offset of a page's piece in a layer.
    ///
    /// # Panics
    /// Where the layer or the page is not in this arena: that is a broken invariant, never input
    /// (what peers send is checked when it arrives).
    #[must_use]
    pub fn offset(&self, layer: u16, page: PageIndex) -> usize {
        assert!(
            layer < self.geometry.layers,
            "layer {layer} of {}",
            self.geometry.layers
        );
        assert!(page.0 < self.pages, "page {} of {}", page.0, self.pages);
        (usize::from(layer) * self.pages as usize + page.0 as usize) * self.geometry.piece_bytes()
    }
}

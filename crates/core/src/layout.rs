//! How a worker cuts a model's KV cache into shards, and whether two workers' caches can be joined.
//!
//! A shard holds a range of layers and a range of KV heads, in an arena of its own. Tensor
//! parallelism cuts heads, pipeline stages cut layers, and where ranks outnumber heads (or for
//! MLA's latent) several shards hold the same part: those are its *copies*. Shards of one
//! data-parallel rank share a page table: page `i` is page `i` in each of their arenas.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::arena::ArenaLayout;
use crate::geometry::KvGeometry;

/// Shards of one worker, at most.
pub const MAX_SHARDS: usize = 256;
/// Layers of one model, at most.
pub const MAX_LAYERS: usize = 1024;
/// Tokens of a page, at most: the pieces of one page's head must fit an immediate's weight, whatever
/// the other side's page size.
pub const MAX_PAGE_TOKENS: u16 = crate::immediate::MAX_WEIGHT;
/// Bytes of context, at most: 16 MiB.
pub const MAX_CONTEXT_BYTES: u32 = 1 << 24;
/// Bytes of one shard's arena, at most: what processors can address.
pub const MAX_ARENA_BYTES: u64 = 1 << 48;
/// Bytes of a layer's name, at most.
pub const MAX_LAYER_NAME: usize = 255;

/// One shard's part of the cache.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Shard {
    /// Which data-parallel rank it belongs to, from 0.
    pub data_rank: u16,
    /// Its layers, by their index in [`WorkerLayout::layers`].
    pub layers: Range<u16>,
    /// Its KV heads, by their index in the model.
    pub heads: Range<u16>,
}

impl Shard {
    fn same_part(&self, other: &Self) -> bool {
        self.layers == other.layers && self.heads == other.heads
    }

    fn overlaps(&self, other: &Self) -> bool {
        let cut = |a: &Range<u16>, b: &Range<u16>| a.start < b.end && b.start < a.end;
        cut(&self.layers, &other.layers) && cut(&self.heads, &other.heads)
    }
}

/// A worker's whole KV cache.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WorkerLayout {
    geometry: KvGeometry,
    layers: Arc<[String]>,
    pages: u32,
    shards: Arc<[Shard]>,
}

/// Why shards do not make a cache.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the KV cache's layout makes no sense: {0}")]
pub struct LayoutError(pub String);

/// Two workers whose KV caches cannot be joined.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("KV geometry differs: {field} is {ours} here and {theirs} there")]
pub struct GeometryMismatch {
    /// Which property differs.
    pub field: &'static str,
    /// This side's value.
    pub ours: String,
    /// The other side's value.
    pub theirs: String,
}

impl WorkerLayout {
    /// A worker whose model, of the given whole geometry, is cut as `shards` say.
    pub fn new(
        geometry: KvGeometry,
        layers: Arc<[String]>,
        pages: u32,
        shards: Vec<Shard>,
    ) -> Result<Self, LayoutError> {
        let this = Self {
            geometry,
            layers,
            pages,
            shards: shards.into(),
        };
        this.check().map_err(LayoutError)?;
        Ok(this)
    }

    /// A worker whose heads are cut into `ranks` equal parts, or replicated where there are more
    /// ranks than heads. Each must be a multiple of the other.
    pub fn tensor_parallel(
        geometry: KvGeometry,
        pages: u32,
        ranks: u16,
    ) -> Result<Self, LayoutError> {
        let heads = geometry.kv_heads;
        let fits = ranks > 0 && (heads.is_multiple_of(ranks) || ranks.is_multiple_of(heads));
        if !fits {
            return Err(LayoutError(format!(
                "{heads} KV heads cannot be cut for {ranks} tensor-parallel ranks: one must be a \
                 multiple of the other"
            )));
        }
        let part = |rank: u16| {
            if ranks <= heads {
                let each = heads / ranks;
                rank * each..(rank + 1) * each
            } else {
                let head = rank / (ranks / heads);
                head..head + 1
            }
        };
        let shard = |rank| Shard {
            data_rank: 0,
            layers: 0..geometry.layers,
            heads: part(rank),
        };
        Self::new(
            geometry,
            layer_names(geometry.layers),
            pages,
            (0..ranks).map(shard).collect(),
        )
    }

    /// The same cut of a model whose layers have other names.
    pub fn with_layers(self, layers: Arc<[String]>) -> Result<Self, LayoutError> {
        let this = Self { layers, ..self };
        this.check().map_err(LayoutError)?;
        Ok(this)
    }

    /// The whole model's shape, and this worker's pages'.
    #[must_use]
    pub const fn geometry(&self) -> &KvGeometry {
        &self.geometry
    }

    /// Names of the layers that have KV entries, in the order in which a step computes them.
    #[must_use]
    pub const fn layers(&self) -> &Arc<[String]> {
        &self.layers
    }

    /// Pages of each data-parallel rank.
    #[must_use]
    pub const fn pages(&self) -> u32 {
        self.pages
    }

    /// All shards.
    #[must_use]
    pub fn shards(&self) -> &[Shard] {
        &self.shards
    }

    /// Shards of one data-parallel rank, with their indices.
    pub fn of_rank(&self, data_rank: u16) -> impl Iterator<Item = (u16, &Shard)> {
        let all = (0u16..).zip(self.shards.iter());
        all.filter(move |(_, shard)| shard.data_rank == data_rank)
    }

    /// Data-parallel ranks.
    #[must_use]
    pub fn data_ranks(&self) -> u16 {
        self.shards
            .iter()
            .map(|s| s.data_rank + 1)
            .max()
            .unwrap_or(0)
    }

    /// Which copy of its part a shard is, within its data-parallel rank: 0 for the first one.
    ///
    /// # Panics
    /// Where there is no such shard.
    #[must_use]
    pub fn copy(&self, shard: u16) -> u16 {
        let own = &self.shards[usize::from(shard)];
        let twin = |(i, s): &(u16, &Shard)| *i < shard && s.same_part(own);
        self.of_rank(own.data_rank).filter(twin).count() as u16
    }

    /// The byte layout of a shard's arena.
    ///
    /// # Panics
    /// Where there is no such shard.
    #[must_use]
    pub fn arena(&self, shard: u16) -> ArenaLayout {
        let shard = &self.shards[usize::from(shard)];
        let geometry = KvGeometry {
            layers: shard.layers.len() as u16,
            kv_heads: shard.heads.len() as u16,
            ..self.geometry
        };
        ArenaLayout::new(geometry, self.pages)
    }

    /// Bytes of one page, with its context slot, in all shards of a data-parallel rank.
    #[must_use]
    pub fn page_bytes(&self) -> usize {
        let context = self.geometry.context_bytes as usize;
        let bytes = |(i, _)| self.arena(i).geometry().page_bytes() + context;
        self.of_rank(0).map(bytes).sum()
    }

    /// Whether a shard has to get the context: it holds the layer that is computed last.
    ///
    /// # Panics
    /// Where there is no such shard.
    #[must_use]
    pub fn wants_context(&self, shard: u16) -> bool {
        let last = self.shards[usize::from(shard)].layers.end == self.geometry.layers;
        last && self.geometry.context_bytes > 0
    }

    /// Whether entries of `theirs` can be copied into ours, however each is cut and paged;
    /// otherwise the first property that differs, with both values.
    pub fn matches(&self, theirs: &Self) -> Result<(), GeometryMismatch> {
        let (a, b) = (&self.geometry, &theirs.geometry);
        differs("the kind of KV entries", &a.kind, &b.kind)?;
        differs("dtype", &a.dtype, &b.dtype)?;
        differs("head_dim", &a.head_dim, &b.head_dim)?;
        differs("kv_heads", &a.kv_heads, &b.kv_heads)?;
        differs("layers", &a.layers, &b.layers)?;
        differs("context_bytes", &a.context_bytes, &b.context_bytes)?;
        let missing = |of: &Self, from: &Self| {
            let mut names = of.layers.iter();
            names.find(|name| !from.layers.contains(name)).cloned()
        };
        match (missing(self, theirs), missing(theirs, self)) {
            (None, None) => Ok(()),
            (ours, theirs) => Err(GeometryMismatch {
                field: "a layer's name",
                ours: ours.unwrap_or_else(|| "absent".into()),
                theirs: theirs.unwrap_or_else(|| "absent".into()),
            }),
        }
    }

    fn check(&self) -> Result<(), String> {
        let g = &self.geometry;
        let sizes = [g.layers, g.kv_heads, g.head_dim, g.page_tokens];
        if sizes.contains(&0) || self.pages == 0 {
            return Err("a size is 0".into());
        }
        if g.page_tokens > MAX_PAGE_TOKENS {
            return Err(format!(
                "pages of {} tokens; {MAX_PAGE_TOKENS} at most",
                g.page_tokens
            ));
        }
        if g.context_bytes > MAX_CONTEXT_BYTES {
            return Err(format!(
                "{} bytes of context; {MAX_CONTEXT_BYTES} at most",
                g.context_bytes
            ));
        }
        self.check_size()?;
        if g.kind.planes() == 1 && g.kv_heads != 1 {
            return Err(format!("a latent of {} heads", g.kv_heads));
        }
        let names = self.layers.len();
        if names != usize::from(g.layers) || names > MAX_LAYERS {
            return Err(format!("{names} layer names for {} layers", g.layers));
        }
        self.check_names()?;
        if self.shards.is_empty() || self.shards.len() > MAX_SHARDS {
            return Err(format!("{} shards", self.shards.len()));
        }
        for (i, shard) in self.shards.iter().enumerate() {
            if usize::from(shard.data_rank) >= self.shards.len() {
                return Err(format!(
                    "shard {i} is of data-parallel rank {}",
                    shard.data_rank
                ));
            }
            let inside = |r: &Range<u16>, size: u16| r.start < r.end && r.end <= size;
            if !inside(&shard.layers, g.layers) || !inside(&shard.heads, g.kv_heads) {
                return Err(format!(
                    "shard {i} has {shard}, of {} x {}",
                    g.layers, g.kv_heads
                ));
            }
        }
        (0..self.data_ranks()).try_for_each(|rank| self.check_rank(rank))
    }

    /// That offsets into an arena of the whole model can be computed.
    fn check_size(&self) -> Result<(), String> {
        let g = &self.geometry;
        let entries = [g.layers, g.kv_heads, g.head_dim, g.page_tokens]
            .map(u64::from)
            .into_iter()
            .chain([u64::from(g.kind.planes()), g.dtype.bytes() as u64])
            .try_fold(1u64, u64::checked_mul);
        let page = entries.and_then(|bytes| bytes.checked_add(u64::from(g.context_bytes)));
        match page.and_then(|bytes| bytes.checked_mul(u64::from(self.pages))) {
            Some(bytes) if bytes <= MAX_ARENA_BYTES => Ok(()),
            _ => Err(format!("{} pages of {g} are too many bytes", self.pages)),
        }
    }

    fn check_names(&self) -> Result<(), String> {
        let mut names: Vec<&String> = self.layers.iter().collect();
        names.sort_unstable();
        if let Some(twins) = names.windows(2).find(|w| w[0] == w[1]) {
            return Err(format!("two layers are named {:?}", twins[0]));
        }
        let bad = |name: &&&String| name.is_empty() || name.len() > MAX_LAYER_NAME;
        match names.iter().find(bad) {
            Some(name) => Err(format!("a layer's name of {} bytes", name.len())),
            None => Ok(()),
        }
    }

    /// Parts are equal or disjoint, they cover the model, and each has as many copies.
    fn check_rank(&self, rank: u16) -> Result<(), String> {
        let shards: Vec<&Shard> = self.of_rank(rank).map(|(_, s)| s).collect();
        let mut area = 0u64;
        let mut copies = None;
        for shard in &shards {
            if let Some(other) = shards
                .iter()
                .find(|o| o.overlaps(shard) && !o.same_part(shard))
            {
                return Err(format!("shards overlap: {shard} and {other}"));
            }
            let mine = shards.iter().filter(|o| o.same_part(shard)).count();
            let others = *copies.get_or_insert(mine);
            if others != mine {
                return Err(format!("{others} copies of a part, {mine} of {shard}"));
            }
            area += shard.layers.len() as u64 * shard.heads.len() as u64;
        }
        let whole = u64::from(self.geometry.layers) * u64::from(self.geometry.kv_heads);
        if area != whole * copies.unwrap_or(0) as u64 || area == 0 {
            return Err(format!(
                "the shards of data-parallel rank {rank} leave something out"
            ));
        }
        Ok(())
    }
}

/// Names of `count` layers of an engine that gives them none: `layers.0`, `layers.1`, …
#[must_use]
pub fn layer_names(count: u16) -> Arc<[String]> {
    (0..count).map(|i| format!("layers.{i}")).collect()
}

/// An error naming both values where they differ.
pub(crate) fn differs<T: fmt::Display + PartialEq>(
    field: &'static str,
    ours: &T,
    theirs: &T,
) -> Result<(), GeometryMismatch> {
    if ours == theirs {
        return Ok(());
    }
    let (ours, theirs) = (ours.to_string(), theirs.to_string());
    Err(GeometryMismatch {
        field,
        ours,
        theirs,
    })
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (l, h) = (&self.layers, &self.heads);
        write!(
            f,
            "layers {}..{} x heads {}..{}",
            l.start, l.end, h.start, h.end
        )
    }
}

#[cfg(test)]
mod tests;

//! A sequence's KV entries in the arenas.

use tandem_core::PageIndex;
use tandem_core::arena::ArenaLayout;
use tandem_core::geometry::KvDtype;
use tandem_memory::HostMemory;

use crate::arenas::Arenas;

/// One sequence's pages: position `t` lies in `pages[t / page_tokens]`, in each shard's arena.
///
/// Entries are always read back from the arena, even those of the token at hand, so that every
/// token sees them rounded to the arena's number type, wherever they were computed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KvPages<'a> {
    pub(crate) arenas: &'a Arenas,
    pub(crate) pages: &'a [PageIndex],
}

const KEYS: u16 = 0;
const VALUES: u16 = 1;

impl KvPages<'_> {
    /// Writes one position's keys and values (all KV heads) of a layer.
    pub(crate) fn write(&self, layer: u16, position: usize, keys: &[f32], values: &[f32]) {
        let dim = usize::from(self.arenas.layout().geometry().head_dim);
        let parts = keys.chunks_exact(dim).zip(values.chunks_exact(dim));
        for (head, (key, value)) in parts.enumerate() {
            for (memory, layout, local) in self.arenas.homes(head) {
                let at = |plane| self.offset(layout, (layer, plane, local), position).0;
                put(memory, layout, at(KEYS), key);
                put(memory, layout, at(VALUES), value);
            }
        }
    }

    /// Reads keys and values of one KV head, from position `first` on, as many as fill the slices.
    pub(crate) fn read(
        &self,
        (layer, head): (u16, usize),
        first: usize,
        keys: &mut [f32],
        values: &mut [f32],
    ) {
        let (memory, layout, local) = self.arenas.home(head);
        let dim = usize::from(layout.geometry().head_dim);
        let count = keys.len() / dim;
        let mut done = 0;
        while done < count {
            let (at, run) = self.offset(layout, (layer, KEYS, local), first + done);
            let range = done * dim..(done + run.min(count - done)) * dim;
            get(memory, layout, at, &mut keys[range.clone()]);
            let (at, _) = self.offset(layout, (layer, VALUES, local), first + done);
            get(memory, layout, at, &mut values[range]);
            done += run;
        }
    }

    /// Where a position's entry starts, and how many positions follow contiguously (itself counted).
    fn offset(
        &self,
        layout: &ArenaLayout,
        (layer, plane, head): (u16, u16, usize),
        position: usize,
    ) -> (usize, usize) {
        let geometry = layout.geometry();
        let tokens = usize::from(geometry.page_tokens);
        let (page, slot) = (position / tokens, position % tokens);
        let in_plane = head * geometry.head_bytes() + slot * geometry.token_bytes();
        let plane = layout.offset(layer, plane, self.pages[page]);
        (plane + in_plane, tokens - slot)
    }
}

fn put(memory: &HostMemory, layout: &ArenaLayout, at: usize, numbers: &[f32]) {
    match layout.geometry().dtype {
        KvDtype::F16 => memory.write_f16(at, numbers),
        KvDtype::Bf16 => memory.write_bf16(at, numbers),
    }
}

fn get(memory: &HostMemory, layout: &ArenaLayout, at: usize, numbers: &mut [f32]) {
    match layout.geometry().dtype {
        KvDtype::F16 => memory.read_f16(at, numbers),
        KvDtype::Bf16 => memory.read_bf16(at, numbers),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tandem_core::geometry::{KvGeometry, KvKind, KvOrder};
    use tandem_core::layout::WorkerLayout;

    fn arenas(ranks: u16, order: KvOrder) -> Arenas {
        let geometry = KvGeometry {
            layers: 2,
            kv_heads: 2,
            head_dim: 8,
            page_tokens: 4,
            dtype: KvDtype::F16,
            kind: KvKind::Heads,
            order,
            context_bytes: 0,
        };
        let layout = WorkerLayout::tensor_parallel(geometry, 3, ranks).unwrap();
        Arenas::create("test", Arc::new(layout)).unwrap()
    }

    #[test]
    fn entries_lie_as_hnd_says_in_the_arena_of_every_rank_that_has_the_head() {
        for (ranks, order) in [
            (1, KvOrder::Together),
            (1, KvOrder::Apart),
            (2, KvOrder::Together),
            (4, KvOrder::Apart),
        ] {
            let arenas = arenas(ranks, order);
            let pages = [PageIndex(2), PageIndex(0)];
            let kv = KvPages {
                arenas: &arenas,
                pages: &pages,
            };
            for position in 0..6 {
                let keys: Vec<f32> = (0..16).map(|i| (position * 100 + i) as f32).collect();
                let values: Vec<f32> = keys.iter().map(|k| -k).collect();
                kv.write(1, position, &keys, &values);
            }
            let (mut keys, mut values) = (vec![0.0; 4 * 8], vec![0.0; 4 * 8]);
            kv.read((1, 1), 2, &mut keys, &mut values);
            assert_eq!(keys[0], 208.0);
            assert_eq!(keys[3 * 8 + 7], 515.0);
            assert_eq!(values[3 * 8 + 7], -515.0);
            // Head 1 of position 5, in every shard that has it.
            for (shard, part) in arenas.layout().shards().iter().enumerate() {
                let Some(local) = 1u16.checked_sub(part.heads.start) else {
                    continue;
                };
                if !part.heads.contains(&1) {
                    continue;
                }
                let layout = arenas.layout().arena(shard as u16);
                let row = usize::from(local) * 4 + 1;
                let mut direct = [0.0; 1];
                let at = layout.offset(1, KEYS, PageIndex(0)) + row * 8 * 2;
                arenas.memory(shard).read_f16(at, &mut direct);
                assert_eq!(direct, [508.0], "{ranks} ranks, shard {shard}");
            }
        }
    }
}

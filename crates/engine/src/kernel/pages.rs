//! A sequence's KV entries in the arena.

use tandem_core::PageIndex;
use tandem_core::arena::ArenaLayout;
use tandem_core::geometry::KvDtype;
use tandem_memory::HostMemory;

/// One sequence's pages: position `t` lies in `pages[t / page_tokens]`.
///
/// Entries are always read back from the arena, even those of the token at hand, so that every
/// token sees them rounded to the arena's number type, wherever they were computed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KvPages<'a> {
    pub(crate) memory: &'a HostMemory,
    pub(crate) layout: &'a ArenaLayout,
    pub(crate) pages: &'a [PageIndex],
}

impl KvPages<'_> {
    /// Writes one position's keys and values (all KV heads) of a layer.
    pub(crate) fn write(&self, layer: u16, position: usize, keys: &[f32], values: &[f32]) {
        let geometry = self.layout.geometry();
        let dim = usize::from(geometry.head_dim);
        let parts = keys.chunks_exact(dim).zip(values.chunks_exact(dim));
        for (head, (key, value)) in parts.enumerate() {
            let (at, _) = self.offset(layer, head, position);
            self.put(at, key);
            self.put(at + geometry.piece_bytes() / 2, value);
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
        let geometry = self.layout.geometry();
        let dim = usize::from(geometry.head_dim);
        let count = keys.len() / dim;
        let mut done = 0;
        while done < count {
            let (at, run) = self.offset(layer, head, first + done);
            let range = done * dim..(done + run.min(count - done)) * dim;
            self.get(at, &mut keys[range.clone()]);
            self.get(at + geometry.piece_bytes() / 2, &mut values[range]);
            done += run;
        }
    }

    /// Where a position's key starts, and how many positions follow contiguously (itself counted).
    fn offset(&self, layer: u16, head: usize, position: usize) -> (usize, usize) {
        let geometry = self.layout.geometry();
        let tokens = usize::from(geometry.page_tokens);
        let (page, slot) = (position / tokens, position % tokens);
        let numbers = (head * tokens + slot) * usize::from(geometry.head_dim);
        let piece = self.layout.offset(layer, self.pages[page]);
        (piece + numbers * geometry.dtype.bytes(), tokens - slot)
    }

    fn put(&self, at: usize, numbers: &[f32]) {
        match self.layout.geometry().dtype {
            KvDtype::F16 => self.memory.write_f16(at, numbers),
            KvDtype::Bf16 => self.memory.write_bf16(at, numbers),
        }
    }

    fn get(&self, at: usize, numbers: &mut [f32]) {
        match self.layout.geometry().dtype {
            KvDtype::F16 => self.memory.read_f16(at, numbers),
            KvDtype::Bf16 => self.memory.read_bf16(at, numbers),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tandem_core::geometry::KvGeometry;

    #[test]
    fn entries_lie_as_hnd_says() {
        let geometry = KvGeometry {
            layers: 2,
            kv_heads: 2,
            head_dim: 8,
            page_tokens: 4,
            dtype: KvDtype::F16,
        };
        let layout = ArenaLayout::new(geometry, 3);
        let memory = HostMemory::create("test", layout.bytes()).unwrap();
        let pages = [PageIndex(2), PageIndex(0)];
        let kv = KvPages {
            memory: &memory,
            layout: &layout,
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
        let mut direct = [0.0; 1];
        let at = layout.offset(1, PageIndex(0)) + (4 + 1) * 8 * 2;
        memory.read_f16(at, &mut direct);
        assert_eq!(direct, [508.0]);
    }
}

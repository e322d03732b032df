//! The memory that KV entries lie in: an arena for each shard.

use std::sync::Arc;

use tandem_core::PageIndex;
use tandem_core::arena::ArenaLayout;
use tandem_core::layout::WorkerLayout;
use tandem_memory::{CreateError, HostMemory, Memory};

/// Every shard's arena. A clone names the same memory.
#[derive(Clone, Debug)]
pub struct Arenas {
    layout: Arc<WorkerLayout>,
    shards: Arc<[ShardArena]>,
    /// For each KV head of the model, the shards that hold it and its number there: the first one is
    /// read, all are written.
    homes: Arc<[Vec<(usize, usize)>]>,
}

#[derive(Debug)]
struct ShardArena {
    memory: Arc<HostMemory>,
    layout: ArenaLayout,
}

/// Memory that does not fit a layout.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArenaError {
    /// Not one memory for each shard.
    #[error("{shards} shards need an arena each, there are {arenas}")]
    Count {
        /// Shards of the layout.
        shards: usize,
        /// Memories given.
        arenas: usize,
    },
    /// One is too small.
    #[error("the arena of shard {shard} needs {needs} bytes of memory, there are {has}")]
    Memory {
        /// Which shard.
        shard: usize,
        /// Bytes of its layout.
        needs: usize,
        /// Bytes of its memory.
        has: usize,
    },
    /// The embedded engine runs all layers and one data-parallel rank in one process.
    #[error("the embedded engine has no pipeline stages and no data-parallel ranks")]
    Sharding,
}

impl Arenas {
    /// The shards' memory, in the layout's order.
    pub fn new(
        layout: Arc<WorkerLayout>,
        memory: Vec<Arc<HostMemory>>,
    ) -> Result<Self, ArenaError> {
        let shards = layout.shards();
        if shards.len() != memory.len() {
            return Err(ArenaError::Count {
                shards: shards.len(),
                arenas: memory.len(),
            });
        }
        let geometry = layout.geometry();
        if shards
            .iter()
            .any(|s| s.data_rank > 0 || s.layers != (0..geometry.layers))
        {
            return Err(ArenaError::Sharding);
        }
        let homes = |head: u16| {
            let holds = shards
                .iter()
                .enumerate()
                .filter(|(_, s)| s.heads.contains(&head));
            holds
                .map(|(i, s)| (i, usize::from(head - s.heads.start)))
                .collect()
        };
        let homes = (0..geometry.kv_heads).map(homes).collect();
        let mut arenas = Vec::new();
        for (shard, memory) in memory.into_iter().enumerate() {
            let layout = layout.arena(shard as u16);
            let (needs, has) = (layout.bytes(), memory.len());
            if has < needs {
                return Err(ArenaError::Memory { shard, needs, has });
            }
            arenas.push(ShardArena { memory, layout });
        }
        Ok(Self {
            layout,
            shards: arenas.into(),
            homes,
        })
    }

    /// Fresh memory for each shard.
    ///
    /// # Errors
    /// Where the system has none.
    ///
    /// # Panics
    /// Where the layout has pipeline stages or data-parallel ranks.
    pub fn create(name: &str, layout: Arc<WorkerLayout>) -> Result<Self, CreateError> {
        let bytes = (0..layout.shards().len()).map(|s| layout.arena(s as u16).bytes());
        let memory: Result<Vec<_>, _> = bytes
            .map(|bytes| HostMemory::create(name, bytes).map(Arc::new))
            .collect();
        Ok(Self::new(layout, memory?).expect("the memory was made for the layout"))
    }

    /// How the model is cut.
    #[must_use]
    pub const fn layout(&self) -> &Arc<WorkerLayout> {
        &self.layout
    }

    /// A shard's memory.
    ///
    /// # Panics
    /// Where there is no such shard.
    #[must_use]
    pub fn memory(&self, shard: usize) -> &Arc<HostMemory> {
        &self.shards[shard].memory
    }

    /// Leaves a context in a page's slot, in every shard.
    pub(crate) fn write_context(&self, page: PageIndex, numbers: &[f32]) {
        let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
        for shard in self.shards.iter() {
            shard.memory.write(shard.layout.context(page), &bytes);
        }
    }

    /// What lies in a page's context slot.
    pub(crate) fn read_context(&self, page: PageIndex) -> Vec<f32> {
        let shard = &self.shards[0];
        let mut bytes = vec![0; self.layout.geometry().context_bytes as usize];
        shard.memory.read(shard.layout.context(page), &mut bytes);
        let numbers = bytes.as_chunks::<4>().0.iter();
        numbers.map(|b| f32::from_le_bytes(*b)).collect()
    }

    /// Where a head is read.
    pub(crate) fn home(&self, head: usize) -> (&HostMemory, &ArenaLayout, usize) {
        let (shard, local) = self.homes[head][0];
        let shard = &self.shards[shard];
        (&shard.memory, &shard.layout, local)
    }

    /// Everywhere that a head is written.
    pub(crate) fn homes(
        &self,
        head: usize,
    ) -> impl Iterator<Item = (&HostMemory, &ArenaLayout, usize)> {
        self.homes[head].iter().map(|(shard, local)| {
            let shard = &self.shards[*shard];
            (&*shard.memory, &shard.layout, *local)
        })
    }
}

//! What was opened.

use libfabric_sys::Version;

use crate::driver::command::{RegionKey, RemoteRegion};

/// One NIC of an open fabric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NicInfo {
    /// libfabric's name of its domain: a network interface or NIC.
    pub domain: String,
    /// How it names the arena.
    pub name: RegionKey,
}

/// Facts of an open fabric. Its [`FabricInfo::region`] is what peers need to write into the arena;
/// they travel over authenticated channels only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FabricInfo {
    /// libfabric's name of the provider, e.g. `tcp;ofi_rxm`.
    pub provider: String,
    /// The fabric's name, e.g. `127.0.0.1/32`.
    pub fabric: String,
    /// Its NICs, in the order in which an inbox's addresses stand.
    pub nics: Vec<NicInfo>,
    /// libfabric's version.
    pub version: Version,
    /// Whether the provider moves bytes with the CPU.
    pub software: bool,
    /// How it registers memory, in libfabric's words.
    pub mr_mode: String,
    /// The arena's bytes.
    pub len: u64,
    /// Bytes of an immediate that the provider carries (4 are used).
    pub cq_data_size: usize,
    /// Whether a completion means that the bytes are in the target's memory.
    pub delivery_complete: bool,
    /// Whether the thread can wait for completions with poll(2). If not, it sleeps in steps.
    pub waits_on_descriptors: bool,
    /// Writes in flight per outbox and NIC, as resolved.
    pub window: u32,
}

impl FabricInfo {
    /// The arena, as peers name it.
    #[must_use]
    pub fn region(&self) -> RemoteRegion {
        RemoteRegion {
            len: self.len,
            keys: self.nics.iter().map(|nic| nic.name).collect(),
        }
    }
}

//! What was opened.

use libfabric_sys::Version;

/// Facts of an open fabric. `base`, `len` and `key` are what peers need to write into the arena;
/// they travel over authenticated channels only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FabricInfo {
    /// libfabric's name of the provider, e.g. `tcp;ofi_rxm`.
    pub provider: String,
    /// The fabric's name, e.g. `127.0.0.1/32`.
    pub fabric: String,
    /// The domain's name: a network interface or NIC.
    pub domain: String,
    /// libfabric's version.
    pub version: Version,
    /// Whether the provider moves bytes with the CPU.
    pub software: bool,
    /// How it registers memory, in libfabric's words.
    pub mr_mode: String,
    /// Address of the arena's first byte for peers: virtual, or 0 where regions are addressed by
    /// offset.
    pub base: u64,
    /// The arena's key.
    pub key: u64,
    /// The arena's bytes.
    pub len: u64,
    /// Bytes of an immediate that the provider carries (4 are used).
    pub cq_data_size: usize,
    /// Whether a completion means that the bytes are in the target's memory.
    pub delivery_complete: bool,
    /// Whether the thread can wait for completions with poll(2). If not, it sleeps in steps.
    pub waits_on_descriptors: bool,
    /// Writes in flight per outbox, as resolved.
    pub window: u32,
}

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

/// [`FabricInfo::wire`] of another process.
#[must_use]
pub fn wire(provider: &str, version: &str) -> String {
    match provider {
        "shm" => format!("shm of libfabric {version}"),
        "net" => "net (what libfabric before 1.18 has for tcp)".to_owned(),
        other => other.to_owned(),
    }
}

impl FabricInfo {
    /// What both sides of a transfer must have alike: the provider and, for shm, libfabric's version too.
    /// Shared memory of one version makes another one's threads hang.
    #[must_use]
    pub fn wire(&self) -> String {
        wire(&self.provider, &self.version.to_string())
    }

    /// The arena, as peers name it.
    #[must_use]
    pub fn region(&self) -> RemoteRegion {
        RemoteRegion {
            len: self.len,
            keys: self.nics.iter().map(|nic| nic.name).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shm_wants_the_same_version_on_both_sides() {
        assert_ne!(wire("shm", "1.17"), wire("shm", "2.5"));
        assert_eq!(wire("tcp", "2.1"), wire("tcp", "2.5"));
        // They have never been tried together.
        assert_ne!(wire("net", "1.17"), wire("tcp", "2.5"));
        assert_eq!(wire("verbs", "1.17"), wire("verbs", "2.5"));
    }
}

//! What placing comes to.

use std::fmt;

use serde::Serialize;

use crate::address::{DeviceName, HostBridge, PciAddress};
use crate::machine::Nic;
use crate::note::Note;

/// NICs that one device may have: what a transfer is divided among.
pub const MAX_NICS: usize = 4;

/// Which NICs and cores belong to which device. [`Topology::of`] makes it; `Display` shows it as a
/// table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Topology {
    /// GPUs by PCI address, or on a machine without GPUs the NUMA nodes that have cpus.
    pub devices: Vec<DevicePlace>,
    /// NICs that no device has, in the order of their PCI addresses.
    pub spare_nics: Vec<Nic>,
    /// What a reader might not expect.
    pub notes: Vec<Note>,
}

/// A device's place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DevicePlace {
    /// Which device.
    pub device: DeviceName,
    /// Its NUMA node with cpus, where it is known.
    pub node: Option<u32>,
    /// Its NICs, at most [`MAX_NICS`]; none only where the machine has none.
    pub nics: Vec<Nic>,
    /// How near the NICs are.
    pub nics_near: Nearness,
    /// Its logical cpus, of those discovered each on another physical core: for the fabric thread,
    /// for the watcher thread, and the rest for the engine. Empty only on a machine without cpus.
    pub cores: Vec<u32>,
    /// How near the cores are.
    pub cores_near: Nearness,
}

/// What a device shares with what belongs to it, the nearest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Nearness {
    /// This bridge, where their ways part: a PCIe switch or a root port.
    Switch(PciAddress),
    /// Only the host bridge: virtual machines may show a switch so.
    HostBridge(HostBridge),
    /// Only the NUMA node.
    NumaNode(u32),
    /// Nothing that is known.
    Anywhere,
    /// What the explicit map says.
    Explicit,
}

impl DevicePlace {
    /// The logical cpu of the fabric thread.
    #[must_use]
    pub fn fabric_core(&self) -> Option<u32> {
        self.cores.first().copied()
    }

    /// The logical cpu of the watcher thread; the fabric thread's where there is only one.
    #[must_use]
    pub fn watcher_core(&self) -> Option<u32> {
        self.cores.get(1).or(self.cores.first()).copied()
    }

    /// The logical cpus of the engine; the last one where there are fewer than three.
    #[must_use]
    pub fn engine_cores(&self) -> &[u32] {
        let last = self.cores.len().saturating_sub(1);
        &self.cores[last.min(2)..]
    }
}

impl fmt::Display for Nearness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Switch(bridge) => write!(f, "switch {bridge}"),
            Self::HostBridge(bridge) => write!(f, "host bridge {bridge}"),
            Self::NumaNode(node) => write!(f, "NUMA node {node}"),
            Self::Anywhere => f.write_str("anywhere"),
            Self::Explicit => f.write_str("explicit"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(cores: &[u32]) -> DevicePlace {
        DevicePlace {
            device: DeviceName::Node(0),
            node: Some(0),
            nics: Vec::new(),
            nics_near: Nearness::Anywhere,
            cores: cores.to_vec(),
            cores_near: Nearness::Anywhere,
        }
    }

    #[test]
    fn threads_share_the_last_core_where_there_are_fewer_than_three() {
        let threads = |cores| {
            let place = place(cores);
            let engine = place.engine_cores().to_vec();
            (place.fabric_core(), place.watcher_core(), engine)
        };
        assert_eq!(threads(&[4, 5, 6, 7]), (Some(4), Some(5), vec![6, 7]));
        assert_eq!(threads(&[4, 5, 6]), (Some(4), Some(5), vec![6]));
        assert_eq!(threads(&[4, 5]), (Some(4), Some(5), vec![5]));
        assert_eq!(threads(&[4]), (Some(4), Some(4), vec![4]));
        assert_eq!(threads(&[]), (None, None, vec![]));
    }
}

//! What there is on a machine, as the kernel says it.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;

use crate::address::{HostBridge, PciAddress};

/// All that placing needs to know of a machine. [`Machine::read`] gives it sorted; placing takes it
/// in any order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// PCI functions, by address.
    pub functions: Vec<PciFunction>,
    /// RDMA NICs, by name.
    pub nics: Vec<Nic>,
    /// NUMA nodes, by number; also those without cpus.
    pub nodes: Vec<NumaNode>,
    /// Logical cpus that are online, by number.
    pub cpus: Vec<Cpu>,
}

/// A PCI function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PciFunction {
    /// Where it is.
    pub address: PciAddress,
    /// What is above it in the PCI tree, the root first.
    pub ancestors: Vec<Ancestor>,
    /// Class, subclass and programming interface, 24 bits: `0x030200` is a 3D controller.
    pub class: u32,
    /// PCI vendor, such as `0x10de`.
    pub vendor: u16,
    /// The vendor's number of the device.
    pub device: u16,
    /// Its NUMA node, where the kernel knows it.
    pub node: Option<u32>,
    /// Logical cpus that are near it; empty where the kernel does not say.
    pub local_cpus: BTreeSet<u32>,
}

/// A step on the way from a PCI root to a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ancestor {
    /// The root: what the CPU offers.
    HostBridge(HostBridge),
    /// A root port, or a port of a switch.
    Bridge(PciAddress),
}

/// An RDMA device of the kernel (`/sys/class/infiniband`): verbs and EFA.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Nic {
    /// Such as `mlx5_0` or `rdmap79s0`.
    pub name: String,
    /// Its PCI function; a NIC in software has none.
    pub pci: Option<PciAddress>,
    /// Its fastest port in Mbit/s, where the kernel says it.
    pub rate_mbps: Option<u32>,
}

/// What a NIC is: PCI vendor and device; shown as `15b3:1021`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NicKind {
    /// PCI vendor.
    pub vendor: u16,
    /// The vendor's number of the device.
    pub device: u16,
}

/// A NUMA node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumaNode {
    /// The kernel's number.
    pub number: u32,
    /// Its logical cpus that are online; none where it is only memory.
    pub cpus: BTreeSet<u32>,
}

/// A logical cpu.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// The kernel's number.
    pub number: u32,
    /// The lowest logical cpu of the same physical core: itself, unless it is a hyperthread.
    pub core: u32,
}

const NVIDIA: u16 = 0x10de;
const AMD: u16 = 0x1002;

impl PciFunction {
    /// Whether it computes: a 3D controller; a VGA controller of NVIDIA or AMD, which a server's
    /// display is not; or what AMD calls its Instincts, a display controller or an accelerator.
    ///
    /// Source: class codes in the PCI Code and ID Assignment Specification.
    #[must_use]
    pub const fn is_gpu(&self) -> bool {
        match self.class >> 8 {
            0x0302 => true,
            0x0300 => matches!(self.vendor, NVIDIA | AMD),
            0x0380 | 0x1200 => self.vendor == AMD,
            _ => false,
        }
    }

    /// Its vendor and device.
    #[must_use]
    pub const fn kind(&self) -> NicKind {
        NicKind {
            vendor: self.vendor,
            device: self.device,
        }
    }
}

impl Machine {
    /// The function at an address.
    #[must_use]
    pub fn function(&self, address: PciAddress) -> Option<&PciFunction> {
        self.functions.iter().find(|f| f.address == address)
    }

    /// The node with cpus that a function belongs to. A GPU's own node may have memory only (GH200),
    /// and firmware may name none: then it is the node that has all its local cpus.
    #[must_use]
    pub fn home(&self, function: &PciFunction) -> Option<u32> {
        let mut with_cpus = self.nodes.iter().filter(|node| !node.cpus.is_empty());
        let named = with_cpus.clone().find(|n| Some(n.number) == function.node);
        let local = &function.local_cpus;
        named
            .or_else(|| with_cpus.find(|n| !local.is_empty() && local.is_subset(&n.cpus)))
            .map(|node| node.number)
    }
}

impl fmt::Display for NicKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:04x}", self.vendor, self.device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(class: u32, vendor: u16) -> PciFunction {
        PciFunction {
            address: "0000:01:00.0".parse().unwrap(),
            ancestors: Vec::new(),
            class,
            vendor,
            device: 1,
            node: None,
            local_cpus: BTreeSet::new(),
        }
    }

    #[test]
    fn a_server_s_display_is_no_gpu() {
        for (class, vendor, gpu) in [
            (0x03_0200, 0x10de, true),
            (0x03_0000, 0x10de, true),
            (0x03_0000, 0x1002, true),
            (0x12_0000, 0x1002, true),
            (0x03_8000, 0x1002, true),
            (0x03_0000, 0x1a03, false),
            (0x03_8000, 0x8086, false),
            (0x12_0000, 0x8086, false),
            (0x04_0300, 0x10de, false),
        ] {
            assert_eq!(function(class, vendor).is_gpu(), gpu, "{class:06x}");
        }
    }

    #[test]
    fn a_function_s_home_is_a_node_with_cpus() {
        let node = |number, cpus: &[u32]| NumaNode {
            number,
            cpus: cpus.iter().copied().collect(),
        };
        let machine = Machine {
            nodes: vec![node(0, &[0, 1]), node(1, &[2, 3]), node(4, &[])],
            ..Machine::default()
        };
        let home = |node, local: &[u32]| {
            machine.home(&PciFunction {
                node,
                local_cpus: local.iter().copied().collect(),
                ..function(0, 0)
            })
        };
        assert_eq!(home(Some(1), &[]), Some(1));
        assert_eq!(home(Some(4), &[2, 3]), Some(1));
        assert_eq!(home(Some(4), &[]), None);
        assert_eq!(home(None, &[0]), Some(0));
        assert_eq!(home(None, &[0, 1, 2, 3]), None);
    }
}

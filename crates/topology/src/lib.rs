//! Which NICs and cores belong to which device of this machine.
//!
//! [`Machine::read`] takes from sysfs what the kernel says of PCI functions, RDMA NICs, NUMA nodes
//! and cores. [`Topology::of`] divides the NICs and cores among the devices, nearest first; what an
//! explicit [`DeviceMap`] says wins. A [`Topology`] shows itself as a table and serialises to JSON.
//!
//! **Architecture Invariant:** only `sysfs` does I/O, and only below the root it is
//! given. All else is pure: the same machine and map give the same topology.
//!
//! **Architecture Invariant:** no file content, name or link in the tree makes it panic, read
//! without bound or look outside the root.
#![forbid(unsafe_code)]

mod address;
mod cpulist;
mod grouping;
mod machine;
mod map;
mod note;
mod report;
mod sysfs;
mod topology;

pub use address::{
    DeviceName, HostBridge, InvalidDeviceName, InvalidHostBridge, InvalidPciAddress, PciAddress,
};
pub use machine::{Ancestor, Cpu, Machine, Nic, NicKind, NumaNode, PciFunction};
pub use map::{DeviceEntry, DeviceMap, MapError};
pub use note::Note;
pub use sysfs::ReadError;
pub use topology::{DevicePlace, MAX_NICS, Nearness, Topology};

// Every test of a package is linked when one of them is fuzzed, and wants the fuzzer.
#[cfg(test)]
use bolero as _;

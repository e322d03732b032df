//! Divides a machine's NICs and cores among its devices.
//!
//! A device's NICs are those that share most of its way to the CPU: the deepest PCI bridge with a
//! NIC below it, else the host bridge, else the NUMA node, else all. Devices for which that is the
//! same are one group and divide its NICs evenly, in the order of PCI addresses. Groups are served
//! from the nearest to the farthest, and a later one takes what is left: only where nothing is left
//! do its devices share others' NICs. Physical cores are divided in the same way by NUMA node.
//!
//! Source: grouping by the branching PCI ancestor as in pplx-garden's fabric-lib (`topo.rs`), with
//! NUMA affinity for machines that have no switch.

mod cores;
mod division;
mod kind;
mod nics;

use crate::address::DeviceName;
use crate::machine::{Ancestor, Machine};
use crate::map::{self, DeviceMap, MapError};
use crate::topology::{DevicePlace, Topology};

/// A device, and what it can share with NICs and cores.
struct Device<'m> {
    name: DeviceName,
    /// Above it in the PCI tree, the root first.
    ancestors: &'m [Ancestor],
    /// Its node with cpus.
    home: Option<u32>,
}

impl Topology {
    /// The topology of a machine, with what `map` says instead of what is discovered.
    ///
    /// # Errors
    /// Where the map names something that is not there, or something twice.
    pub fn of(machine: &Machine, map: &DeviceMap) -> Result<Self, MapError> {
        let devices = devices(machine);
        let names: Vec<DeviceName> = devices.iter().map(|device| device.name).collect();
        let entries = map::check(map, machine, &names)?;
        let mut notes = Vec::new();
        let nics = nics::place(machine, &devices, &entries, &mut notes);
        let cores = cores::place(machine, &devices, &entries, &mut notes);
        let places = devices.iter().zip(nics.placed).zip(cores);
        let places = places.map(|((device, nics), cores)| DevicePlace {
            device: device.name,
            node: device.home,
            nics: nics.items,
            nics_near: nics.near,
            cores: cores.items,
            cores_near: cores.near,
        });
        Ok(Self {
            devices: places.collect(),
            spare_nics: nics.spare,
            notes,
        })
    }
}

/// The GPUs, or where there is none the nodes that have cpus; by name.
fn devices(machine: &Machine) -> Vec<Device<'_>> {
    let gpus = machine.functions.iter().filter(|f| f.is_gpu());
    let mut devices: Vec<Device<'_>> = gpus
        .map(|gpu| Device {
            name: DeviceName::Gpu(gpu.address),
            ancestors: &gpu.ancestors,
            home: machine.home(gpu),
        })
        .collect();
    if devices.is_empty() {
        let nodes = machine.nodes.iter().filter(|node| !node.cpus.is_empty());
        devices.extend(nodes.map(|node| Device {
            name: DeviceName::Node(node.number),
            ancestors: &[],
            home: Some(node.number),
        }));
    }
    devices.sort_by_key(|device| device.name);
    devices.dedup_by_key(|device| device.name);
    devices
}

//! The explicit map: what an operator says wins over what is discovered.
//!
//! ```toml
//! [[topology.device]]
//! device = "0000:17:00.0"
//! nics = ["mlx5_0", "mlx5_1"]
//! cores = [0, 1, 2]
//! ```

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::address::DeviceName;
use crate::cpulist;
use crate::machine::Machine;
use crate::topology::MAX_NICS;

/// The table `[topology]`. What it leaves out is discovered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceMap {
    /// Devices that it says something of. Default: none.
    #[serde(default)]
    pub device: Vec<DeviceEntry>,
}

/// What belongs to one device.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceEntry {
    /// Which: a GPU's PCI address, or `node0` on a machine without GPUs.
    pub device: DeviceName,
    /// Names of its NICs, 1 to [`MAX_NICS`]; others may have them too. Default: discovered.
    pub nics: Option<Vec<String>>,
    /// Its logical cpus: for the fabric thread, for the watcher thread, the rest for the engine; of
    /// fewer than three the last is shared. Default: discovered.
    pub cores: Option<Vec<u32>>,
}

/// What is wrong with a map on this machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MapError {
    /// There is no such device.
    #[error("device {device} is not on this machine; there is {}", list(there))]
    UnknownDevice {
        /// What the map names.
        device: DeviceName,
        /// The devices there are.
        there: Vec<DeviceName>,
    },
    /// Two entries for one device.
    #[error("device {device} is named twice")]
    RepeatedDevice {
        /// Which.
        device: DeviceName,
    },
    /// No NIC, or more than a transfer can use.
    #[error("device {device} has {count} NICs; want 1 to {MAX_NICS}")]
    NicCount {
        /// Which.
        device: DeviceName,
        /// How many the map gives it.
        count: usize,
    },
    /// There is no such NIC.
    #[error(
        "NIC {nic:?} of device {device} is not on this machine; there is {}",
        list(there)
    )]
    UnknownNic {
        /// Whose.
        device: DeviceName,
        /// What the map names.
        nic: String,
        /// The NICs there are.
        there: Vec<String>,
    },
    /// One device has a NIC twice.
    #[error("device {device} names NIC {nic:?} twice")]
    RepeatedNic {
        /// Whose.
        device: DeviceName,
        /// Which.
        nic: String,
    },
    /// An empty list of cores.
    #[error("device {device} has no cores; want at least one")]
    NoCores {
        /// Which.
        device: DeviceName,
    },
    /// There is no such cpu, or it is offline.
    #[error("cpu {cpu} of device {device} is not online on this machine; there is {there}")]
    UnknownCpu {
        /// Whose.
        device: DeviceName,
        /// What the map names.
        cpu: u32,
        /// The cpus that are online, such as `0-7`.
        there: String,
    },
}

/// The entries by device, once they are known to fit the machine.
pub(crate) fn check<'m>(
    map: &'m DeviceMap,
    machine: &Machine,
    devices: &[DeviceName],
) -> Result<BTreeMap<DeviceName, &'m DeviceEntry>, MapError> {
    let mut entries = BTreeMap::new();
    for entry in &map.device {
        let device = entry.device;
        if !devices.contains(&device) {
            return Err(MapError::UnknownDevice {
                device,
                there: devices.to_vec(),
            });
        }
        if entries.insert(device, entry).is_some() {
            return Err(MapError::RepeatedDevice { device });
        }
        check_nics(device, entry.nics.as_deref(), machine)?;
        check_cores(device, entry.cores.as_deref(), machine)?;
    }
    Ok(entries)
}

fn check_nics(
    device: DeviceName,
    nics: Option<&[String]>,
    machine: &Machine,
) -> Result<(), MapError> {
    let Some(nics) = nics else { return Ok(()) };
    let count = nics.len();
    if !(1..=MAX_NICS).contains(&count) {
        return Err(MapError::NicCount { device, count });
    }
    for (index, nic) in nics.iter().enumerate() {
        let nic = nic.clone();
        if nics[..index].contains(&nic) {
            return Err(MapError::RepeatedNic { device, nic });
        }
        if !machine.nics.iter().any(|there| there.name == nic) {
            let there = machine.nics.iter().map(|there| there.name.clone());
            return Err(MapError::UnknownNic {
                device,
                nic,
                there: there.collect(),
            });
        }
    }
    Ok(())
}

fn check_cores(
    device: DeviceName,
    cores: Option<&[u32]>,
    machine: &Machine,
) -> Result<(), MapError> {
    let Some(cores) = cores else { return Ok(()) };
    if cores.is_empty() {
        return Err(MapError::NoCores { device });
    }
    let online = |cpu: u32| machine.cpus.iter().any(|there| there.number == cpu);
    let Some(cpu) = cores.iter().copied().find(|cpu| !online(*cpu)) else {
        return Ok(());
    };
    let there: Vec<u32> = machine.cpus.iter().map(|there| there.number).collect();
    Err(MapError::UnknownCpu {
        device,
        cpu,
        there: cpulist::format(&there),
    })
}

fn list(names: &[impl ToString]) -> String {
    if names.is_empty() {
        return "none".to_owned();
    }
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    names.join(", ")
}

//! Where a worker's threads run and which NICs its shards use.

use std::path::Path;

use tandem_config::WorkerConfig;
use tandem_topology::{DeviceName, DevicePlace, Machine, Topology};

use crate::start::StartError;

/// One shard's part of the machine; nothing where it is not placed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// Names of its device's NICs.
    pub(crate) nics: Vec<String>,
    /// For its fabric's thread.
    pub(crate) fabric_cpu: Option<usize>,
    /// For the watcher's thread, on the first shard's device.
    pub(crate) watcher_cpu: Option<usize>,
}

/// The places of a worker's shards, in their order.
pub(crate) fn places(config: &WorkerConfig, shards: usize) -> Result<Vec<Place>, StartError> {
    if config.devices.is_empty() {
        return Ok(vec![Place::default(); shards]);
    }
    if config.devices.len() != shards {
        return Err(StartError::Devices {
            devices: config.devices.len(),
            shards,
        });
    }
    let machine = Machine::read(Path::new("/sys"))?;
    let topology = Topology::of(&machine, &config.topology)?;
    let place = |name: &DeviceName| {
        let mut devices = topology.devices.iter();
        let found = devices.find(|d| d.device == *name);
        found.map(place).ok_or_else(|| StartError::NoDevice {
            device: name.to_string(),
            there: topology
                .devices
                .iter()
                .map(|d| d.device.to_string())
                .collect(),
        })
    };
    config.devices.iter().map(place).collect()
}

fn place(device: &DevicePlace) -> Place {
    let cpu = |core: Option<u32>| core.map(|c| c as usize);
    Place {
        nics: device.nics.iter().map(|nic| nic.name.clone()).collect(),
        fabric_cpu: cpu(device.fabric_core()),
        watcher_cpu: cpu(device.watcher_core()),
    }
}

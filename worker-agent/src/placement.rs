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
    pub(crate) fabric: Option<Core>,
    /// For the watcher's thread, on the first shard's device; none for other shards.
    pub(crate) watcher: Option<Core>,
}

/// A thread's logical cpu.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Core {
    pub(crate) cpu: usize,
    /// No other thread of this worker is placed there, so that it may spin.
    pub(crate) own: bool,
}

/// What is named for a shard, by the topology or the configuration.
#[derive(Clone, Debug, Default)]
struct Named {
    nics: Vec<String>,
    fabric: Option<usize>,
    watcher: Option<usize>,
    engine: Vec<usize>,
}

/// The places of a worker's shards, in their order.
pub(crate) fn places(config: &WorkerConfig, shards: usize) -> Result<Vec<Place>, StartError> {
    let mut named = devices(config, shards)?;
    for (shard, named) in named.iter_mut().enumerate() {
        named.fabric = config.fabric.cpu.map(|cpu| cpu + shard).or(named.fabric);
    }
    Ok(settle(named))
}

/// What the devices of the shards have.
fn devices(config: &WorkerConfig, shards: usize) -> Result<Vec<Named>, StartError> {
    if config.devices.is_empty() {
        return Ok(vec![Named::default(); shards]);
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
        found.map(named).ok_or_else(|| StartError::NoDevice {
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

fn named(device: &DevicePlace) -> Named {
    let cpu = |core: u32| core as usize;
    let engine = device.engine_cores().iter();
    Named {
        nics: device.nics.iter().map(|nic| nic.name.clone()).collect(),
        fabric: device.fabric_core().map(cpu),
        watcher: device.watcher_core().map(cpu),
        engine: engine.copied().map(cpu).collect(),
    }
}

/// Which of the threads have a cpu to themselves.
fn settle(mut named: Vec<Named>) -> Vec<Place> {
    // One thread watches for all shards.
    for other in named.iter_mut().skip(1) {
        other.watcher = None;
    }
    let of = |n: &Named| {
        let threads = n.fabric.into_iter().chain(n.watcher);
        threads.chain(n.engine.clone()).collect::<Vec<usize>>()
    };
    let taken: Vec<usize> = named.iter().flat_map(of).collect();
    let core = |cpu: usize| Core {
        cpu,
        own: taken.iter().filter(|taken| **taken == cpu).count() == 1,
    };
    let place = |named: Named| Place {
        nics: named.nics,
        fabric: named.fabric.map(core),
        watcher: named.watcher.map(core),
    };
    named.into_iter().map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device with these cores, given out as the topology does.
    fn device(cores: &[u32]) -> Named {
        named(&DevicePlace {
            device: DeviceName::Node(0),
            node: None,
            nics: Vec::new(),
            nics_near: tandem_topology::Nearness::Anywhere,
            cores: cores.to_vec(),
            cores_near: tandem_topology::Nearness::Anywhere,
        })
    }

    fn own(core: Option<Core>) -> Option<bool> {
        core.map(|core| core.own)
    }

    #[test]
    fn a_core_is_a_threads_own_where_no_other_thread_has_it() {
        let owned = |cores| {
            let place = settle(vec![device(cores)]).remove(0);
            (own(place.fabric), own(place.watcher))
        };
        assert_eq!(owned(&[4, 5, 6, 7]), (Some(true), Some(true)));
        // The engine has the watcher's; then all three share one.
        assert_eq!(owned(&[4, 5]), (Some(true), Some(false)));
        assert_eq!(owned(&[4]), (Some(false), Some(false)));
        assert_eq!(owned(&[]), (None, None));
    }

    #[test]
    fn shards_on_one_device_share_its_fabric_core_and_one_thread_watches() {
        let places = settle(vec![device(&[0, 1, 2]), device(&[0, 1, 2])]);
        assert_eq!(own(places[0].fabric), Some(false));
        assert_eq!(own(places[0].watcher), Some(true));
        assert_eq!(places[1].watcher, None);
    }
}

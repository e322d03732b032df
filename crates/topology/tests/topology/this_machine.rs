//! The machine that the tests run on.

use std::path::Path;

use tandem_topology::{DeviceMap, Machine, Topology};

#[test]
fn the_sysfs_of_this_machine_is_read() {
    let machine = Machine::read(Path::new("/sys")).unwrap();
    let topology = Topology::of(&machine, &DeviceMap::default()).unwrap();
    assert!(!topology.devices.is_empty());
}

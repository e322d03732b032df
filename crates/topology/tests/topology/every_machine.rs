//! What holds on every machine.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use tandem_topology::{
    Ancestor, DeviceEntry, DeviceMap, DeviceName, MAX_NICS, Machine, Nearness, PciAddress, Topology,
};

use crate::random_machine::plan;

/// What holds of any topology of any machine.
pub(crate) fn check(machine: &Machine, topology: &Topology) -> Result<(), TestCaseError> {
    let mut sizes: BTreeMap<Nearness, BTreeSet<usize>> = BTreeMap::new();
    for place in &topology.devices {
        prop_assert!(place.nics.len() <= MAX_NICS);
        prop_assert_eq!(place.nics.is_empty(), machine.nics.is_empty());
        let names: BTreeSet<&str> = place.nics.iter().map(|nic| nic.name.as_str()).collect();
        prop_assert_eq!(names.len(), place.nics.len(), "each once");
        for nic in &place.nics {
            prop_assert!(machine.nics.contains(nic), "{} is there", nic.name);
            prop_assert!(!topology.spare_nics.contains(nic));
            prop_assert!(is_near(machine, nic.pci, place.nics_near));
        }
        if let DeviceName::Gpu(gpu) = place.device {
            prop_assert!(is_near(machine, Some(gpu), place.nics_near));
        }
        if place.nics_near != Nearness::Explicit {
            sizes
                .entry(place.nics_near)
                .or_default()
                .insert(place.nics.len());
        }
        prop_assert!(!place.cores.is_empty());
        let online = |cpu: &u32| machine.cpus.iter().any(|there| there.number == *cpu);
        prop_assert!(place.cores.iter().all(online));
        prop_assert!(place.fabric_core().is_some() && place.watcher_core().is_some());
        prop_assert!(!place.engine_cores().is_empty());
    }
    for (near, sizes) in sizes {
        let spread = sizes.last().unwrap() - sizes.first().unwrap();
        prop_assert!(spread <= 1, "{near} is divided as {sizes:?}");
    }
    let mut accounted: BTreeSet<&str> = BTreeSet::new();
    accounted.extend(topology.spare_nics.iter().map(|nic| nic.name.as_str()));
    let placed = topology.devices.iter().flat_map(|place| &place.nics);
    accounted.extend(placed.map(|nic| nic.name.as_str()));
    prop_assert_eq!(
        accounted.len(),
        machine.nics.len(),
        "each NIC is placed or spare"
    );
    prop_assert!(topology.to_string().lines().count() > topology.devices.len());
    Ok(())
}

fn is_near(machine: &Machine, function: Option<PciAddress>, near: Nearness) -> bool {
    let function = function.and_then(|address| machine.function(address));
    let below = |ancestor| function.is_some_and(|f| f.ancestors.contains(&ancestor));
    match near {
        Nearness::Switch(bridge) => below(Ancestor::Bridge(bridge)),
        Nearness::HostBridge(bridge) => below(Ancestor::HostBridge(bridge)),
        Nearness::NumaNode(node) => function.and_then(|f| machine.home(f)) == Some(node),
        Nearness::Anywhere | Nearness::Explicit => true,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn a_written_tree_is_read_as_the_machine_it_is(plan in plan()) {
        let mut machine = plan.write().machine();
        machine.functions.retain(|function| function.class != 0x06_0400);
        prop_assert_eq!(machine, plan.machine());
    }
}

proptest! {
    #[test]
    fn every_machine_is_divided_evenly(plan in plan()) {
        let machine = plan.machine();
        check(&machine, &Topology::of(&machine, &DeviceMap::default()).unwrap())?;
    }

    /// The order in which a machine's parts are listed changes nothing.
    #[test]
    fn the_same_machine_has_the_same_topology(plan in plan(), turn in 0..24usize) {
        let machine = plan.machine();
        let mut turned = machine.clone();
        let by = |len: usize| if len == 0 { 0 } else { turn % len };
        turned.functions.rotate_left(by(machine.functions.len()));
        turned.nics.rotate_left(by(machine.nics.len()));
        turned.nodes.reverse();
        turned.cpus.reverse();
        let map = DeviceMap::default();
        prop_assert_eq!(Topology::of(&machine, &map), Topology::of(&turned, &map));
    }

    /// A map of some devices: these have what it says, and the rest still holds.
    #[test]
    fn a_map_of_what_is_there_is_always_taken(plan in plan(), every in 1..4usize, cores in any::<bool>()) {
        let machine = plan.machine();
        let found = Topology::of(&machine, &DeviceMap::default()).unwrap();
        let some = found.devices.iter().rev().step_by(every);
        let entries = some.map(|place| DeviceEntry {
            device: place.device,
            nics: machine.nics.first().map(|nic| vec![nic.name.clone()]),
            cores: cores.then(|| vec![machine.cpus[0].number]),
        });
        let map = DeviceMap { device: entries.collect() };
        let topology = Topology::of(&machine, &map).unwrap();
        for entry in &map.device {
            let place = topology.devices.iter().find(|p| p.device == entry.device).unwrap();
            if let Some(nics) = &entry.nics {
                prop_assert_eq!(&place.nics[0].name, &nics[0]);
            }
            prop_assert!(entry.cores.as_ref().is_none_or(|cores| *cores == place.cores));
        }
        check(&machine, &topology)?;
    }

    /// Any text as a map is a map or an error.
    #[test]
    fn any_text_as_a_map_is_read_or_refused(device in ".{0,20}", rest in ".{0,40}") {
        let entry = toml::Table::from_iter([("device".to_owned(), device.into())]);
        let text = format!("[[device]]\n{entry}{rest}");
        drop(toml::from_str::<DeviceMap>(&text));
        drop(toml::from_str::<DeviceMap>(&rest));
    }
}

//! Each device's cores: one logical cpu of each physical core of its NUMA node.

use std::collections::{BTreeMap, BTreeSet};

use super::Device;
use super::division::{Share, share};
use crate::address::DeviceName;
use crate::machine::{Cpu, Machine};
use crate::map::DeviceEntry;
use crate::note::Note;
use crate::topology::Nearness;

/// Threads of a device that want a core of their own: fabric, watcher and one of the engine.
const THREADS: usize = 3;

/// Places cores: first what the map says, then node by node, then for devices without a node.
pub(crate) fn place(
    machine: &Machine,
    devices: &[Device<'_>],
    entries: &BTreeMap<DeviceName, &DeviceEntry>,
    notes: &mut Vec<Note>,
) -> Vec<Share<u32>> {
    let mut placed: Vec<Share<u32>> = Vec::new();
    let mut groups: BTreeMap<Nearness, Vec<usize>> = BTreeMap::new();
    for (index, device) in devices.iter().enumerate() {
        let cores = entries.get(&device.name).and_then(|e| e.cores.clone());
        let near = match (&cores, device.home) {
            (Some(_), _) => Nearness::Explicit,
            (None, Some(node)) => Nearness::NumaNode(node),
            (None, None) => Nearness::Anywhere,
        };
        if near != Nearness::Explicit {
            groups.entry(near).or_default().push(index);
        }
        let items = cores.unwrap_or_default();
        placed.push(Share { items, near });
    }
    let mut taken = cores_of(machine, &placed);
    for (near, members) in groups {
        let names: Vec<DeviceName> = members.iter().map(|index| devices[*index].name).collect();
        let pool = pool(machine, near, &taken, &names, notes);
        taken.extend(pool.iter().map(|cpu| cpu.core));
        for (part, index) in members.iter().enumerate() {
            let cores = share(&pool, members.len(), part);
            placed[*index].items = cores.iter().map(|cpu| cpu.number).collect();
        }
    }
    placed
}

/// The physical cores that these devices have.
fn cores_of(machine: &Machine, placed: &[Share<u32>]) -> BTreeSet<u32> {
    let numbers: BTreeSet<u32> = placed.iter().flat_map(|p| p.items.clone()).collect();
    let cpus = machine.cpus.iter().filter(|c| numbers.contains(&c.number));
    cpus.map(|cpu| cpu.core).collect()
}

/// The cores there that nobody has, or all where none is left.
fn pool(
    machine: &Machine,
    near: Nearness,
    taken: &BTreeSet<u32>,
    devices: &[DeviceName],
    notes: &mut Vec<Note>,
) -> Vec<Cpu> {
    let all = physical(machine, near);
    let free = all.iter().filter(|cpu| !taken.contains(&cpu.core));
    let free: Vec<Cpu> = free.copied().collect();
    let devices = || devices.to_vec();
    let pool = if free.is_empty() && !all.is_empty() {
        notes.push(Note::TakenCores { devices: devices() });
        all
    } else {
        free
    };
    if pool.len() < THREADS * devices().len() {
        notes.push(Note::FewCores {
            devices: devices(),
            cores: pool.len(),
        });
    }
    pool
}

/// The lowest logical cpu of each physical core there.
fn physical(machine: &Machine, near: Nearness) -> Vec<Cpu> {
    let there: Option<&BTreeSet<u32>> = match near {
        Nearness::NumaNode(node) => {
            let node = machine.nodes.iter().find(|n| n.number == node);
            node.map(|node| &node.cpus)
        }
        _ => None,
    };
    let mut cpus: Vec<Cpu> = machine.cpus.clone();
    cpus.retain(|cpu| there.is_none_or(|there| there.contains(&cpu.number)));
    cpus.sort_unstable_by_key(|cpu| cpu.number);
    let mut seen = BTreeSet::new();
    cpus.retain(|cpu| seen.insert(cpu.core));
    cpus
}

//! Each device's NICs.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::Device;
use super::division::{Share, share};
use super::kind::{Candidate, candidates, keep_one};
use crate::address::DeviceName;
use crate::machine::{Ancestor, Machine, Nic};
use crate::map::DeviceEntry;
use crate::note::Note;
use crate::topology::{MAX_NICS, Nearness};

/// All devices' NICs, and those that are left.
pub(crate) struct NicPlan {
    /// In the order of the devices.
    pub(crate) placed: Vec<Share<Nic>>,
    pub(crate) spare: Vec<Nic>,
}

/// Places NICs: first what the map says, then group by group.
pub(crate) fn place(
    machine: &Machine,
    devices: &[Device<'_>],
    entries: &BTreeMap<DeviceName, &DeviceEntry>,
    notes: &mut Vec<Note>,
) -> NicPlan {
    let all = candidates(machine);
    let mut taken: BTreeSet<&str> = BTreeSet::new();
    let mut placed: Vec<Option<Share<Nic>>> = Vec::new();
    for device in devices {
        let names = entries.get(&device.name).and_then(|e| e.nics.as_ref());
        taken.extend(names.into_iter().flatten().map(String::as_str));
        placed.push(names.map(|names| explicit(&all, names)));
    }
    let named: BTreeSet<&str> = taken.clone();
    let kept = keep_one(&all, notes);
    withdraw(notes, &named);
    let open = (0..devices.len()).filter(|index| placed[*index].is_none());
    for (group, members) in groups(machine, devices, open, &kept) {
        let shares = divide(machine, &group, members.len(), &kept, &taken);
        for (index, nics) in members.into_iter().zip(shares) {
            let device = devices[index].name;
            let used = nics.len().min(MAX_NICS);
            if nics.len() > used {
                notes.push(Note::ManyNics {
                    device,
                    nearest: nics.len(),
                    used,
                });
            }
            let nics = &nics[..used];
            taken.extend(nics.iter().map(|c| c.nic.name.as_str()));
            placed[index] = Some(Share {
                items: nics.iter().map(|c| c.nic.clone()).collect(),
                near: group.near,
            });
        }
    }
    let spare = all.iter().map(|c| c.nic);
    let spare = spare.filter(|nic| !taken.contains(nic.name.as_str()));
    let placed: Vec<Share<Nic>> = placed.into_iter().flatten().collect();
    assert_eq!(placed.len(), devices.len(), "each device is in a group");
    notes.extend(remarks(devices, &placed));
    NicPlan {
        spare: spare.cloned().collect(),
        placed,
    }
}

/// Devices to which the same NICs are nearest. The order is that of service.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Group {
    /// Steps from the PCI root, the most first; none for what is not in the PCI tree.
    depth: Reverse<usize>,
    near: Nearness,
}

fn groups(
    machine: &Machine,
    devices: &[Device<'_>],
    open: impl Iterator<Item = usize>,
    kept: &[Candidate<'_>],
) -> BTreeMap<Group, Vec<usize>> {
    let mut groups: BTreeMap<Group, Vec<usize>> = BTreeMap::new();
    for index in open {
        let group = nearest(machine, &devices[index], kept);
        groups.entry(group).or_default().push(index);
    }
    groups
}

/// The nearest place that a device shares with any NIC.
fn nearest(machine: &Machine, device: &Device<'_>, kept: &[Candidate<'_>]) -> Group {
    let ancestors = device.ancestors.iter().enumerate().rev();
    let in_tree = ancestors.map(|(depth, ancestor)| Group {
        depth: Reverse(depth + 1),
        near: match ancestor {
            Ancestor::Bridge(bridge) => Nearness::Switch(*bridge),
            Ancestor::HostBridge(bridge) => Nearness::HostBridge(*bridge),
        },
    });
    let outside = |near| Group {
        depth: Reverse(0),
        near,
    };
    let at_home = device.home.map(|node| outside(Nearness::NumaNode(node)));
    in_tree
        .chain(at_home)
        .find(|group| kept.iter().any(|c| shares(machine, c, group.near)))
        .unwrap_or_else(|| outside(Nearness::Anywhere))
}

/// Whether a NIC is there too.
fn shares(machine: &Machine, candidate: &Candidate<'_>, near: Nearness) -> bool {
    let below = |ancestor| {
        let function = candidate.function;
        function.is_some_and(|function| function.ancestors.contains(&ancestor))
    };
    match near {
        Nearness::Switch(bridge) => below(Ancestor::Bridge(bridge)),
        Nearness::HostBridge(bridge) => below(Ancestor::HostBridge(bridge)),
        Nearness::NumaNode(node) => {
            let home = candidate.function.and_then(|f| machine.home(f));
            home == Some(node)
        }
        Nearness::Anywhere => true,
        Nearness::Explicit => false,
    }
}

/// Shares of the group's NICs that nobody has, or of all where none is left.
fn divide<'m>(
    machine: &Machine,
    group: &Group,
    members: usize,
    kept: &[Candidate<'m>],
    taken: &BTreeSet<&str>,
) -> Vec<Vec<Candidate<'m>>> {
    let near = kept.iter().filter(|c| shares(machine, c, group.near));
    let near: Vec<Candidate<'m>> = near.copied().collect();
    let free = near.iter().filter(|c| !taken.contains(c.nic.name.as_str()));
    let free: Vec<Candidate<'m>> = free.copied().collect();
    let pool = if free.is_empty() { near } else { free };
    let shares = (0..members).map(|index| share(&pool, members, index).to_vec());
    shares.collect()
}

fn explicit(all: &[Candidate<'_>], names: &[String]) -> Share<Nic> {
    let named = |name: &String| all.iter().find(|c| c.nic.name == *name);
    Share {
        items: names
            .iter()
            .filter_map(named)
            .map(|c| c.nic.clone())
            .collect(),
        near: Nearness::Explicit,
    }
}

/// Takes back that NICs were left out where the map uses them.
fn withdraw(notes: &mut Vec<Note>, named: &BTreeSet<&str>) {
    notes.retain_mut(|note| {
        let Note::OtherKind { nics, .. } = note else {
            return true;
        };
        nics.retain(|nic| !named.contains(nic.as_str()));
        !nics.is_empty()
    });
}

/// Devices without NICs, and NICs of several devices unless the map alone says so.
fn remarks(devices: &[Device<'_>], placed: &[Share<Nic>]) -> Vec<Note> {
    let mut notes = Vec::new();
    let mut users: BTreeMap<&str, Vec<(DeviceName, Nearness)>> = BTreeMap::new();
    for (device, share) in devices.iter().zip(placed) {
        let device = device.name;
        if share.items.is_empty() {
            notes.push(Note::NoNics { device });
        }
        for nic in &share.items {
            let users = users.entry(&nic.name).or_default();
            users.push((device, share.near));
        }
    }
    let shared = users.into_iter().filter(|(_, users)| {
        let discovered = users.iter().any(|(_, near)| *near != Nearness::Explicit);
        users.len() > 1 && discovered
    });
    notes.extend(shared.map(|(nic, users)| Note::SharedNic {
        nic: nic.to_owned(),
        devices: users.into_iter().map(|(device, _)| device).collect(),
    }));
    notes
}

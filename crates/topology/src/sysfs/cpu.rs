//! `devices/system/cpu` and `devices/system/node`: cores, and the nodes that have them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::ReadError;
use super::tree::Tree;
use crate::address::decimal;
use crate::cpulist;
use crate::machine::{Cpu, NumaNode};

const CPUS: &str = "devices/system/cpu";
const NODES: &str = "devices/system/node";
const LIST: &str = "a list of cpus";

/// All cpus that are online, by number. Where the kernel does not know every core, each cpu counts
/// as its own.
pub(crate) fn cpus(tree: &Tree) -> Result<Vec<Cpu>, ReadError> {
    let online = online(tree)?;
    if online.is_empty() {
        return Err(ReadError::NoCpus {
            root: tree.root().to_owned(),
        });
    }
    let mut first_of_core = BTreeMap::new();
    let mut cpus = Vec::with_capacity(online.len());
    for number in &online {
        let folder = Path::new(CPUS).join(format!("cpu{number}/topology"));
        let package = part(tree, &folder.join("physical_package_id"))?;
        let core = part(tree, &folder.join("core_id"))?;
        let (Some(package), Some(core)) = (package, core) else {
            let own = |number| Cpu {
                number,
                core: number,
            };
            return Ok(online.into_iter().map(own).collect());
        };
        cpus.push(Cpu {
            number: *number,
            core: *first_of_core.entry((package, core)).or_insert(*number),
        });
    }
    Ok(cpus)
}

fn online(tree: &Tree) -> Result<BTreeSet<u32>, ReadError> {
    let path = Path::new(CPUS).join("online");
    if let Some(listed) = tree.parsed(&path, LIST, cpulist::parse)? {
        return Ok(listed);
    }
    let names = tree.names(Path::new(CPUS))?;
    let numbers = names.iter().filter_map(|name| numbered(name, "cpu"));
    Ok(numbers.filter(|cpu| *cpu < cpulist::MAX_CPUS).collect())
}

/// The number of a package or core; -1 where the kernel does not know it.
fn part(tree: &Tree, path: &Path) -> Result<Option<u32>, ReadError> {
    let parse = |text: &str| {
        if text == "-1" {
            Some(None)
        } else {
            decimal(text).map(Some)
        }
    };
    Ok(tree.parsed(path, "a number, or -1", parse)?.flatten())
}

/// All nodes, by number. Where the kernel has none with cpus, one has them all.
pub(crate) fn nodes(tree: &Tree, cpus: &[Cpu]) -> Result<Vec<NumaNode>, ReadError> {
    let online: BTreeSet<u32> = cpus.iter().map(|cpu| cpu.number).collect();
    let mut nodes = BTreeMap::new();
    for name in tree.names(Path::new(NODES))? {
        let Some(number) = numbered(&name, "node") else {
            continue;
        };
        let path = Path::new(NODES).join(&name).join("cpulist");
        let listed = tree.parsed(&path, LIST, cpulist::parse)?;
        let cpus = &listed.unwrap_or_default() & &online;
        nodes.insert(number, NumaNode { number, cpus });
    }
    if nodes.values().all(|node| node.cpus.is_empty()) {
        let all = NumaNode {
            number: 0,
            cpus: online,
        };
        nodes.insert(0, all);
    }
    Ok(nodes.into_values().collect())
}

/// 3 of `cpu3`; `None` for `cpufreq`.
fn numbered(name: &str, prefix: &str) -> Option<u32> {
    decimal(name.strip_prefix(prefix)?)
}

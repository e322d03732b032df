//! `bus/pci/devices`: functions, and the tree that their real paths spell.

use std::path::Path;

use super::ReadError;
use super::tree::Tree;
use crate::address::{PciAddress, decimal};
use crate::cpulist;
use crate::machine::{Ancestor, PciFunction};

const FOLDER: &str = "bus/pci/devices";

/// All functions, by address.
pub(crate) fn functions(tree: &Tree) -> Result<Vec<PciFunction>, ReadError> {
    let mut functions = Vec::new();
    for name in tree.names(Path::new(FOLDER))? {
        let link = Path::new(FOLDER).join(&name);
        let Some(path) = tree.resolve(&link)? else {
            continue;
        };
        let strange = |content: &str, want| ReadError::Content {
            path: tree.root().join(FOLDER),
            content: content.to_owned(),
            want,
        };
        let Ok(address) = name.parse::<PciAddress>() else {
            return Err(strange(&name, "PCI addresses"));
        };
        if !path.ends_with(&name) {
            return Err(strange(&name, "links to functions of the same name"));
        }
        functions.push(function(tree, &path, address)?);
    }
    functions.sort_unstable_by_key(|function| function.address);
    Ok(functions)
}

fn function(tree: &Tree, path: &Path, address: PciAddress) -> Result<PciFunction, ReadError> {
    let class = number(tree, &path.join("class"))?;
    let vendor = number(tree, &path.join("vendor"))?;
    let device = number(tree, &path.join("device"))?;
    // -1 where firmware names no node.
    let node = tree.parsed(
        &path.join("numa_node"),
        "the number of a NUMA node, or -1",
        |text| {
            if text == "-1" {
                Some(None)
            } else {
                decimal(text).map(Some)
            }
        },
    )?;
    let local_cpus = tree.parsed(
        &path.join("local_cpulist"),
        "a list of cpus",
        cpulist::parse,
    )?;
    Ok(PciFunction {
        address,
        ancestors: ancestors(tree.below(path)),
        class,
        vendor,
        device,
        node: node.flatten(),
        local_cpus: local_cpus.unwrap_or_default(),
    })
}

/// A number such as `0x10de`, of as many bits as `T` has and at most 24.
fn number<T: TryFrom<u32>>(tree: &Tree, path: &Path) -> Result<T, ReadError> {
    let parse = |text: &str| {
        let digits = text.strip_prefix("0x")?;
        let plain = digits.len() <= 6 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u32::from_str_radix(plain.then_some(digits)?, 16).ok()?;
        T::try_from(number).ok()
    };
    let missing = || ReadError::Missing {
        path: path.to_owned(),
    };
    tree.parsed(path, "a number such as 0x10de", parse)?
        .ok_or_else(missing)
}

/// The bridges above a function, the root first. What else the path may have, such as the bus of a
/// virtual machine's host, is no part of the PCI tree.
fn ancestors(path: &Path) -> Vec<Ancestor> {
    let names = path.parent().into_iter().flat_map(Path::components);
    let ancestor = |name: &str| {
        let bridge = name.parse().map(Ancestor::Bridge).ok();
        bridge.or_else(|| name.parse().map(Ancestor::HostBridge).ok())
    };
    names
        .filter_map(|name| ancestor(name.as_os_str().to_str()?))
        .collect()
}

/// The function that a path is, or is below.
pub(crate) fn nearest_function(path: &Path) -> Option<PciAddress> {
    path.ancestors()
        .find_map(|path| path.file_name()?.to_str()?.parse().ok())
}

//! `class/infiniband`: RDMA NICs, verbs and EFA alike.

use std::path::Path;

use super::ReadError;
use super::pci::nearest_function;
use super::tree::Tree;
use crate::machine::{Nic, PciFunction};

const FOLDER: &str = "class/infiniband";

/// All NICs, by name.
pub(crate) fn nics(tree: &Tree, functions: &[PciFunction]) -> Result<Vec<Nic>, ReadError> {
    let mut nics = Vec::new();
    for name in tree.names(Path::new(FOLDER))? {
        let Some(path) = tree.resolve(&Path::new(FOLDER).join(&name))? else {
            continue;
        };
        let device = tree.resolve(&path.join("device"))?;
        let pci = device.and_then(|path| nearest_function(tree.below(&path)));
        nics.push(Nic {
            rate_mbps: rate(tree, &path.join("ports"))?,
            pci: pci.filter(|pci| functions.iter().any(|f| f.address == *pci)),
            name,
        });
    }
    Ok(nics)
}

/// The fastest port, in Mbit/s.
fn rate(tree: &Tree, ports: &Path) -> Result<Option<u32>, ReadError> {
    let mut fastest = None;
    for port in tree.names(ports)? {
        let path = ports.join(port).join("rate");
        match tree.parsed(&path, "a rate such as 400 Gb/sec (4X NDR)", mbps) {
            Ok(rate) => fastest = fastest.max(rate),
            // Drivers refuse to say the rate of a port in a state that they do not know.
            Err(ReadError::Io { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(fastest)
}

/// Mbit/s of `400 Gb/sec (4X NDR)` or `2.5 Gb/sec (1X SDR)`.
fn mbps(text: &str) -> Option<u32> {
    let (number, _) = text.split_once(" Gb/sec")?;
    let (whole, tenths) = number.split_once('.').unwrap_or((number, "0"));
    let plain = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    if whole.len() > 5 || tenths.len() > 1 || !plain(whole) || !plain(tenths) {
        return None;
    }
    Some(whole.parse::<u32>().ok()? * 1000 + tenths.parse::<u32>().ok()? * 100)
}

#[cfg(test)]
mod tests {
    use super::mbps;

    #[test]
    fn rates_are_read_to_the_tenth() {
        assert_eq!(mbps("400 Gb/sec (4X NDR)"), Some(400_000));
        assert_eq!(mbps("2.5 Gb/sec (1X SDR)"), Some(2500));
        for text in [
            "",
            "Gb/sec",
            "400",
            "-1 Gb/sec",
            "999999 Gb/sec",
            "1. Gb/sec",
        ] {
            assert_eq!(mbps(text), None, "{text:?}");
        }
    }
}

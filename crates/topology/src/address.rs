//! Names that the kernel gives: PCI functions, host bridges, devices that compute.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Where a PCI function is; read and shown as in sysfs: `0000:17:00.0`.
///
/// The domain has four digits or more: VMD and Hyper-V give numbers above `ffff`, and the NVIDIA
/// tools write eight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    /// PCI segment.
    pub domain: u32,
    /// Bus in the domain.
    pub bus: u8,
    /// Device on the bus, 0 to 31.
    pub device: u8,
    /// Function of the device, 0 to 7.
    pub function: u8,
}

/// Text that is no PCI address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("PCI address {0:?}: want one such as 0000:17:00.0")]
pub struct InvalidPciAddress(pub String);

impl FromStr for PciAddress {
    type Err = InvalidPciAddress;

    fn from_str(text: &str) -> Result<Self, InvalidPciAddress> {
        let parse = || {
            let mut fields = text.split(':');
            let (domain, bus, slot) = (fields.next()?, fields.next()?, fields.next()?);
            let (device, function) = slot.split_once('.')?;
            let address = Self {
                domain: hex(domain, 4..=8)?,
                bus: hex(bus, 2..=2)? as u8,
                device: hex(device, 2..=2)? as u8,
                function: hex(function, 1..=1)? as u8,
            };
            let whole = fields.next().is_none() && address.device < 32 && address.function < 8;
            whole.then_some(address)
        };
        parse().ok_or_else(|| InvalidPciAddress(text.to_owned()))
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            domain,
            bus,
            device,
            function,
        } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function}")
    }
}

impl Serialize for PciAddress {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A root of PCI trees; read and shown as in sysfs: `pci0000:17`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostBridge {
    /// PCI segment.
    pub domain: u32,
    /// Its first bus.
    pub bus: u8,
}

/// Text that names no host bridge.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("host bridge {0:?}: want one such as pci0000:17")]
pub struct InvalidHostBridge(pub String);

impl FromStr for HostBridge {
    type Err = InvalidHostBridge;

    fn from_str(text: &str) -> Result<Self, InvalidHostBridge> {
        let parse = || {
            let (domain, bus) = text.strip_prefix("pci")?.split_once(':')?;
            Some(Self {
                domain: hex(domain, 4..=8)?,
                bus: hex(bus, 2..=2)? as u8,
            })
        };
        parse().ok_or_else(|| InvalidHostBridge(text.to_owned()))
    }
}

impl fmt::Display for HostBridge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pci{:04x}:{:02x}", self.domain, self.bus)
    }
}

impl Serialize for HostBridge {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Something that computes; read and shown as `0000:17:00.0` or `node0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(try_from = "String")]
pub enum DeviceName {
    /// A GPU.
    Gpu(PciAddress),
    /// The cores of a NUMA node, on a machine without GPUs.
    Node(u32),
}

/// Text that names no device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("device {0:?}: want a PCI address such as 0000:17:00.0, or a NUMA node such as node0")]
pub struct InvalidDeviceName(pub String);

impl FromStr for DeviceName {
    type Err = InvalidDeviceName;

    fn from_str(text: &str) -> Result<Self, InvalidDeviceName> {
        let name = match text.strip_prefix("node") {
            Some(number) => decimal(number).map(Self::Node),
            None => text.parse().ok().map(Self::Gpu),
        };
        name.ok_or_else(|| InvalidDeviceName(text.to_owned()))
    }
}

impl TryFrom<String> for DeviceName {
    type Error = InvalidDeviceName;

    fn try_from(text: String) -> Result<Self, InvalidDeviceName> {
        text.parse()
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gpu(address) => address.fmt(f),
            Self::Node(node) => write!(f, "node{node}"),
        }
    }
}

impl Serialize for DeviceName {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A number of so many hexadecimal digits and nothing else: the standard parser takes signs too.
fn hex(text: &str, digits: std::ops::RangeInclusive<usize>) -> Option<u32> {
    let plain = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = (plain && digits.contains(&text.len())).then_some(text)?;
    u32::from_str_radix(number, 16).ok()
}

/// A number of decimal digits and nothing else: the standard parser takes signs too.
pub(crate) fn decimal(text: &str) -> Option<u32> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then_some(text)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_as_it_is_read() {
        for text in ["0000:17:00.0", "10000:e1:1f.7", "ffffffff:ff:00.1"] {
            assert_eq!(text.parse::<PciAddress>().unwrap().to_string(), text);
        }
        let long: PciAddress = "00000000:1B:00.0".parse().unwrap();
        assert_eq!(long.to_string(), "0000:1b:00.0");
        assert_eq!(
            "pci0009:01".parse::<HostBridge>().unwrap().to_string(),
            "pci0009:01"
        );
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in [
            "",
            "17:00.0",
            "000:17:00.0",
            "0000:17:00",
            "0000:17:20.0",
            "0000:17:00.8",
            "0000:17:00.0:1",
            "+000:17:00.0",
            "0000:1:00.0",
            "0000:é:00.0",
            "123456789:17:00.0",
        ] {
            assert!(text.parse::<PciAddress>().is_err(), "{text:?}");
        }
        for text in ["", "pci", "0000:17", "pci0000:17:00", "pci+000:17"] {
            assert!(text.parse::<HostBridge>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_device_is_a_gpu_or_a_node() {
        assert_eq!("node12".parse(), Ok(DeviceName::Node(12)));
        let gpu: DeviceName = "0000:17:00.0".parse().unwrap();
        assert_eq!(gpu.to_string(), "0000:17:00.0");
        for text in ["node", "node+1", "node-1", "node99999999999", "gpu0"] {
            assert_eq!(
                text.parse::<DeviceName>(),
                Err(InvalidDeviceName(text.into()))
            );
        }
    }
}

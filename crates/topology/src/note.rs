//! What a reader of a topology might not expect.

use std::fmt;

use serde::Serialize;

use crate::address::DeviceName;
use crate::machine::NicKind;

/// One such fact; serialised as the text that it shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// NICs of another kind than most, such as those for management.
    OtherKind {
        /// Their kind; `None`: NICs in software.
        kind: Option<NicKind>,
        /// Their names.
        nics: Vec<String>,
        /// The kind that is used.
        used: Option<NicKind>,
    },
    /// More NICs are nearest to a device than one can use.
    ManyNics {
        /// Which device.
        device: DeviceName,
        /// How many would be its own.
        nearest: usize,
        /// How many it has.
        used: usize,
    },
    /// The machine has no NIC for a device.
    NoNics {
        /// Which device.
        device: DeviceName,
    },
    /// A NIC that several devices have.
    SharedNic {
        /// Its name.
        nic: String,
        /// Whose.
        devices: Vec<DeviceName>,
    },
    /// Too few cores for each device to have one for each thread, so that threads share.
    FewCores {
        /// Devices that divide the cores.
        devices: Vec<DeviceName>,
        /// How many cores they divide.
        cores: usize,
    },
    /// Devices that divide cores which others have too, as none is left.
    TakenCores {
        /// Which devices.
        devices: Vec<DeviceName>,
    },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherKind { kind, nics, used } => {
                let nics = nics.join(", ");
                let (kind, used) = (describe(*kind), describe(*used));
                write!(f, "left out {nics} ({kind}): used are those of {used}")
            }
            Self::ManyNics {
                device,
                nearest,
                used,
            } => write!(
                f,
                "{device}: {nearest} NICs are nearest, the first {used} used"
            ),
            Self::NoNics { device } => write!(f, "{device} has no RDMA NIC"),
            Self::SharedNic { nic, devices } => {
                write!(f, "{nic} is shared by {}", list(devices))
            }
            Self::FewCores { devices, cores } => {
                let devices = list(devices);
                write!(f, "{devices}: {cores} cores, so that threads share them")
            }
            Self::TakenCores { devices } => {
                write!(
                    f,
                    "{}: all cores near are in others' use too",
                    list(devices)
                )
            }
        }
    }
}

impl Serialize for Note {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

fn describe(kind: Option<NicKind>) -> String {
    kind.map_or_else(|| "software".to_owned(), |kind| kind.to_string())
}

fn list(devices: &[DeviceName]) -> String {
    let names: Vec<String> = devices.iter().map(ToString::to_string).collect();
    names.join(", ")
}

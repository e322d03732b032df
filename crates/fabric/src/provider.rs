//! Names of providers, and which are there.

use std::path::Path;

use libfabric_sys::{Library, LoadError, Version};

use crate::safe::hints::{self, Wanted};

/// First parts of names of providers that move bytes with the CPU.
const SOFTWARE: [&str; 6] = ["tcp", "net", "sockets", "udp", "shm", "sm2"];

/// Whether this provider (libfabric's name) moves bytes with the CPU.
#[must_use]
pub fn is_software(name: &str) -> bool {
    name.split(';').any(|part| SOFTWARE.contains(&part))
}

/// Since then the native TCP bears the name `tcp`.
pub(crate) const NATIVE_TCP: Version = Version {
    major: 1,
    minor: 18,
};

/// libfabric's name of what an operator calls `tcp`, `verbs`, …
///
/// Before 1.18 the native reliable-datagram TCP, which is called `tcp` since, is named `net`.
/// `tcp;ofi_rxm` of 1.17 is not used for it: it follows the null context of a write that was
/// broken off while it was received, so closing an inbox under fire kills the process (measured:
/// SIGSEGV inside `fi_close`, in about half of the runs of `fences`).
pub(crate) fn resolve(name: &str, version: Version) -> String {
    match name {
        "tcp" if version < NATIVE_TCP => "net".into(),
        "verbs" => "verbs;ofi_rxm".into(),
        "udp" => "udp;ofi_rxd".into(),
        other => other.into(),
    }
}

/// Why a provider (libfabric's name) is not used whatever it offers; `None` where it may be.
pub(crate) fn unfit(name: &str) -> Option<&'static str> {
    const UNFIT: [(&str, &str); 3] = [
        (
            "sockets",
            "where a queue is shared by what is sent and received its writes never complete; use tcp",
        ),
        (
            "ofi_rxd",
            "libfabric 2's never completes a write that is to be delivered, and a wrong write wedges \
             any; use tcp",
        ),
        ("lnx", "it has no remote writes; name what it links"),
    ];
    let of = |part| UNFIT.iter().find(|(unfit, _)| *unfit == part);
    name.split(';').find_map(of).map(|(_, why)| *why)
}

/// A provider that can carry flows on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provider {
    /// libfabric's name, e.g. `tcp;ofi_rxm`.
    pub name: String,
    /// Its domains: network interfaces or NICs.
    pub domains: Vec<String>,
    /// Whether it moves bytes with the CPU.
    pub software: bool,
}

/// libfabric as found on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// libfabric's version.
    pub version: Version,
    /// What was loaded.
    pub file: std::path::PathBuf,
    /// Usable providers: reliable datagrams, remote writes with four bytes of queue data. In
    /// libfabric's order, which puts hardware first.
    pub providers: Vec<Provider>,
}

/// Loads libfabric, for the whole process: from `file`, or from where it is found (see
/// [`crate::FabricOptions::library`]).
///
/// # Errors
/// Where it cannot be loaded, is too old, or another one is loaded already.
pub fn load(file: Option<&Path>) -> Result<Version, LoadError> {
    Library::open(file).map(Library::version)
}

/// Loads libfabric and lists what it offers.
pub fn probe() -> Result<Probe, LoadError> {
    let library = Library::get()?;
    Ok(Probe {
        version: library.version(),
        file: library.file().to_owned(),
        providers: available(library),
    })
}

/// Usable providers of this machine; see [`probe`].
pub fn available_providers() -> Result<Vec<Provider>, LoadError> {
    Library::get().map(available)
}

pub(crate) fn available(library: &'static Library) -> Vec<Provider> {
    let mut found: Vec<Provider> = Vec::new();
    // None at all is an error of fi_getinfo (ENODATA), and here an empty list.
    for info in hints::query(library, &Wanted::default()).unwrap_or_default() {
        let (name, domain) = (info.provider(), info.domain());
        if unfit(&name).is_some() {
            continue;
        }
        match found.iter_mut().find(|p| p.name == name) {
            Some(known) if known.domains.contains(&domain) => {}
            Some(known) => known.domains.push(domain),
            None => {
                let software = is_software(&name);
                found.push(Provider {
                    name,
                    domains: vec![domain],
                    software,
                });
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn software_is_known_through_layers() {
        for name in ["tcp", "tcp;ofi_rxm", "net", "udp;ofi_rxd", "shm", "sockets"] {
            assert!(is_software(name), "{name}");
        }
        for name in ["verbs;ofi_rxm", "efa", "efa-direct", "cxi"] {
            assert!(!is_software(name), "{name}");
        }
    }

    #[test]
    fn tcp_means_the_native_one() {
        let debian = Version {
            major: 1,
            minor: 17,
        };
        assert_eq!(resolve("tcp", debian), "net");
        assert_eq!(resolve("tcp", NATIVE_TCP), "tcp");
        assert_eq!(resolve("tcp;ofi_rxm", debian), "tcp;ofi_rxm");
    }
}

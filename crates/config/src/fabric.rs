//! `[fabric]`: the data plane's transport.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use toml::Spanned;
use toml::de::DeValue;

use crate::section::{PATH, Section, integer, text};

/// How KV pages travel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FabricConfig {
    /// The file to load libfabric from; `None`, the default: the one that the environment's
    /// `TANDEM_LIBFABRIC` names, or else the system's `libfabric.so.1`.
    pub library: Option<PathBuf>,
    /// `tcp`, `shm`, `net`, `verbs`, `efa`, or a provider's exact libfabric name. Default `tcp`.
    pub provider: String,
    /// Whether a provider without RDMA hardware is refused. Default no.
    pub require_rdma: bool,
    /// The local address whose network carries the pages. Default 127.0.0.1.
    pub bind: IpAddr,
    /// NICs of each shard, 1 to 4: libfabric's names, or `None` for as many of its choice. On software
    /// providers a NIC is one more set of endpoints. Default one, of its choice.
    pub nics: Vec<Option<String>>,
    /// The core that the first shard's fabric thread is pinned to, the next shard's to the next one;
    /// `None`, the default: any.
    pub cpu: Option<usize>,
    /// Writes posted and not yet completed, at most, for each endpoint. Default 64.
    pub in_flight_writes: usize,
    /// Entries of the completion queue that a peer's writes arrive in, and so the pieces that may be
    /// awaited from it at once, for each shard. `None`, the default: 65,536 on hardware, and no bound
    /// on software providers, whose queues grow.
    pub completion_entries: Option<usize>,
    /// Longest write, in bytes. Default 1 MiB.
    pub max_write_bytes: u64,
    /// For tests: delays and reorders writes, completions and immediates, at random from this seed.
    pub disorder: Option<u64>,
}

/// NICs of one shard, at most.
const MAX_NICS: u64 = 4;

impl Default for FabricConfig {
    fn default() -> Self {
        Self {
            library: None,
            provider: "tcp".to_owned(),
            require_rdma: false,
            bind: IpAddr::V4(Ipv4Addr::LOCALHOST),
            nics: vec![None],
            cpu: None,
            in_flight_writes: 64,
            completion_entries: None,
            max_write_bytes: 1 << 20,
            disorder: None,
        }
    }
}

pub(crate) fn read(section: &mut Section<'_, '_>) -> FabricConfig {
    let default = FabricConfig::default();
    let library = section.read("library", PATH, |value| text(value).map(PathBuf::from));
    let provider = section.read(
        "provider",
        "\"tcp\", \"shm\", \"net\", \"verbs\", \"efa\" or a libfabric provider's name",
        |value| {
            value
                .as_str()
                .filter(|name| is_provider_name(name))
                .map(str::to_owned)
        },
    );
    FabricConfig {
        library: library.map(|path| as_file(section.in_folder(path))),
        provider: provider.unwrap_or(default.provider),
        require_rdma: section.flag("require_rdma").unwrap_or(default.require_rdma),
        bind: section
            .read("bind", "an IP address such as \"127.0.0.1\"", |value| {
                value.as_str()?.parse().ok()
            })
            .unwrap_or(default.bind),
        nics: section
            .read(
                "nics",
                "a number from 1 to 4, or 1 to 4 names of NICs",
                nics,
            )
            .unwrap_or(default.nics),
        cpu: section.number("cpu", 0..=1023),
        in_flight_writes: section
            .number("in_flight_writes", 1..=65_536)
            .unwrap_or(default.in_flight_writes),
        completion_entries: section.number("completion_entries", 64..=1 << 24),
        max_write_bytes: section
            .bytes("max_write_bytes", 4 << 10..=1 << 30)
            .unwrap_or(default.max_write_bytes),
        disorder: section.number("disorder", 0..=u64::MAX),
    }
}

fn nics(value: &DeValue<'_>) -> Option<Vec<Option<String>>> {
    if let Some(count) = integer(value) {
        let fits = (1..=MAX_NICS).contains(&count);
        return fits.then(|| vec![None; count as usize]);
    }
    let names = value.as_array()?;
    let name = |v: &Spanned<DeValue<'_>>| text(v.get_ref()).map(|t| Some(t.to_owned()));
    let fits = (1..=MAX_NICS).contains(&(names.len() as u64));
    names
        .iter()
        .map(name)
        .collect::<Option<Vec<_>>>()
        .filter(|_| fits)
}

/// As libfabric writes them: `tcp;ofi_rxm`, `verbs`, `efa-direct`.
fn is_provider_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_-;".contains(&byte))
}

/// A bare name is a file here, not one that the loader looks for elsewhere.
fn as_file(path: PathBuf) -> PathBuf {
    if path.components().count() == 1 && path.is_relative() {
        return PathBuf::from(".").join(path);
    }
    path
}

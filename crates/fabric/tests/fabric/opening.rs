//! What can be opened, and what is said where it cannot.

use std::io::Write as _;
use std::sync::Arc;

use tandem_fabric::{
    Fabric, FabricOptions, LIBRARY_VARIABLE, OpenError, available_providers, describe_providers,
    probe,
};
use tandem_memory::HostMemory;

use crate::child::{Process, say};
use crate::pair::{Side, options};

fn open(options: FabricOptions) -> Result<(), OpenError> {
    let memory = Arc::new(HostMemory::create("fabric-test", 4096).unwrap());
    Fabric::open(options, memory).map(|_| ())
}

#[test]
fn tcp_is_opened_by_default_and_described() {
    let side = Side::open(FabricOptions::default(), 1 << 20);
    let info = side.fabric.info();
    assert!(
        info.software && ["tcp", "net"].contains(&info.provider.as_str()),
        "{info:?}"
    );
    assert!(
        info.delivery_complete && info.waits_on_descriptors,
        "{info:?}"
    );
    assert_eq!(
        (info.len, info.nics[0].domain.as_str()),
        (1 << 20, "lo"),
        "{info:?}"
    );
    assert!(info.cq_data_size >= 4);
    assert!(side.fabric.silent_for() < crate::pair::LONG);
}

#[test]
fn rdma_hardware_is_not_replaced_by_software() {
    for provider in ["tcp", "net", "shm", "tcp;ofi_rxm"] {
        let error = open(FabricOptions {
            require_rdma: true,
            ..options(provider)
        })
        .unwrap_err();
        assert!(matches!(&error, OpenError::NotRdma { .. }), "{error}");
        assert!(error.to_string().contains(provider), "{error}");
    }
}

#[test]
fn an_unknown_provider_is_answered_with_those_there_are() {
    for provider in ["tpc", "efa"] {
        let error = open(options(provider)).unwrap_err().to_string();
        assert!(error.contains(&format!("{provider:?}")), "{error}");
        assert!(error.contains("shm") && error.contains("tcp"), "{error}");
    }
}

#[test]
fn options_out_of_range_are_named() {
    let bad = [
        (
            FabricOptions {
                slots: 0,
                ..options("tcp")
            },
            "slots",
        ),
        (
            FabricOptions {
                slots: 5000,
                ..options("tcp")
            },
            "slots",
        ),
        (
            FabricOptions {
                in_flight_writes: 0,
                ..options("tcp")
            },
            "in_flight_writes",
        ),
        (
            FabricOptions {
                completion_entries: Some(0),
                ..options("tcp")
            },
            "completion_entries",
        ),
        (
            FabricOptions {
                completion_entries: Some(1 << 25),
                ..options("tcp")
            },
            "completion_entries",
        ),
        (
            FabricOptions {
                cpu: Some(1 << 20),
                ..options("tcp")
            },
            "cpu",
        ),
    ];
    for (options, name) in bad {
        let error = open(options).unwrap_err();
        assert!(
            matches!(error, OpenError::Option { option, .. } if option == name),
            "{error}"
        );
    }
}

#[test]
fn the_software_providers_are_found() {
    let found = available_providers().unwrap();
    for name in ["shm", "tcp;ofi_rxm"] {
        assert!(
            found.iter().any(|p| p.name == name && p.software),
            "{name} in {found:?}"
        );
    }
}

#[test]
fn providers_are_described_with_what_a_name_comes_to() {
    let found = describe_providers().unwrap();
    let tcp = found
        .choices
        .iter()
        .find(|c| c.configured == "tcp")
        .unwrap();
    assert!(tcp.available && !tcp.why.is_empty(), "{tcp:?}");
    let facts = |name: &str| found.providers.iter().find(|p| p.name == name).unwrap();
    let native = facts(&tcp.provider);
    assert!(native.software && native.delivery_complete, "{native:?}");
    assert_eq!(native.waits_on_descriptors, Some(true));
    assert_eq!(facts("shm").waits_on_descriptors, Some(false));
    let text = found.to_string();
    assert!(text.contains("shm (software)"), "{text}");
    assert!(serde_json::to_value(&found).unwrap()["providers"].is_array());
}

/// Names a file to a child as the configuration does.
const CONFIGURED: &str = "TANDEM_FABRIC_TEST_LIBRARY";
/// The version that this run is to test, e.g. `2.5`; unset: whatever there is.
const WANTED_VERSION: &str = "TANDEM_LIBFABRIC_VERSION";

#[test]
fn a_library_that_cannot_be_loaded_is_named_with_the_loader_s_reason() {
    let file = "/nonexistent/libfabric.so.1";
    let who = "the configuration or the command line";
    for (variable, by) in [(LIBRARY_VARIABLE, LIBRARY_VARIABLE), (CONFIGURED, who)] {
        let line = Process::start("open", &[(variable, file)]).line();
        let start = format!("libfabric cannot be loaded from {file}, which {by} names (");
        assert!(line.starts_with(&start), "{line}");
        assert!(line.contains("No such file or directory"), "{line}");
        assert!(line.ends_with("apt-get install libfabric1"), "{line}");
    }
}

#[test]
fn a_configured_library_goes_before_the_variable_s() {
    let configured = probe().unwrap().file;
    let file = configured.to_str().unwrap();
    let variables = [(LIBRARY_VARIABLE, "/nonexistent.so"), (CONFIGURED, file)];
    assert_eq!(Process::start("open", &variables).line(), "opened");
}

/// A run over another version must not fall back to the system's.
#[test]
fn the_library_in_use_is_the_one_that_was_asked_for() {
    let found = probe().unwrap();
    // Not captured: a log of CI shows it.
    let (version, file) = (&found.version, found.file.display());
    writeln!(std::io::stderr(), "libfabric {version} ({file})").unwrap();
    if let Some(file) = std::env::var_os(LIBRARY_VARIABLE) {
        assert_eq!(found.file, std::path::Path::new(&file));
    }
    if let Ok(version) = std::env::var(WANTED_VERSION) {
        assert_eq!(found.version.to_string(), version);
    }
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mapped = maps.lines().filter_map(|l| l.split_once('/'));
    let mapped = mapped.map(|(_, path)| format!("/{path}"));
    let mut mapped: Vec<String> = mapped.filter(|p| p.contains("/libfabric.so")).collect();
    mapped.dedup();
    assert_eq!(mapped.len(), 1, "{mapped:?}");
    if found.file.is_absolute() {
        let real = found.file.canonicalize().unwrap();
        assert_eq!(real, std::path::Path::new(&mapped[0]));
    }
}

#[test]
fn a_library_that_is_no_libfabric_is_said_to_be_none() {
    let mut child = Process::start("open", &[(LIBRARY_VARIABLE, "libc.so.6")]);
    assert_eq!(
        child.line(),
        "libc.so.6 is no usable libfabric: it has no function fi_version"
    );
}

/// Makes a child open long queues with little memory.
const LONG_QUEUE: &str = "TANDEM_FABRIC_TEST_LONG_QUEUE";
const LONGEST_QUEUE: usize = 1 << 24;

#[test]
fn a_queue_that_cannot_be_so_long_is_refused_at_the_start() {
    let line = Process::start("open", &[(LONG_QUEUE, "1")]).line();
    assert!(
        line.contains("opens no completion queue of 16777216 entries")
            && line.contains("lower completion_entries"),
        "{line}"
    );
}

/// Half of what the longest queue takes.
fn limit_memory() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let size = status.lines().find_map(|l| l.strip_prefix("VmSize:"));
    let kibibytes = size.unwrap().trim().trim_end_matches(" kB");
    let current = (kibibytes.parse::<u64>().unwrap() << 10) + (LONGEST_QUEUE as u64 * 24);
    let limit = Rlimit {
        current: Some(current),
        maximum: Some(current),
    };
    setrlimit(Resource::As, limit).unwrap();
}

/// The child's part.
pub(crate) fn open_and_tell() {
    let long = std::env::var_os(LONG_QUEUE).is_some();
    if long {
        limit_memory();
    }
    let options = FabricOptions {
        library: std::env::var_os(CONFIGURED).map(Into::into),
        completion_entries: long.then_some(LONGEST_QUEUE),
        ..FabricOptions::default()
    };
    match open(options) {
        Ok(()) => say("opened"),
        Err(error) => say(&error.to_string()),
    }
}

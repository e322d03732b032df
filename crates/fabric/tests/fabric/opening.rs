//! What can be opened, and what is said where it cannot.

use std::sync::Arc;

use tandem_fabric::{
    Fabric, FabricOptions, LIBRARY_VARIABLE, OpenError, available_providers, describe_providers,
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
                completion_entries: 8,
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

#[test]
fn without_the_library_one_line_says_what_to_install() {
    let mut child = Process::start("open", &[(LIBRARY_VARIABLE, "/nonexistent/libfabric.so.1")]);
    let line = child.line();
    assert!(line.starts_with("libfabric is not installed"), "{line}");
    assert!(line.ends_with("apt-get install libfabric1"), "{line}");
}

#[test]
fn a_library_that_is_no_libfabric_is_said_to_be_none() {
    let mut child = Process::start("open", &[(LIBRARY_VARIABLE, "libc.so.6")]);
    assert_eq!(
        child.line(),
        "libc.so.6 is no usable libfabric: it has no function fi_version"
    );
}

/// The child's part.
pub(crate) fn open_and_tell() {
    match open(FabricOptions::default()) {
        Ok(()) => say("opened"),
        Err(error) => say(&error.to_string()),
    }
}

//! Trees that no kernel writes: what is refused, and what is passed over.

use std::fs;
use std::path::Path;
use std::process::Command;

use tandem_topology::{Machine, ReadError};
use tempfile::TempDir;

use crate::made_tree::{CONNECTX7, H100, MadeTree};

const GPU: &str = "devices/pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0/0000:03:00.0";

/// A GPU and a NIC on one switch, four cpus on two nodes.
pub(crate) fn server() -> MadeTree {
    let mut tree = MadeTree::new(4);
    tree.node(0, "0-1");
    tree.node(1, "2-3");
    tree.cores(|cpu| (cpu / 2, 0));
    let up = "pci0000:00/0000:00:01.0/0000:01:00.0";
    tree.function(&format!("{up}/0000:02:00.0/0000:03:00.0"), H100, 0);
    let nic = format!("{up}/0000:02:01.0/0000:04:00.0");
    tree.nic("mlx5_0", &nic, CONNECTX7, 1, "400 Gb/sec (4X NDR)");
    tree
}

#[track_caller]
fn refusal(tree: &MadeTree) -> ReadError {
    Machine::read(tree.root()).expect_err("a broken tree")
}

#[track_caller]
fn assert_content(file: &str, content: &str) {
    let tree = server();
    tree.write(file, content);
    let refused = refusal(&tree);
    let ReadError::Content {
        path,
        content: said,
        ..
    } = &refused
    else {
        panic!("{refused}");
    };
    // The path is named as it was given or as it is without links.
    assert_eq!(path.file_name(), Path::new(file).file_name(), "{refused}");
    assert_eq!(said, content.trim());
}

#[test]
fn content_that_no_kernel_writes_is_named_with_its_file() {
    for (attribute, content) in [
        ("class", "030200"),
        ("class", "0x1000000"),
        ("vendor", "0x10de0"),
        ("device", ""),
        ("numa_node", "-2"),
        ("numa_node", "4294967296"),
        ("local_cpulist", "0-99999999"),
    ] {
        assert_content(&format!("{GPU}/{attribute}"), content);
    }
    assert_content("class/infiniband/mlx5_0/ports/1/rate", "fast");
    assert_content("devices/system/node/node1/cpulist", "4-");
    assert_content("devices/system/cpu/online", "all");
    assert_content("devices/system/cpu/cpu2/topology/core_id", "two");
}

#[test]
fn a_file_longer_than_a_page_is_not_read_to_its_end() {
    let tree = server();
    tree.write(&format!("{GPU}/class"), " ".repeat(5000));
    assert!(matches!(
        refusal(&tree),
        ReadError::TooMuch { limit: 4096, .. }
    ));
}

#[test]
fn a_folder_with_more_entries_than_any_machine_has_is_not_read_to_its_end() {
    let tree = server();
    for index in 0..16_385 {
        fs::write(tree.path("class/infiniband").join(index.to_string()), "").unwrap();
    }
    assert!(matches!(
        refusal(&tree),
        ReadError::TooMuch { limit: 16_384, .. }
    ));
}

#[test]
fn a_link_out_of_the_root_is_refused() {
    let outside = server();
    for link in [
        "bus/pci/devices/0000:05:00.0",
        "class/infiniband/mlx5_1",
        &format!("{GPU}/local_cpus"),
    ] {
        let tree = server();
        tree.link(link, outside.path(GPU).to_str().unwrap());
        let seen = Machine::read(tree.root());
        if link.starts_with(GPU) {
            assert_eq!(seen.unwrap(), server().machine(), "nobody reads it");
        } else {
            assert!(matches!(seen, Err(ReadError::Outside { .. })), "{seen:?}");
        }
    }
    let tree = server();
    fs::remove_file(tree.path(GPU).join("numa_node")).unwrap();
    tree.link(
        &format!("{GPU}/numa_node"),
        "../../../../../../../../../../../../etc/hostname",
    );
    assert!(matches!(refusal(&tree), ReadError::Outside { .. }));
}

#[test]
fn links_in_circles_end() {
    let tree = server();
    tree.link("bus/pci/devices/0000:05:00.0", "0000:06:00.0");
    tree.link("bus/pci/devices/0000:06:00.0", "0000:05:00.0");
    assert!(matches!(refusal(&tree), ReadError::Io { .. }));
}

#[test]
fn a_link_to_what_was_just_unplugged_is_passed_over() {
    let tree = server();
    tree.link(
        "bus/pci/devices/0000:05:00.0",
        "../../../devices/gone/0000:05:00.0",
    );
    tree.link("class/infiniband/mlx5_1", "../../devices/gone");
    assert_eq!(tree.machine(), server().machine());
}

#[test]
fn a_pipe_is_not_waited_for() {
    let tree = server();
    let path = tree.path(GPU).join("class");
    fs::remove_file(&path).unwrap();
    assert!(
        Command::new("mkfifo")
            .arg(&path)
            .status()
            .unwrap()
            .success()
    );
    assert!(matches!(refusal(&tree), ReadError::NotAFile { .. }));
}

#[test]
fn a_function_needs_its_class_and_its_own_name() {
    let tree = server();
    fs::remove_file(tree.path(GPU).join("class")).unwrap();
    assert!(matches!(refusal(&tree), ReadError::Missing { .. }));
    let tree = server();
    tree.link("bus/pci/devices/0000:05:00.0", &format!("../../../{GPU}"));
    assert!(matches!(refusal(&tree), ReadError::Content { .. }));
}

#[test]
fn a_folder_that_is_no_sysfs_is_named() {
    let empty = TempDir::new().unwrap();
    let read = |path: &Path| Machine::read(path).expect_err("no sysfs").to_string();
    assert!(read(empty.path()).ends_with("no cpu in devices/system/cpu: is this sysfs?"));
    assert!(read(Path::new("/no/such/sys")).starts_with("/no/such/sys: "));
}

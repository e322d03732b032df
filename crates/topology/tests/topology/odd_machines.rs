//! Machines without switches, without NUMA, without GPUs, without anything.

use crate::made_tree::{CONNECTX6, CONNECTX7, EFA, H100, MadeTree, notes, short, spare};

const NDR: &str = "400 Gb/sec (4X NDR)";

/// Each GPU and each NIC is alone in a PCI domain. Two GPUs name the node of their memory, which
/// has no cpus, two the node of their cpus.
#[test]
fn superchips_without_a_switch_group_by_numa_node() {
    let mut tree = MadeTree::new(288);
    for node in 0..4 {
        tree.node(node, &format!("{}-{}", node * 72, node * 72 + 71));
    }
    for node in [4, 12, 20, 28] {
        tree.node(node, "");
    }
    tree.cores(|cpu| (cpu / 72, cpu % 72));
    let gpus = [(0x09, 4), (0x19, 12), (0x29, 2), (0x39, 3)];
    for (node, (domain, named)) in gpus.into_iter().enumerate() {
        let local = format!("{}-{}", node * 72, node * 72 + 71);
        let path = format!("pci{domain:04x}:00/{domain:04x}:00:00.0/{domain:04x}:01:00.0");
        tree.function_near(&path, (0x03_0200, 0x10de, 0x2342), named, &local);
    }
    // The NICs' domains are in the order opposite to the nodes'.
    for (domain, node) in [(0x02, 3), (0x12, 2), (0x22, 1), (0x32, 0)] {
        let path = format!("pci{domain:04x}:00/{domain:04x}:00:00.0/{domain:04x}:01:00.0");
        tree.nic(&format!("mlx5_{domain}"), &path, CONNECTX7, node, NDR);
    }
    let topology = tree.topology();
    assert_eq!(
        short(&topology),
        [
            "0009:01:00.0 mlx5_50 by NUMA node 0, 0-71 by NUMA node 0",
            "0019:01:00.0 mlx5_34 by NUMA node 1, 72-143 by NUMA node 1",
            "0029:01:00.0 mlx5_18 by NUMA node 2, 144-215 by NUMA node 2",
            "0039:01:00.0 mlx5_2 by NUMA node 3, 216-287 by NUMA node 3",
        ]
    );
    assert_eq!(notes(&topology), [""; 0]);
}

#[test]
fn two_gpus_on_one_switch_share_its_only_nic() {
    let mut tree = MadeTree::new(8);
    tree.node(0, "0-7");
    tree.cores(|cpu| (0, cpu));
    let up = "pci0000:00/0000:00:01.0/0000:01:00.0";
    tree.function(&format!("{up}/0000:02:00.0/0000:03:00.0"), H100, 0);
    tree.function(&format!("{up}/0000:02:01.0/0000:04:00.0"), H100, 0);
    let nic = format!("{up}/0000:02:02.0/0000:05:00.0");
    tree.nic("mlx5_0", &nic, CONNECTX7, 0, NDR);
    // As fast, in the same node, but farther.
    tree.nic(
        "mlx5_1",
        "pci0000:00/0000:00:02.0/0000:06:00.0",
        CONNECTX7,
        0,
        NDR,
    );
    let topology = tree.topology();
    assert_eq!(
        short(&topology),
        [
            "0000:03:00.0 mlx5_0 by switch 0000:01:00.0, 0-3 by NUMA node 0",
            "0000:04:00.0 mlx5_0 by switch 0000:01:00.0, 4-7 by NUMA node 0",
        ]
    );
    assert_eq!(spare(&topology), ["mlx5_1"]);
    assert_eq!(
        notes(&topology),
        ["mlx5_0 is shared by 0000:03:00.0, 0000:04:00.0"]
    );
}

/// The GPU directly on the outer switch leaves the inner switch's NIC to the inner GPU.
#[test]
fn a_nested_switch_keeps_its_own_nic() {
    let mut tree = MadeTree::new(8);
    tree.node(0, "0-7");
    let outer = "pci0000:00/0000:00:01.0/0000:01:00.0";
    let inner = format!("{outer}/0000:02:00.0/0000:03:00.0");
    tree.function(&format!("{outer}/0000:02:01.0/0000:0a:00.0"), H100, 0);
    tree.function(&format!("{inner}/0000:04:00.0/0000:0b:00.0"), H100, 0);
    tree.nic(
        "mlx5_0",
        &format!("{inner}/0000:04:01.0/0000:05:00.0"),
        CONNECTX7,
        0,
        NDR,
    );
    tree.nic(
        "mlx5_1",
        &format!("{outer}/0000:02:02.0/0000:06:00.0"),
        CONNECTX7,
        0,
        NDR,
    );
    assert_eq!(
        short(&tree.topology()),
        [
            "0000:0a:00.0 mlx5_1 by switch 0000:01:00.0, 0-3 by NUMA node 0",
            "0000:0b:00.0 mlx5_0 by switch 0000:03:00.0, 4-7 by NUMA node 0",
        ]
    );
}

#[test]
fn firmware_that_names_no_node_leaves_all_to_all() {
    let mut tree = MadeTree::new(8);
    tree.node(0, "0-3");
    tree.node(1, "4-7");
    tree.cores(|cpu| (cpu / 4, cpu % 4));
    for index in 0..2 {
        let root = 0x10 * (index + 1);
        let gpu = format!(
            "pci0000:{root:02x}/0000:{root:02x}:01.0/0000:{:02x}:00.0",
            root + 1
        );
        tree.function(&gpu, H100, -1);
        let root = root + 0x80;
        let nic = format!(
            "pci0000:{root:02x}/0000:{root:02x}:01.0/0000:{:02x}:00.0",
            root + 1
        );
        tree.nic(&format!("mlx5_{index}"), &nic, CONNECTX7, -1, NDR);
    }
    assert_eq!(
        short(&tree.topology()),
        [
            "0000:11:00.0 mlx5_0 by anywhere, 0-3 by anywhere",
            "0000:21:00.0 mlx5_1 by anywhere, 4-7 by anywhere",
        ]
    );
}

#[test]
fn without_a_gpu_each_node_with_cpus_is_a_device() {
    let mut tree = MadeTree::two_sockets(2);
    tree.node(2, "");
    // The first NIC belongs to the second node.
    for (name, bus, node) in [("mlx5_0", 0x10, 1), ("mlx5_1", 0x80, 0)] {
        let path = format!(
            "pci0000:{bus:02x}/0000:{bus:02x}:01.0/0000:{:02x}:00.0",
            bus + 1
        );
        tree.nic(name, &path, CONNECTX7, node, NDR);
    }
    let topology = tree.topology();
    assert_eq!(
        short(&topology),
        [
            "node0 mlx5_1 by NUMA node 0, 0-1 by NUMA node 0",
            "node1 mlx5_0 by NUMA node 1, 2-3 by NUMA node 1",
        ]
    );
    assert_eq!(
        notes(&topology),
        [
            "node0: 2 cores, so that threads share them",
            "node1: 2 cores, so that threads share them",
        ]
    );
}

#[test]
fn a_laptop_is_one_device_without_nics() {
    let tree = MadeTree::new(4);
    tree.cores(|cpu| (0, cpu / 2));
    tree.function("pci0000:00/0000:00:02.0", (0x03_0000, 0x8086, 0x9a49), -1);
    tree.function(
        "pci0000:00/0000:00:1c.0/0000:01:00.0",
        (0x02_8000, 0x8086, 0x2725),
        -1,
    );
    let topology = tree.topology();
    assert_eq!(short(&topology), ["node0  by anywhere, 0,2 by NUMA node 0"]);
    assert_eq!(
        notes(&topology),
        [
            "node0 has no RDMA NIC",
            "node0: 2 cores, so that threads share them",
        ]
    );
}

#[test]
fn where_the_kernel_does_not_know_every_core_each_cpu_is_one() {
    let tree = MadeTree::new(4);
    tree.cores(|cpu| (0, cpu / 2));
    assert_eq!(
        short(&tree.topology()),
        ["node0  by anywhere, 0,2 by NUMA node 0"]
    );
    tree.write(
        "devices/system/cpu/cpu3/topology/physical_package_id",
        "-1\n",
    );
    assert_eq!(
        short(&tree.topology()),
        ["node0  by anywhere, 0-3 by NUMA node 0"]
    );
}

#[test]
fn cpus_that_are_offline_belong_to_nobody() {
    let mut tree = MadeTree::new(4);
    tree.node(0, "0-3");
    tree.write("devices/system/cpu/online", "0,2-3\n");
    assert_eq!(
        short(&tree.topology()),
        ["node0  by anywhere, 0,2-3 by NUMA node 0"]
    );
    tree.node(1, "1");
    assert_eq!(tree.topology().devices.len(), 1, "a node that is offline");
    std::fs::remove_dir_all(tree.path("devices/system/node")).unwrap();
    std::fs::remove_file(tree.path("devices/system/cpu/online")).unwrap();
    tree.cores(|cpu| (0, cpu));
    assert_eq!(
        short(&tree.topology()),
        ["node0  by anywhere, 0-3 by NUMA node 0"]
    );
}

#[test]
fn fewer_cores_than_gpus_are_shared_by_neighbours() {
    let mut tree = MadeTree::new(2);
    tree.node(0, "0-1");
    for bus in 1..5 {
        let path = format!("pci0000:00/0000:00:{bus:02x}.0/0000:{bus:02x}:00.0");
        tree.function(&path, H100, 0);
    }
    let topology = tree.topology();
    let cores: Vec<Vec<u32>> = topology.devices.iter().map(|d| d.cores.clone()).collect();
    assert_eq!(cores, [[0], [0], [1], [1]]);
    assert_eq!(
        notes(&topology).last().unwrap(),
        "0000:01:00.0, 0000:02:00.0, 0000:03:00.0, 0000:04:00.0: 2 cores, \
         so that threads share them"
    );
}

#[test]
fn of_two_kinds_with_as_many_nics_the_faster_one_is_used() {
    let mut tree = MadeTree::new(4);
    tree.node(0, "0-3");
    let at = |bus: u32| format!("pci0000:00/0000:00:{bus:02x}.0/0000:{bus:02x}:00.0");
    tree.nic("mlx5_0", &at(1), CONNECTX6, 0, "200 Gb/sec (4X HDR)");
    tree.nic("mlx5_1", &at(2), CONNECTX7, 0, NDR);
    tree.nic("rdmap3s0", &at(3), EFA, 0, "100 Gb/sec (4X EDR)");
    let topology = tree.topology();
    assert_eq!(
        short(&topology),
        ["node0 mlx5_1 by NUMA node 0, 0-3 by NUMA node 0"]
    );
    assert_eq!(
        notes(&topology),
        [
            "left out mlx5_0 (15b3:101d): used are those of 15b3:1021",
            "left out rdmap3s0 (1d0f:efa1): used are those of 15b3:1021",
        ]
    );
}

#[test]
fn a_nic_in_software_is_used_only_where_there_is_no_other() {
    let mut tree = MadeTree::new(4);
    tree.node(0, "0-3");
    for name in ["rxe0", "rxe1"] {
        let folder = format!("devices/virtual/infiniband/{name}");
        tree.write(&format!("{folder}/node_type"), "1: CA\n");
        tree.link(
            &format!("class/infiniband/{name}"),
            &format!("../../{folder}"),
        );
    }
    assert_eq!(
        short(&tree.topology()),
        ["node0 rxe0 rxe1 by anywhere, 0-3 by NUMA node 0"]
    );
    tree.nic("mlx5_0", "pci0000:00/0000:00:01.0", CONNECTX7, 0, NDR);
    let topology = tree.topology();
    assert_eq!(
        short(&topology),
        ["node0 mlx5_0 by NUMA node 0, 0-3 by NUMA node 0"]
    );
    assert_eq!(
        notes(&topology),
        ["left out rxe0, rxe1 (software): used are those of 15b3:1021"]
    );
}

/// Names count up in decimal: `mlx5_10` comes after `mlx5_9`; a function's NICs follow each other.
#[test]
fn nics_of_one_function_are_in_the_order_of_their_numbers() {
    let mut tree = MadeTree::new(4);
    tree.node(0, "0-3");
    let path = "pci0000:00/0000:00:01.0";
    tree.nic("mlx5_10", path, CONNECTX7, 0, NDR);
    tree.rdma("mlx5_9", path, NDR);
    assert_eq!(
        short(&tree.topology()),
        ["node0 mlx5_9 mlx5_10 by NUMA node 0, 0-3 by NUMA node 0"]
    );
}

//! Servers with eight GPUs.

use crate::made_tree::{ASPEED, CONNECTX6, CONNECTX7, EFA, H100, MadeTree, notes, short, spare};

/// Eight GPUs and eight ConnectX-7 on eight switches or four, two storage NICs, a display.
pub(crate) fn dgx_h100(switches: usize) -> MadeTree {
    let tree = MadeTree::two_sockets(56);
    // Root, NIC and GPU of each pair, as on the real machine.
    let pairs = [
        (0x15, 0x18, 0x1b),
        (0x37, 0x40, 0x43),
        (0x48, 0x4f, 0x52),
        (0x59, 0x5e, 0x61),
        (0x97, 0x9a, 0x9d),
        (0xb7, 0xc0, 0xc3),
        (0xc7, 0xce, 0xd1),
        (0xd7, 0xdc, 0xdf),
    ];
    let names = [0, 3, 4, 5, 6, 9, 10, 11];
    for (index, (_, nic, gpu)) in pairs.into_iter().enumerate() {
        // With four switches two neighbours are below the first one's root.
        let of_switch = index % (8 / switches);
        let root = pairs[index - of_switch].0;
        let node = i64::from(index >= 4);
        let up = format!(
            "pci0000:{root:02x}/0000:{root:02x}:01.0/0000:{:02x}:00.0",
            root + 1
        );
        let port = |number: usize| format!("{up}/0000:{:02x}:{number:02x}.0", root + 2);
        let nic = format!("{}/0000:{nic:02x}:00.0", port(2 * of_switch));
        let gpu = format!("{}/0000:{gpu:02x}:00.0", port(2 * of_switch + 1));
        let name = format!("mlx5_{}", names[index]);
        tree.nic(&name, &nic, CONNECTX7, node, "400 Gb/sec (4X NDR)");
        tree.function(&gpu, H100, node);
    }
    for (name, function) in [("mlx5_1", "0000:29:00.0"), ("mlx5_2", "0000:29:00.1")] {
        let path = format!("pci0000:26/0000:26:01.0/{function}");
        tree.nic(name, &path, CONNECTX6, 0, "200 Gb/sec (4X HDR)");
    }
    tree.function("pci0000:00/0000:00:1c.0/0000:03:00.0", ASPEED, 0);
    tree
}

/// Eight switches with a GPU and so many EFA NICs each, on two nodes.
fn p5(nics_each: u32, rate: &str) -> MadeTree {
    let tree = MadeTree::two_sockets(48);
    for switch in 0..8 {
        let (root, node) = (0x44 + 0x11 * switch, i64::from(switch >= 4));
        let up = format!(
            "pci0000:{root:02x}/0000:{root:02x}:00.0/0000:{:02x}:00.0",
            root + 1
        );
        for index in 0..nics_each {
            let bus = root + 11 + index;
            let path = format!(
                "{up}/0000:{:02x}:{index:02x}.0/0000:{bus:02x}:00.0",
                root + 2
            );
            tree.nic(&format!("rdmap{bus}s0"), &path, EFA, node, rate);
        }
        let gpu = format!(
            "{up}/0000:{:02x}:1f.0/0000:{:02x}:00.0",
            root + 2,
            root + 15
        );
        tree.function(&gpu, H100, node);
    }
    tree
}

#[test]
fn each_gpu_of_a_dgx_h100_has_the_connectx_7_of_its_switch() {
    let topology = dgx_h100(8).topology();
    assert_eq!(
        short(&topology),
        [
            "0000:1b:00.0 mlx5_0 by switch 0000:16:00.0, 0-13 by NUMA node 0",
            "0000:43:00.0 mlx5_3 by switch 0000:38:00.0, 14-27 by NUMA node 0",
            "0000:52:00.0 mlx5_4 by switch 0000:49:00.0, 28-41 by NUMA node 0",
            "0000:61:00.0 mlx5_5 by switch 0000:5a:00.0, 42-55 by NUMA node 0",
            "0000:9d:00.0 mlx5_6 by switch 0000:98:00.0, 56-69 by NUMA node 1",
            "0000:c3:00.0 mlx5_9 by switch 0000:b8:00.0, 70-83 by NUMA node 1",
            "0000:d1:00.0 mlx5_10 by switch 0000:c8:00.0, 84-97 by NUMA node 1",
            "0000:df:00.0 mlx5_11 by switch 0000:d8:00.0, 98-111 by NUMA node 1",
        ]
    );
    assert_eq!(spare(&topology), ["mlx5_1", "mlx5_2"]);
    assert_eq!(
        notes(&topology),
        ["left out mlx5_1, mlx5_2 (15b3:101d): used are those of 15b3:1021"]
    );
    assert_eq!(topology.devices[0].nics[0].rate_mbps, Some(400_000));
}

#[test]
fn two_gpus_on_one_switch_divide_its_nics() {
    let topology = dgx_h100(4).topology();
    assert_eq!(
        short(&topology),
        [
            "0000:1b:00.0 mlx5_0 by switch 0000:16:00.0, 0-13 by NUMA node 0",
            "0000:43:00.0 mlx5_3 by switch 0000:16:00.0, 14-27 by NUMA node 0",
            "0000:52:00.0 mlx5_4 by switch 0000:49:00.0, 28-41 by NUMA node 0",
            "0000:61:00.0 mlx5_5 by switch 0000:49:00.0, 42-55 by NUMA node 0",
            "0000:9d:00.0 mlx5_6 by switch 0000:98:00.0, 56-69 by NUMA node 1",
            "0000:c3:00.0 mlx5_9 by switch 0000:98:00.0, 70-83 by NUMA node 1",
            "0000:d1:00.0 mlx5_10 by switch 0000:c8:00.0, 84-97 by NUMA node 1",
            "0000:df:00.0 mlx5_11 by switch 0000:c8:00.0, 98-111 by NUMA node 1",
        ]
    );
    assert_eq!(notes(&topology).len(), 1);
}

#[test]
fn each_gpu_of_a_p5_has_four_of_32_nics() {
    let topology = p5(4, "100 Gb/sec (4X EDR)").topology();
    let all = short(&topology);
    assert_eq!(all.len(), 8);
    assert_eq!(
        all[0],
        "0000:53:00.0 rdmap79s0 rdmap80s0 rdmap81s0 rdmap82s0 by switch 0000:45:00.0, \
         0-11 by NUMA node 0"
    );
    assert_eq!(
        all[7],
        "0000:ca:00.0 rdmap198s0 rdmap199s0 rdmap200s0 rdmap201s0 by switch 0000:bc:00.0, \
         84-95 by NUMA node 1"
    );
    assert_eq!(spare(&topology), [""; 0]);
    assert_eq!(notes(&topology), [""; 0]);
}

#[test]
fn each_gpu_of_a_p5en_has_two_of_16_nics_and_twelve_cores() {
    let topology = p5(2, "200 Gb/sec (4X HDR)").topology();
    for place in &topology.devices {
        assert_eq!((place.nics.len(), place.cores.len()), (2, 12));
    }
    assert_eq!(
        short(&topology)[1],
        "0000:64:00.0 rdmap96s0 rdmap97s0 by switch 0000:56:00.0, 12-23 by NUMA node 0"
    );
    assert_eq!(spare(&topology), [""; 0]);
    assert_eq!(notes(&topology), [""; 0]);
}

#[test]
fn more_nics_than_four_for_a_gpu_are_left_and_noted() {
    let tree = p5(4, "100 Gb/sec (4X EDR)");
    for bus in 0xf0..0xf2 {
        let path = format!("pci0000:44/0000:44:00.0/0000:45:00.0/0000:{bus:02x}:00.0");
        tree.nic(
            &format!("rdmap{bus}s0"),
            &path,
            EFA,
            0,
            "100 Gb/sec (4X EDR)",
        );
    }
    let topology = tree.topology();
    assert_eq!(topology.devices[0].nics.len(), 4);
    assert_eq!(spare(&topology), ["rdmap240s0", "rdmap241s0"]);
    assert_eq!(
        notes(&topology),
        ["0000:53:00.0: 6 NICs are nearest, the first 4 used"]
    );
}

/// A p4d shows a virtual machine's root buses, each with two GPUs and one NIC, and no switch.
#[test]
fn two_gpus_share_the_one_nic_of_their_root_bus() {
    let tree = MadeTree::two_sockets(24);
    for (root, node) in [(0x10, 0), (0x20, 0), (0x90, 1), (0xa0, 1)] {
        let at = |slot: &str| format!("pci0000:{root:02x}/0000:{root:02x}:{slot}.0");
        let name = format!("rdmap{root}s27");
        tree.nic(&name, &at("1b"), EFA, node, "100 Gb/sec (4X EDR)");
        tree.function(&at("1c"), H100, node);
        tree.function(&at("1d"), H100, node);
    }
    let topology = tree.topology();
    let all = short(&topology);
    assert_eq!(
        all[..2],
        [
            "0000:10:1c.0 rdmap16s27 by host bridge pci0000:10, 0-5 by NUMA node 0",
            "0000:10:1d.0 rdmap16s27 by host bridge pci0000:10, 6-11 by NUMA node 0",
        ]
    );
    assert_eq!(
        all[7],
        "0000:a0:1d.0 rdmap160s27 by host bridge pci0000:a0, 42-47 by NUMA node 1"
    );
    assert_eq!(notes(&topology).len(), 4);
    assert!(
        notes(&topology).contains(&"rdmap16s27 is shared by 0000:10:1c.0, 0000:10:1d.0".into())
    );
}

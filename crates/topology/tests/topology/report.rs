//! What people and programs see of a topology.

use serde_json::json;
use tandem_topology::{DeviceMap, Topology};

use crate::made_tree::{CONNECTX6, CONNECTX7, H100, MadeTree};

fn small_server() -> MadeTree {
    let mut tree = MadeTree::new(8);
    tree.node(0, "0-7");
    tree.cores(|cpu| (0, cpu));
    let up = "pci0000:00/0000:00:01.0/0000:01:00.0";
    tree.function(&format!("{up}/0000:02:00.0/0000:03:00.0"), H100, 0);
    for (name, bus) in [("mlx5_0", 4), ("mlx5_1", 5)] {
        let path = format!("{up}/0000:02:{bus:02x}.0/0000:{bus:02x}:00.0");
        tree.nic(name, &path, CONNECTX7, 0, "2.5 Gb/sec (1X SDR)");
    }
    let other = "pci0000:00/0000:00:02.0/0000:06:00.0";
    tree.nic("mlx5_2", other, CONNECTX6, 0, "200 Gb/sec (4X HDR)");
    // A GPU that no firmware places.
    let far = "pci0000:80/0000:80:01.0/0000:81:00.0";
    tree.function_near(far, H100, -1, "");
    tree
}

#[test]
fn the_table_is_aligned_and_says_why() {
    let table = small_server().topology().to_string();
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(
        lines,
        [
            "DEVICE        NODE  NICS            GBIT/S  NICS BY              FABRIC  WATCHER  ENGINE  CORES BY",
            "0000:03:00.0  0     mlx5_0, mlx5_1  5       switch 0000:01:00.0  0       1        2-7     NUMA node 0",
            "0000:81:00.0  -     mlx5_0, mlx5_1  5       anywhere             0       1        2-7     anywhere",
            "spare: mlx5_2",
            "note: left out mlx5_2 (15b3:101d): used are those of 15b3:1021",
            "note: mlx5_0 is shared by 0000:03:00.0, 0000:81:00.0",
            "note: mlx5_1 is shared by 0000:03:00.0, 0000:81:00.0",
            "note: 0000:81:00.0: all cores near are in others' use too",
        ]
    );
    assert!(table.ends_with('\n'));
}

#[test]
fn a_machine_with_nothing_has_dashes() {
    assert_eq!(
        MadeTree::new(1).topology().to_string(),
        "DEVICE  NODE  NICS  GBIT/S  NICS BY  FABRIC  WATCHER  ENGINE  CORES BY\n\
         node0   0     -     -       -        0       0        0       NUMA node 0\n\
         note: node0 has no RDMA NIC\n\
         note: node0: 1 cores, so that threads share them\n"
    );
}

#[test]
fn programs_read_the_same_as_json() {
    let map: DeviceMap =
        serde_json::from_value(json!({ "device": [{ "device": "0000:81:00.0", "cores": [7] }] }))
            .unwrap();
    let topology = Topology::of(&small_server().machine(), &map).unwrap();
    let nic = |name, pci, rate| json!({ "name": name, "pci": pci, "rate_mbps": rate });
    let nics = [
        nic("mlx5_0", "0000:04:00.0", 2500),
        nic("mlx5_1", "0000:05:00.0", 2500),
    ];
    assert_eq!(
        serde_json::to_value(&topology).unwrap(),
        json!({
            "devices": [
                {
                    "device": "0000:03:00.0",
                    "node": 0,
                    "nics": nics,
                    "nics_near": { "switch": "0000:01:00.0" },
                    "cores": [0, 1, 2, 3, 4, 5, 6],
                    "cores_near": { "numa_node": 0 },
                },
                {
                    "device": "0000:81:00.0",
                    "node": null,
                    "nics": nics,
                    "nics_near": "anywhere",
                    "cores": [7],
                    "cores_near": "explicit",
                },
            ],
            "spare_nics": [nic("mlx5_2", "0000:06:00.0", 200_000)],
            "notes": [
                "left out mlx5_2 (15b3:101d): used are those of 15b3:1021",
                "mlx5_0 is shared by 0000:03:00.0, 0000:81:00.0",
                "mlx5_1 is shared by 0000:03:00.0, 0000:81:00.0",
            ],
        })
    );
}

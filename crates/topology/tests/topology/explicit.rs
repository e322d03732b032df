//! What an explicit map changes, and what it is told when it does not fit the machine.

use serde::Deserialize;
use tandem_topology::{DeviceMap, MapError, Topology};

use crate::made_tree::{MadeTree, notes, short, spare};
use crate::servers::dgx_h100;

/// The part of a configuration file that is about topology.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    topology: DeviceMap,
}

fn map(text: &str) -> DeviceMap {
    toml::from_str::<File>(text).unwrap().topology
}

fn entry(rest: &str) -> DeviceMap {
    map(&format!("[[topology.device]]\n{rest}"))
}

#[track_caller]
fn assert_refused(rest: &str, want: &str) {
    let refused = Topology::of(&dgx_h100(8).machine(), &entry(rest));
    assert_eq!(refused.unwrap_err().to_string(), want);
}

#[track_caller]
fn assert_malformed(rest: &str, want: &str) {
    let text = format!("[[topology.device]]\n{rest}");
    let error = toml::from_str::<File>(&text).err().unwrap().to_string();
    assert!(error.contains(want), "{error}");
}

#[test]
fn the_map_wins_and_the_rest_is_discovered() {
    let map = map(r#"
        [[topology.device]]
        device = "0000:1b:00.0"
        nics = ["mlx5_2", "mlx5_3"]
        cores = [3, 2, 200]

        [[topology.device]]
        device = "0000:43:00.0"
        nics = ["mlx5_3"]

        [[topology.device]]
        device = "0000:9d:00.0"
        cores = [56, 57, 58]
    "#);
    let topology = Topology::of(&dgx_h100(8).machine(), &map).unwrap();
    assert_eq!(
        short(&topology),
        [
            "0000:1b:00.0 mlx5_2 mlx5_3 by explicit, 3,2,200 by explicit",
            "0000:43:00.0 mlx5_3 by explicit, 0-1,4-19 by NUMA node 0",
            "0000:52:00.0 mlx5_4 by switch 0000:49:00.0, 20-37 by NUMA node 0",
            "0000:61:00.0 mlx5_5 by switch 0000:5a:00.0, 38-55 by NUMA node 0",
            "0000:9d:00.0 mlx5_6 by switch 0000:98:00.0, 56-58 by explicit",
            "0000:c3:00.0 mlx5_9 by switch 0000:b8:00.0, 59-75 by NUMA node 1",
            "0000:d1:00.0 mlx5_10 by switch 0000:c8:00.0, 76-87,89-93 by NUMA node 1",
            "0000:df:00.0 mlx5_11 by switch 0000:d8:00.0, 94-111 by NUMA node 1",
        ]
    );
    assert_eq!(spare(&topology), ["mlx5_0", "mlx5_1"]);
    assert_eq!(
        notes(&topology),
        ["left out mlx5_1 (15b3:101d): used are those of 15b3:1021"]
    );
}

#[test]
fn a_device_whose_nic_the_map_gave_away_takes_one_that_is_free() {
    let topology = |text| Topology::of(&dgx_h100(4).machine(), &entry(text)).unwrap();
    let freed = topology("device = \"0000:43:00.0\"\nnics = [\"mlx5_0\"]");
    assert_eq!(freed.devices[0].nics[0].name, "mlx5_3");
    let both = topology("device = \"0000:43:00.0\"\nnics = [\"mlx5_0\", \"mlx5_3\"]");
    let names: Vec<_> = both.devices[0].nics.iter().map(|nic| &nic.name).collect();
    assert_eq!(names, ["mlx5_0", "mlx5_3"]);
    assert_eq!(
        notes(&both)[1..],
        [
            "mlx5_0 is shared by 0000:1b:00.0, 0000:43:00.0",
            "mlx5_3 is shared by 0000:1b:00.0, 0000:43:00.0",
        ]
    );
}

#[test]
fn a_node_whose_cores_the_map_gave_away_has_them_too() {
    let mut tree = MadeTree::new(4);
    tree.node(0, "0-1");
    tree.node(1, "2-3");
    tree.cores(|cpu| (0, cpu));
    let map = entry("device = \"node0\"\ncores = [0, 1, 2, 3]");
    let topology = Topology::of(&tree.machine(), &map).unwrap();
    assert_eq!(
        short(&topology),
        [
            "node0  by anywhere, 0-3 by explicit",
            "node1  by anywhere, 2-3 by NUMA node 1"
        ]
    );
    assert_eq!(
        notes(&topology)[2..],
        [
            "node1: all cores near are in others' use too",
            "node1: 2 cores, so that threads share them",
        ]
    );
}

#[test]
fn what_is_not_on_the_machine_is_named_with_what_is() {
    assert_refused(
        "device = \"0000:18:00.0\"",
        "device 0000:18:00.0 is not on this machine; there is 0000:1b:00.0, 0000:43:00.0, \
         0000:52:00.0, 0000:61:00.0, 0000:9d:00.0, 0000:c3:00.0, 0000:d1:00.0, 0000:df:00.0",
    );
    assert_refused(
        "device = \"0000:1b:00.0\"\nnics = [\"mlx5_12\"]",
        "NIC \"mlx5_12\" of device 0000:1b:00.0 is not on this machine; there is mlx5_0, mlx5_1, \
         mlx5_10, mlx5_11, mlx5_2, mlx5_3, mlx5_4, mlx5_5, mlx5_6, mlx5_9",
    );
    assert_refused(
        "device = \"0000:1b:00.0\"\ncores = [0, 224]",
        "cpu 224 of device 0000:1b:00.0 is not online on this machine; there is 0-223",
    );
}

#[test]
fn a_device_is_named_once_and_has_one_to_four_different_nics_and_a_core() {
    assert_refused(
        "device = \"0000:1b:00.0\"\n[[topology.device]]\ndevice = \"00000000:1B:00.0\"",
        "device 0000:1b:00.0 is named twice",
    );
    assert_refused(
        "device = \"0000:1b:00.0\"\nnics = []",
        "device 0000:1b:00.0 has 0 NICs; want 1 to 4",
    );
    assert_refused(
        "device = \"0000:1b:00.0\"\nnics = [\"a\", \"b\", \"c\", \"d\", \"e\"]",
        "device 0000:1b:00.0 has 5 NICs; want 1 to 4",
    );
    assert_refused(
        "device = \"0000:1b:00.0\"\nnics = [\"mlx5_0\", \"mlx5_0\"]",
        "device 0000:1b:00.0 names NIC \"mlx5_0\" twice",
    );
    assert_refused(
        "device = \"0000:1b:00.0\"\ncores = []",
        "device 0000:1b:00.0 has no cores; want at least one",
    );
}

#[test]
fn a_malformed_map_is_refused_before_any_machine_is_read() {
    assert_malformed("device = \"gpu0\"", "device \"gpu0\": want a PCI address");
    assert_malformed("device = \"node0\"\nnic = [\"a\"]", "unknown field `nic`");
    assert_malformed("nics = [\"a\"]", "missing field `device`");
    assert_malformed("device = \"node0\"\ncores = [-1]", "invalid value");
    assert_eq!(map("[topology]\n"), DeviceMap::default());
}

#[test]
fn a_machine_without_nics_says_so() {
    let refused = Topology::of(
        &MadeTree::new(1).machine(),
        &entry("device = \"node0\"\nnics = [\"mlx5_0\"]"),
    );
    let error = refused.unwrap_err();
    assert!(matches!(error, MapError::UnknownNic { .. }));
    assert!(error.to_string().ends_with("there is none"), "{error}");
}

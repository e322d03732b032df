//! Random machines, as the tree that the kernel would show and as what is to be read from it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use proptest::prelude::*;
use tandem_topology::{Ancestor, Cpu, HostBridge, Machine, Nic, NumaNode, PciAddress, PciFunction};

use crate::made_tree::{ASPEED, CONNECTX6, CONNECTX7, EFA, H100, Kind, MadeTree};

/// A function at the end of a way through bridges.
#[derive(Clone, Debug)]
struct Leaf {
    root: u32,
    hops: Vec<u32>,
    kind: Kind,
    node: i64,
}

impl Leaf {
    fn is_nic(&self) -> bool {
        self.kind != H100 && self.kind != ASPEED
    }
}

/// A random machine: functions, cpus of each node, hyperthreads for each core.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    leaves: Vec<Leaf>,
    nodes: Vec<u32>,
    threads: u32,
}

pub(crate) fn plan() -> impl Strategy<Value = Plan> {
    let kinds = vec![H100, H100, CONNECTX7, CONNECTX7, CONNECTX6, EFA, ASPEED];
    let hops = prop::collection::vec(0..3u32, 0..4);
    let leaf = (0..3u32, hops, prop::sample::select(kinds), -1..4i64);
    let leaf = leaf.prop_map(|(root, hops, kind, node)| Leaf {
        root,
        hops,
        kind,
        node,
    });
    let leaves = prop::collection::vec(leaf, 0..24);
    let nodes = prop::collection::vec(0..9u32, 0..4);
    (leaves, nodes, 1..3u32).prop_map(|(leaves, nodes, threads)| Plan {
        leaves,
        nodes,
        threads,
    })
}

/// A function's way from the root: its host bridge, the bridges, itself.
struct Way {
    root: HostBridge,
    bridges: Vec<PciAddress>,
    leaf: PciAddress,
}

impl Way {
    fn path(&self) -> String {
        let bridges: String = self.bridges.iter().map(|b| format!("/{b}")).collect();
        format!("{}{bridges}/{}", self.root, self.leaf)
    }

    fn ancestors(&self) -> Vec<Ancestor> {
        let root = Ancestor::HostBridge(self.root);
        let bridges = self.bridges.iter().copied().map(Ancestor::Bridge);
        std::iter::once(root).chain(bridges).collect()
    }
}

impl Plan {
    /// The way of each leaf; a bridge has one address, whichever leaf is below it.
    fn ways(&self) -> Vec<Way> {
        let mut buses: BTreeMap<(u32, &[u32]), usize> = BTreeMap::new();
        let at = |domain, bus: usize| PciAddress {
            domain,
            bus: bus as u8,
            device: 0,
            function: 0,
        };
        let mut way = |(index, leaf): (usize, &'_ Leaf)| Way {
            root: HostBridge {
                domain: 0,
                bus: leaf.root as u8,
            },
            bridges: Vec::new(),
            leaf: at(2, index),
        };
        let mut ways: Vec<Way> = self.leaves.iter().enumerate().map(&mut way).collect();
        for (leaf, way) in self.leaves.iter().zip(&mut ways) {
            for depth in 1..=leaf.hops.len() {
                let next = buses.len();
                let bus = *buses
                    .entry((leaf.root, &leaf.hops[..depth]))
                    .or_insert(next);
                way.bridges.push(at(1, bus));
            }
        }
        ways
    }

    fn cpus(&self) -> u32 {
        self.nodes.iter().sum::<u32>().max(1)
    }

    /// First cpu and the one after the last of each node.
    fn ranges(&self) -> Vec<Range<u32>> {
        let mut first = 0;
        let range = |cpus: &u32| {
            first += cpus;
            first - cpus..first
        };
        self.nodes.iter().map(range).collect()
    }

    pub(crate) fn write(&self) -> MadeTree {
        let mut tree = MadeTree::new(self.cpus());
        for (number, range) in self.ranges().into_iter().enumerate() {
            let list = if range.is_empty() {
                String::new()
            } else {
                format!("{}-{}", range.start, range.end - 1)
            };
            tree.node(number as u32, &list);
        }
        tree.cores(|cpu| (0, cpu / self.threads));
        for (index, (leaf, way)) in self.leaves.iter().zip(self.ways()).enumerate() {
            tree.function(&way.path(), leaf.kind, leaf.node);
            if leaf.is_nic() {
                tree.rdma(
                    &format!("nic{index:02}"),
                    &way.path(),
                    "100 Gb/sec (4X EDR)",
                );
            }
        }
        tree
    }

    /// What reading the tree must give, but for the bridges, which have no part in placing.
    pub(crate) fn machine(&self) -> Machine {
        let all: BTreeSet<u32> = (0..self.cpus()).collect();
        let node = |(number, range): (usize, Range<u32>)| NumaNode {
            number: number as u32,
            cpus: range.collect(),
        };
        let mut nodes: Vec<NumaNode> = self.ranges().into_iter().enumerate().map(node).collect();
        let function = |(leaf, way): (&Leaf, Way)| PciFunction {
            address: way.leaf,
            ancestors: way.ancestors(),
            class: leaf.kind.0,
            vendor: leaf.kind.1,
            device: leaf.kind.2,
            node: u32::try_from(leaf.node).ok(),
            local_cpus: match usize::try_from(leaf.node).ok().and_then(|n| nodes.get(n)) {
                Some(node) => node.cpus.clone(),
                None => all.clone(),
            },
        };
        let functions = self.leaves.iter().zip(self.ways()).map(function).collect();
        if nodes.iter().all(|node| node.cpus.is_empty()) {
            nodes.truncate(0);
            nodes.extend((0..self.nodes.len().max(1)).map(|number| NumaNode {
                number: number as u32,
                cpus: if number == 0 {
                    all.clone()
                } else {
                    BTreeSet::new()
                },
            }));
        }
        let nics = self.leaves.iter().zip(self.ways()).enumerate();
        let nics = nics.filter(|(_, (leaf, _))| leaf.is_nic());
        let nics = nics.map(|(index, (_, way))| Nic {
            name: format!("nic{index:02}"),
            pci: Some(way.leaf),
            rate_mbps: Some(100_000),
        });
        let cpu = |number| Cpu {
            number,
            core: number - number % self.threads,
        };
        Machine {
            functions,
            nics: nics.collect(),
            nodes,
            cpus: all.iter().copied().map(cpu).collect(),
        }
    }
}

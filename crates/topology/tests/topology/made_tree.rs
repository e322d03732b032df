//! A directory tree with the links and attributes that Linux has in `/sys`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use tandem_topology::{DeviceMap, Machine, Topology};
use tempfile::TempDir;

pub(crate) const H100: Kind = (0x03_0200, 0x10de, 0x2330);
pub(crate) const CONNECTX7: Kind = (0x02_0700, 0x15b3, 0x1021);
pub(crate) const CONNECTX6: Kind = (0x02_0000, 0x15b3, 0x101d);
pub(crate) const EFA: Kind = (0x02_0000, 0x1d0f, 0xefa1);
pub(crate) const ASPEED: Kind = (0x03_0000, 0x1a03, 0x2000);
const BRIDGE: Kind = (0x06_0400, 0x1000, 0xc030);

/// Class, vendor, device.
pub(crate) type Kind = (u32, u16, u16);

pub(crate) struct MadeTree {
    root: TempDir,
    /// Number and cpus of each NUMA node.
    nodes: Vec<(u32, String)>,
    cpus: u32,
}

impl MadeTree {
    /// With `cpus` logical cpus, all online.
    pub(crate) fn new(cpus: u32) -> Self {
        // Hundreds of small files: in memory where that can be.
        let root = TempDir::new_in("/dev/shm").or_else(|_| TempDir::new());
        let tree = Self {
            root: root.unwrap(),
            nodes: Vec::new(),
            cpus,
        };
        let online = format!("0-{}\n", cpus - 1);
        tree.write("devices/system/cpu/online", online);
        for name in ["cpufreq", "cpuidle", "cpu0/power"] {
            let folder = tree.path("devices/system/cpu").join(name);
            fs::create_dir_all(folder).unwrap();
        }
        tree
    }

    /// Two sockets, one node each; the second half of the cpus are the first half's hyperthreads.
    pub(crate) fn two_sockets(cores_each: u32) -> Self {
        let c = cores_each;
        let mut tree = Self::new(4 * c);
        for (node, first) in [(0, 0), (1, c)] {
            let (last, thread) = (first + c - 1, first + 2 * c);
            tree.node(node, &format!("{first}-{last},{thread}-{}", thread + c - 1));
        }
        tree.cores(|cpu| (cpu / c % 2, cpu % c));
        tree
    }

    pub(crate) fn root(&self) -> &Path {
        self.root.path()
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root().join(path)
    }

    pub(crate) fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub(crate) fn link(&self, path: &str, target: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
    }

    pub(crate) fn node(&mut self, number: u32, cpus: &str) {
        let path = format!("devices/system/node/node{number}/cpulist");
        self.write(&path, format!("{cpus}\n"));
        self.write("devices/system/node/possible", "0-1\n");
        self.nodes.push((number, cpus.to_owned()));
    }

    /// Package and core of each cpu.
    pub(crate) fn cores(&self, core: impl Fn(u32) -> (u32, u32)) {
        for cpu in 0..self.cpus {
            let (package, core) = core(cpu);
            let folder = format!("devices/system/cpu/cpu{cpu}/topology");
            let package = format!("{package}\n");
            self.write(&format!("{folder}/physical_package_id"), package);
            self.write(&format!("{folder}/core_id"), format!("{core}\n"));
        }
    }

    /// A function below `devices`, such as `pci0000:15/0000:15:01.0/0000:16:00.0`, near a node or
    /// (-1) near all; and all bridges above it that are not there yet.
    pub(crate) fn function(&self, path: &str, kind: Kind, node: i64) {
        let local = self.nodes.iter().find(|(n, _)| i64::from(*n) == node);
        let local = local.map_or_else(|| format!("0-{}", self.cpus - 1), |(_, l)| l.clone());
        self.function_near(path, kind, node, &local);
    }

    /// The same, with local cpus that are not its node's.
    pub(crate) fn function_near(&self, path: &str, kind: Kind, node: i64, local: &str) {
        let (above, name) = path.rsplit_once('/').unwrap();
        if above.contains('/') && !self.path(&format!("devices/{above}/class")).exists() {
            self.function_near(above, BRIDGE, node, local);
        }
        let (class, vendor, device) = kind;
        let attribute = |name: &str, content: String| {
            self.write(&format!("devices/{path}/{name}"), content + "\n");
        };
        attribute("class", format!("0x{class:06x}"));
        attribute("vendor", format!("0x{vendor:04x}"));
        attribute("device", format!("0x{device:04x}"));
        attribute("numa_node", node.to_string());
        attribute("local_cpulist", local.to_owned());
        let target = format!("../../../devices/{path}");
        self.link(&format!("bus/pci/devices/{name}"), &target);
    }

    /// A NIC's function, with its RDMA device.
    pub(crate) fn nic(&self, name: &str, path: &str, kind: Kind, node: i64, rate: &str) {
        self.function(path, kind, node);
        self.rdma(name, path, rate);
    }

    /// The RDMA device of a function.
    pub(crate) fn rdma(&self, name: &str, path: &str, rate: &str) {
        let (_, function) = path.rsplit_once('/').unwrap();
        let folder = format!("devices/{path}/infiniband/{name}");
        self.write(&format!("{folder}/ports/1/rate"), format!("{rate}\n"));
        self.link(&format!("{folder}/device"), &format!("../../../{function}"));
        let class = format!("class/infiniband/{name}");
        self.link(&class, &format!("../../{folder}"));
    }

    pub(crate) fn machine(&self) -> Machine {
        Machine::read(self.root()).unwrap()
    }

    pub(crate) fn topology(&self) -> Topology {
        Topology::of(&self.machine(), &DeviceMap::default()).unwrap()
    }
}

/// A topology in short: each device with its NICs and cores, such as
/// `0000:1b:00.0 mlx5_0 by switch 0000:16:00.0, 0-6 by NUMA node 0`.
pub(crate) fn short(topology: &Topology) -> Vec<String> {
    let place = |place: &tandem_topology::DevicePlace| {
        let nics: Vec<&str> = place.nics.iter().map(|nic| nic.name.as_str()).collect();
        let cores = place
            .cores
            .chunk_by(|a, b| a + 1 == *b)
            .map(|run| match run {
                [first, .., last] => format!("{first}-{last}"),
                run => run[0].to_string(),
            });
        let cores = cores.collect::<Vec<_>>().join(",");
        let (device, nics) = (place.device, nics.join(" "));
        let (near, cores_near) = (place.nics_near, place.cores_near);
        format!("{device} {nics} by {near}, {cores} by {cores_near}")
    };
    topology.devices.iter().map(place).collect()
}

pub(crate) fn spare(topology: &Topology) -> Vec<&str> {
    let names = topology.spare_nics.iter().map(|nic| nic.name.as_str());
    names.collect()
}

pub(crate) fn notes(topology: &Topology) -> Vec<String> {
    topology.notes.iter().map(ToString::to_string).collect()
}

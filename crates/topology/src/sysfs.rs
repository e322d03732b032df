//! Reads a [`Machine`] from sysfs: the only part that does I/O.
//!
//! What kernels leave out (no NUMA, no core numbers, no InfiniBand) is taken as absent. What no
//! kernel writes is an error that names the file and its content.
//!
//! Source: `Documentation/ABI/testing/sysfs-bus-pci`, `sysfs-devices-system-cpu` and
//! `stable/sysfs-class-infiniband` in the kernel.

mod cpu;
mod error;
mod nic;
mod pci;
mod tree;

use std::path::Path;

pub use error::ReadError;

use crate::Machine;
use tree::Tree;

impl Machine {
    /// Reads the tree at `root`, which is `/sys` but in tests.
    ///
    /// # Errors
    /// Where something cannot be read, is larger than any kernel makes it, is not what kernels
    /// write, or leads out of `root`; and where there is no cpu, so that `root` is no sysfs.
    pub fn read(root: &Path) -> Result<Self, ReadError> {
        let tree = Tree::open(root)?;
        let functions = pci::functions(&tree)?;
        let nics = nic::nics(&tree, &functions)?;
        let cpus = cpu::cpus(&tree)?;
        let nodes = cpu::nodes(&tree, &cpus)?;
        Ok(Self {
            functions,
            nics,
            nodes,
            cpus,
        })
    }
}

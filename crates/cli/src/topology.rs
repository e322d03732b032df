//! `tandem topology`: which NICs and cores belong to which device.

use std::path::PathBuf;

use clap::Args;
use tandem_config::Config;
use tandem_topology::{Machine, Topology};

use crate::console::say;
use crate::failure::Failure;

/// Command line of `tandem topology`.
#[derive(Args)]
pub(crate) struct TopologyArgs {
    /// A configuration file whose `[topology]` overrules what is discovered.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where sysfs is mounted, or a copy of another machine's.
    #[arg(long, value_name = "FOLDER", default_value = "/sys")]
    sysfs: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Reads the machine, and prints a table or JSON.
pub(crate) fn run(args: &TopologyArgs) -> Result<(), Failure> {
    let map = match &args.config {
        Some(path) => Config::load(path)?.topology,
        None => tandem_topology::DeviceMap::default(),
    };
    let machine = Machine::read(&args.sysfs).map_err(Failure::mendable)?;
    let topology = Topology::of(&machine, &map).map_err(Failure::mendable)?;
    if args.json {
        say(&serde_json::to_string_pretty(&topology).map_err(Failure::fault)?);
    } else {
        say(topology.to_string().trim_end());
    }
    Ok(())
}

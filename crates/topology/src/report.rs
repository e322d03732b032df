//! A topology as a table for people.

use std::fmt;

use crate::cpulist;
use crate::topology::{DevicePlace, Topology};

const HEAD: [&str; 9] = [
    "DEVICE", "NODE", "NICS", "GBIT/S", "NICS BY", "FABRIC", "WATCHER", "ENGINE", "CORES BY",
];

/// Columns without colours, then spare NICs and notes if there are any; every line ends with a new
/// line.
impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = HEAD.map(str::to_owned);
        let rows: Vec<_> = [head]
            .into_iter()
            .chain(self.devices.iter().map(row))
            .collect();
        let widths: [usize; HEAD.len()] = std::array::from_fn(|column| {
            let width = |row: &[String; HEAD.len()]| row[column].chars().count();
            rows.iter().map(width).max().unwrap_or(0)
        });
        for row in &rows {
            let cells = row.iter().zip(widths);
            let cells: Vec<String> = cells.map(|(cell, w)| format!("{cell:w$}")).collect();
            writeln!(f, "{}", cells.join("  ").trim_end())?;
        }
        if !self.spare_nics.is_empty() {
            let names = self.spare_nics.iter().map(|nic| nic.name.as_str());
            writeln!(f, "spare: {}", names.collect::<Vec<_>>().join(", "))?;
        }
        let mut notes = self.notes.iter();
        notes.try_for_each(|note| writeln!(f, "note: {note}"))
    }
}

fn row(place: &DevicePlace) -> [String; HEAD.len()] {
    let names: Vec<&str> = place.nics.iter().map(|nic| nic.name.as_str()).collect();
    let near = |none: bool, near: &dyn fmt::Display| {
        if none { dash() } else { near.to_string() }
    };
    let core = |core: Option<u32>| core.map_or_else(dash, |core| core.to_string());
    [
        place.device.to_string(),
        place.node.map_or_else(dash, |node| node.to_string()),
        or_dash(names.join(", ")),
        or_dash(rate(place)),
        near(names.is_empty(), &place.nics_near),
        core(place.fabric_core()),
        core(place.watcher_core()),
        or_dash(cpulist::format(place.engine_cores())),
        near(place.cores.is_empty(), &place.cores_near),
    ]
}

/// All of a device's NICs together; empty where the kernel does not say it of each.
fn rate(place: &DevicePlace) -> String {
    let rates: Option<Vec<u64>> = place
        .nics
        .iter()
        .map(|nic| nic.rate_mbps.map(u64::from))
        .collect();
    match rates.map(|rates| rates.iter().sum::<u64>()) {
        None | Some(0) => String::new(),
        Some(mbps) if mbps % 1000 == 0 => format!("{}", mbps / 1000),
        Some(mbps) => format!("{}.{}", mbps / 1000, mbps % 1000 / 100),
    }
}

fn or_dash(text: String) -> String {
    if text.is_empty() { dash() } else { text }
}

fn dash() -> String {
    "-".to_owned()
}

//! `[topology]`: an explicit map of devices, NICs and cores, where discovery would be wrong.

use serde::Deserialize;
use tandem_topology::DeviceMap;

use crate::section::Document;

/// The table alone; the others are read elsewhere.
#[derive(Default, Deserialize)]
struct File {
    #[serde(default)]
    topology: DeviceMap,
}

/// Reads the table; an empty map where there is none.
pub(crate) fn read(document: &mut Document<'_>, text: &str) -> DeviceMap {
    if document.take("topology").is_none() {
        return DeviceMap::default();
    }
    match toml::from_str::<File>(text) {
        Ok(file) => file.topology,
        Err(error) => {
            let message = error.message().replace('\n', "; ");
            document.problem_at(error.span(), format!("[topology] {message}"));
            DeviceMap::default()
        }
    }
}

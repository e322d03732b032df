//! `[identity]`: certificates of mutual TLS.

use std::path::PathBuf;

use crate::section::{PATH, Section, text};

/// Where a process finds its certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdentityConfig {
    /// The folder of `ca.pem`, `<name>.pem` and `<name>.key`. Default `pki` beside the file.
    pub directory: PathBuf,
    /// Which of the folder's certificates is this process's. Default: the worker's id, or
    /// `gateway`.
    pub name: String,
}

/// The same, while the process's own name is not known.
#[derive(Clone)]
pub(crate) struct Unnamed {
    directory: PathBuf,
    name: Option<String>,
}

impl Unnamed {
    pub(crate) fn resolve(self, default_name: &str) -> IdentityConfig {
        IdentityConfig {
            directory: self.directory,
            name: self.name.unwrap_or_else(|| default_name.to_owned()),
        }
    }
}

pub(crate) fn read(section: &mut Section<'_, '_>) -> Unnamed {
    let directory = section.read("directory", PATH, |value| text(value).map(PathBuf::from));
    let name = section.read(
        "name",
        "the name of a certificate, without its folder",
        |value| {
            text(value)
                .filter(|name| !name.contains('/'))
                .map(str::to_owned)
        },
    );
    let directory = directory.unwrap_or_else(|| PathBuf::from("pki"));
    Unnamed {
        directory: section.in_folder(directory),
        name,
    }
}

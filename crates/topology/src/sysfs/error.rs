//! Why a tree cannot be read.

use std::io;
use std::path::PathBuf;

/// Why a tree is not read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The system refused; a circle of links comes as this too.
    #[error("{}: {source}", path.display())]
    Io {
        /// What was read.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Not what kernels write there.
    #[error("{}: {content:?}: want {want}", path.display())]
    Content {
        /// The file, or the folder that has such an entry.
        path: PathBuf,
        /// What it says; for an entry, its name.
        content: String,
        /// What kernels write.
        want: &'static str,
    },
    /// A file that every kernel has is not there.
    #[error("{}: missing", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// A file is longer than a page, or a folder has more entries than a machine can have.
    #[error("{}: more than {limit} {what}", path.display())]
    TooMuch {
        /// The file or folder.
        path: PathBuf,
        /// How many are read.
        limit: usize,
        /// Of what.
        what: &'static str,
    },
    /// A folder, pipe or device where a file belongs.
    #[error("{}: not a regular file", path.display())]
    NotAFile {
        /// What it is called.
        path: PathBuf,
    },
    /// A link leads out of the root.
    #[error("{}: leads out of {}", path.display(), root.display())]
    Outside {
        /// The path with the link.
        path: PathBuf,
        /// The root.
        root: PathBuf,
    },
    /// No cpu is online: this is no sysfs.
    #[error("{}: no cpu in devices/system/cpu: is this sysfs?", root.display())]
    NoCpus {
        /// What was taken for sysfs.
        root: PathBuf,
    },
}

//! The state folder: `lock`, `pki/`, `config/`, `logs/`. One `up` at a time has it.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use tandem_wire::identity::{Authority, Certificate, PeerRole};

use crate::failure::Failure;

/// A certificate that ends sooner is made anew.
const DAYS_LEFT: u64 = 30;

/// The folder, locked for as long as this lives.
pub(super) struct StateFolder {
    folder: PathBuf,
    authority: Authority,
    /// Whether certificates that are there are another authority's.
    new_authority: bool,
    _lock: File,
}

impl StateFolder {
    /// Makes what is missing, and refuses a folder that another `up` has.
    pub(super) fn open(folder: &Path) -> Result<Self, Failure> {
        let named = folder;
        let folder = std::path::absolute(named).map_err(|error| cannot_use(named, &error))?;
        for part in ["config", "logs"] {
            fs::create_dir_all(folder.join(part)).map_err(|error| cannot_use(named, &error))?;
        }
        let lock = lock(named, &folder.join("lock"))?;
        for part in ["config", "logs"] {
            forget(&folder.join(part)).map_err(|error| cannot_use(named, &error))?;
        }
        let pki = folder.join("pki");
        let new_authority = !pki.join("ca.pem").exists();
        let authority = Authority::open_or_create(&pki).map_err(Failure::mendable)?;
        Ok(Self {
            folder,
            authority,
            new_authority,
            _lock: lock,
        })
    }

    /// Makes a certificate for `role`, unless there is one that is good for a while.
    pub(super) fn certify(&self, role: &PeerRole) -> Result<(), Failure> {
        let exists = |ending| {
            self.pki()
                .join(format!("{}.{ending}", role.file_stem()))
                .exists()
        };
        let is_good = || {
            let path = self.pki().join(format!("{}.pem", role.file_stem()));
            Certificate::read(&path).is_ok_and(|certificate| certificate.days_left() >= DAYS_LEFT)
        };
        if !self.new_authority && exists("pem") && exists("key") && is_good() {
            return Ok(());
        }
        self.authority.issue(role).map_err(Failure::mendable)
    }

    /// Certificates and keys.
    pub(super) fn pki(&self) -> PathBuf {
        self.folder.join("pki")
    }

    /// The configuration file of a process.
    pub(super) fn config(&self, id: &str) -> PathBuf {
        self.folder.join("config").join(format!("{id}.toml"))
    }

    /// The folder of the processes' logs.
    pub(super) fn logs(&self) -> PathBuf {
        self.folder.join("logs")
    }
}

/// Removes the files of an earlier fleet, which may have had other members.
fn forget(folder: &Path) -> io::Result<()> {
    for file in fs::read_dir(folder)? {
        let path = file?.path();
        if path
            .extension()
            .is_some_and(|ending| ending == "toml" || ending == "log")
        {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

fn lock(named: &Path, path: &Path) -> Result<File, Failure> {
    let mut file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .map_err(|error| cannot_use(named, &error))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut pid = String::new();
            let _ = file.read_to_string(&mut pid);
            return Err(Failure::mendable(format!(
                "{} belongs to another `tandem up` (pid {}): stop that one, or choose another \
                 folder with --state-dir",
                named.display(),
                pid.trim()
            )));
        }
        Err(TryLockError::Error(error)) => return Err(cannot_use(named, &error)),
    }
    file.set_len(0)
        .and_then(|()| file.rewind())
        .and_then(|()| writeln!(file, "{}", std::process::id()))
        .map_err(|error| cannot_use(named, &error))?;
    Ok(file)
}

fn cannot_use(folder: &Path, error: &io::Error) -> Failure {
    Failure::mendable(format!(
        "cannot use the state folder {}: {error}",
        folder.display()
    ))
}

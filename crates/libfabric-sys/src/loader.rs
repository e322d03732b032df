//! Finding and opening the library.

use std::ffi::{OsString, c_char, c_int, c_void};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::bindings::{fi_fabric_attr, fi_info, fid_fabric};

/// The interface that this crate speaks, for `fi_getinfo`: 1.17.
pub const API_VERSION: u32 = (1 << 16) | 17;

/// Names the file to load where the caller of [`Library::open`] names none.
pub const LIBRARY_VARIABLE: &str = "TANDEM_LIBFABRIC";

/// A version of libfabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Before the point.
    pub major: u32,
    /// Behind it.
    pub minor: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Why there is no libfabric.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LoadError {
    /// The library is not there, or cannot be opened.
    #[error("libfabric is not installed ({file}: {reason}): apt-get install libfabric1")]
    Missing {
        /// What was tried.
        file: String,
        /// What the dynamic loader said.
        reason: String,
    },
    /// A file was named, and cannot be loaded.
    #[error(
        "libfabric cannot be loaded from {file}, which {by} names ({reason}): name another file, or none \
         and apt-get install libfabric1"
    )]
    Named {
        /// What was tried.
        file: String,
        /// Who named it.
        by: &'static str,
        /// What the dynamic loader said.
        reason: String,
    },
    /// A process loads one libfabric, and this one has loaded another.
    #[error("libfabric cannot be loaded from {file}: this process has loaded {loaded} already")]
    Another {
        /// What was asked for.
        file: String,
        /// What is loaded.
        loaded: String,
    },
    /// It is there, and older than 1.17.
    #[error("libfabric {found} is too old, 1.17 or newer is needed: apt-get install libfabric1")]
    TooOld {
        /// Its version.
        found: Version,
    },
    /// The file is no libfabric: a function is missing.
    #[error("{file} is no usable libfabric: it has no function {symbol}")]
    Symbol {
        /// What was loaded.
        file: String,
        /// What it lacks.
        symbol: &'static str,
    },
}

/// `fi_getinfo(3)`
pub type GetInfo = unsafe extern "C" fn(
    version: u32,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: *const fi_info,
    info: *mut *mut fi_info,
) -> c_int;
/// `fi_dupinfo(3)`
pub type DupInfo = unsafe extern "C" fn(info: *const fi_info) -> *mut fi_info;
/// `fi_freeinfo(3)`
pub type FreeInfo = unsafe extern "C" fn(info: *mut fi_info);
/// `fi_fabric(3)`
pub type OpenFabric = unsafe extern "C" fn(
    attr: *mut fi_fabric_attr,
    fabric: *mut *mut fid_fabric,
    context: *mut c_void,
) -> c_int;
/// `fi_strerror(3)`
pub type StrError = unsafe extern "C" fn(errnum: c_int) -> *const c_char;
/// `fi_tostr(3)`: not safe for threads.
pub type ToStr = unsafe extern "C" fn(data: *const c_void, datatype: u32) -> *mut c_char;
/// `fi_version(3)`
pub type GetVersion = unsafe extern "C" fn() -> u32;

/// libfabric's exported functions. Stays loaded until the process ends, since threads and signal
/// handlers of the library live as long.
#[derive(Debug)]
pub struct Library {
    /// `fi_getinfo(3)`
    pub getinfo: GetInfo,
    /// `fi_dupinfo(3)`
    pub dupinfo: DupInfo,
    /// `fi_freeinfo(3)`
    pub freeinfo: FreeInfo,
    /// `fi_fabric(3)`
    pub fabric: OpenFabric,
    /// `fi_strerror(3)`
    pub strerror: StrError,
    /// `fi_tostr(3)`
    pub tostr: ToStr,
    version: Version,
    file: PathBuf,
}

impl Library {
    /// The library: what the first call of [`Library::open`] has loaded, or what it loads where
    /// nothing is named.
    pub fn get() -> Result<&'static Self, LoadError> {
        Self::open(None)
    }

    /// Loads the library from the `named` file, or where that is `None` from the one that
    /// [`LIBRARY_VARIABLE`] names, or else `libfabric.so.1` as the dynamic loader finds it. The first
    /// one loaded serves the whole process: to name another file later is an error.
    pub fn open(named: Option<&Path>) -> Result<&'static Self, LoadError> {
        static LIBRARY: Mutex<Option<&'static Library>> = Mutex::new(None);
        // Held while loading: one at a time. Nothing can panic halfway.
        let mut library = LIBRARY.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(loaded) = *library {
            return match named.filter(|named| **named != *loaded.file) {
                None => Ok(loaded),
                Some(other) => Err(LoadError::Another {
                    file: other.display().to_string(),
                    loaded: loaded.file.display().to_string(),
                }),
            };
        }
        let source = Source::choose(named, std::env::var_os(LIBRARY_VARIABLE));
        let loaded = Self::load(&source)?;
        Ok(*library.insert(Box::leak(Box::new(loaded))))
    }

    /// Its version.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.version
    }

    /// What was loaded.
    #[must_use]
    pub fn file(&self) -> &std::path::Path {
        &self.file
    }

    fn load(source: &Source) -> Result<Self, LoadError> {
        let file = source.file.clone();
        // SAFETY: loading runs the library's initialisers; whoever installed it (or named it)
        // vouches that it is a libfabric.
        let library =
            unsafe { libloading::Library::new(&file) }.map_err(|e| source.refused(reason(&e)))?;
        // SAFETY: `fi_version` has had this signature since libfabric 1.0.
        let version: GetVersion = unsafe { symbol(&library, &file, "fi_version") }?;
        // SAFETY: it takes nothing and touches nothing.
        let version = unsafe { version() };
        let version = Version {
            major: version >> 16,
            minor: version & 0xffff,
        };
        if version
            < (Version {
                major: 1,
                minor: 17,
            })
        {
            return Err(LoadError::TooOld { found: version });
        }
        // SAFETY: the signatures are those of fabric.h, stable over all of ABI 1 (libfabric.so.1).
        let loaded = unsafe {
            Self {
                getinfo: symbol(&library, &file, "fi_getinfo")?,
                dupinfo: symbol(&library, &file, "fi_dupinfo")?,
                freeinfo: symbol(&library, &file, "fi_freeinfo")?,
                fabric: symbol(&library, &file, "fi_fabric")?,
                strerror: symbol(&library, &file, "fi_strerror")?,
                tostr: symbol(&library, &file, "fi_tostr")?,
                version,
                file,
            }
        };
        std::mem::forget(library);
        Ok(loaded)
    }
}

/// A file, and who named it.
#[derive(Debug, PartialEq, Eq)]
struct Source {
    file: PathBuf,
    by: Option<&'static str>,
}

impl Source {
    fn choose(named: Option<&Path>, variable: Option<OsString>) -> Self {
        let (file, by) = match (named, variable.filter(|name| !name.is_empty())) {
            (Some(file), _) => (file.into(), Some("the configuration or the command line")),
            (None, Some(file)) => (file.into(), Some(LIBRARY_VARIABLE)),
            (None, None) => ("libfabric.so.1".into(), None),
        };
        Self { file, by }
    }

    fn refused(&self, reason: String) -> LoadError {
        let file = self.file.display().to_string();
        match self.by {
            Some(by) => LoadError::Named { file, by, reason },
            None => LoadError::Missing { file, reason },
        }
    }
}

/// # Safety
/// `T` must be the function's type.
unsafe fn symbol<T: Copy>(
    library: &libloading::Library,
    file: &std::path::Path,
    symbol: &'static str,
) -> Result<T, LoadError> {
    // SAFETY: the caller vouches for the type; the library is never unloaded once `load` returns.
    let found = unsafe { library.get::<T>(symbol.as_bytes()) };
    found.map(|f| *f).map_err(|_| LoadError::Symbol {
        file: file.display().to_string(),
        symbol,
    })
}

/// The dynamic loader's own words, on one line.
fn reason(error: &libloading::Error) -> String {
    let source = std::error::Error::source(error).map(ToString::to_string);
    source
        .unwrap_or_else(|| error.to_string())
        .replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_installed_library_loads_and_is_new_enough() {
        let library = Library::get().unwrap();
        assert!(
            library.version()
                >= Version {
                    major: 1,
                    minor: 17
                }
        );
    }

    #[test]
    fn what_is_named_goes_before_the_variable_and_that_before_the_system_s() {
        let variable = || Some(OsString::from("/v.so"));
        let file = |named: Option<&str>, variable| {
            let source = Source::choose(named.map(Path::new), variable);
            source.file.display().to_string()
        };
        assert_eq!(file(Some("/n.so"), variable()), "/n.so");
        assert_eq!(file(None, variable()), "/v.so");
        assert_eq!(file(None, Some(OsString::new())), "libfabric.so.1");
        assert_eq!(file(None, None), "libfabric.so.1");
    }

    #[test]
    fn a_process_keeps_to_the_library_that_it_loaded_first() {
        let loaded = Library::get().unwrap();
        assert!(std::ptr::eq(
            Library::open(Some(loaded.file())).unwrap(),
            loaded
        ));
        let error = Library::open(Some(Path::new("/other.so"))).unwrap_err();
        let text = error.to_string();
        let loaded = loaded.file().display().to_string();
        assert!(
            text.contains("/other.so") && text.contains(&loaded),
            "{text}"
        );
    }

    #[test]
    fn a_missing_library_names_the_package_on_one_line() {
        let source = Source::choose(None, None);
        let text = source.refused("no file".into()).to_string();
        assert!(text.starts_with("libfabric is not installed"), "{text}");
        assert!(text.ends_with("apt-get install libfabric1"), "{text}");
    }
}

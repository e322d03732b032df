//! Finding and opening the library.

use std::ffi::{c_char, c_int, c_void};
use std::fmt;
use std::path::PathBuf;
use std::sync::OnceLock;

use crate::bindings::{fi_fabric_attr, fi_info, fid_fabric};

/// The interface that this crate speaks, for `fi_getinfo`: 1.17.
pub const API_VERSION: u32 = (1 << 16) | 17;

/// Names another file to load in place of `libfabric.so.1`.
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
    /// The library, loaded at the first call: `libfabric.so.1`, or the file that
    /// [`LIBRARY_VARIABLE`] names.
    pub fn get() -> Result<&'static Self, LoadError> {
        static LIBRARY: OnceLock<Result<Library, LoadError>> = OnceLock::new();
        LIBRARY
            .get_or_init(Self::load)
            .as_ref()
            .map_err(Clone::clone)
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

    fn load() -> Result<Self, LoadError> {
        let named = std::env::var_os(LIBRARY_VARIABLE).filter(|name| !name.is_empty());
        let file = PathBuf::from(named.unwrap_or_else(|| "libfabric.so.1".into()));
        // SAFETY: loading runs the library's initialisers; whoever installed it (or set the
        // variable) vouches that it is a libfabric.
        let library =
            unsafe { libloading::Library::new(&file) }.map_err(|e| LoadError::Missing {
                file: file.display().to_string(),
                reason: reason(&e),
            })?;
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
    fn a_missing_library_names_the_package_on_one_line() {
        let error = LoadError::Missing {
            file: "libfabric.so.1".into(),
            reason: "no file".into(),
        };
        let text = error.to_string();
        assert!(text.starts_with("libfabric is not installed"), "{text}");
        assert!(text.ends_with("apt-get install libfabric1"), "{text}");
    }
}

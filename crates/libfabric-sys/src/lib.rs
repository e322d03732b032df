//! Raw libfabric, loaded at run time.
//!
//! Three parts: [`bindings`] (generated from the 1.17 headers and checked in; their layout is
//! asserted at compile time), [`inline`] (what the headers define as `static inline`: calls through
//! the tables inside `fid_*`), and [`Library`] (the seven exported functions, resolved once).
//! Nothing is linked: a program that uses this crate builds and starts without libfabric, and asks
//! [`Library::get`] whether it is there.
//!
//! What must hold for the bindings to fit newer libraries, which append fields to structs: never
//! read a field that 1.17 does not have, take every `fi_info` from `fi_dupinfo(NULL)`,
//! register memory without `fi_mr_attr`, and ask `fi_getinfo` for [`API_VERSION`].

#[rustfmt::skip]
pub mod bindings;
pub mod inline;
mod loader;

pub use bindings::*;
pub use loader::{
    API_VERSION, DupInfo, FreeInfo, GetInfo, GetVersion, LIBRARY_VARIABLE, Library, LoadError,
    OpenFabric, StrError, ToStr, Version,
};

/// No address (`FI_ADDR_UNSPEC`, a cast that bindgen does not translate).
pub const FI_ADDR_UNSPEC: fi_addr_t = u64::MAX;

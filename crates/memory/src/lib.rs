//! Memory that a NIC may write into while this process reads it.
//!
//! Owns the mapping of a KV arena. Refuses to hand out references into it: other processes write
//! there one-sidedly, so a `&[u8]` would be a promise that nobody can keep. Bytes are copied in and
//! out instead, bounds-checked. *When* a page may be read or written is the core's rule (leases),
//! not this crate's.
//!
//! [`HostMemory`] is a memfd, so that other processes can map the same pages from a descriptor.
//! GPU memory joins behind [`Memory`] later.

mod host;

pub use host::{CreateError, HostMemory};

use std::os::fd::BorrowedFd;

/// Where memory lives; decides how a NIC registers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Host memory.
    Host,
}

/// A fixed range of memory that stays mapped at one address for as long as the value lives.
///
/// # Safety
/// [`Memory::address`] must be mapped readable and writable for [`Memory::len`] bytes until the
/// value is dropped, and no Rust reference into it may exist while remote peers hold its key.
pub unsafe trait Memory: Send + Sync + 'static {
    /// First byte.
    fn address(&self) -> *mut u8;

    /// Bytes.
    fn len(&self) -> usize;

    /// Whether it holds no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where it lives.
    fn placement(&self) -> Placement;

    /// The descriptor behind it, to share it with another process.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;
}

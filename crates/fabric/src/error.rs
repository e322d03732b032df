//! What can go wrong, one enum per operation.

use std::fmt;

use libfabric_sys::{Library, LoadError};
use tandem_core::ledger::NoSlot;
use tandem_core::{EndpointId, FlowId};

use crate::options::MAX_NICS;

/// A libfabric error number, positive.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub i32);

impl Errno {
    pub(crate) const AGAIN: Self = Self(libfabric_sys::FI_EAGAIN as i32);
    pub(crate) const NO_DATA: Self = Self(61);

    /// The code as an errno; 0 and above is fine.
    pub(crate) fn check(code: impl Into<i64>) -> Result<usize, Self> {
        let code = code.into();
        usize::try_from(code).map_err(|_| Self(i32::try_from(-code).unwrap_or(i32::MAX)))
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ok(library) = Library::get() else {
            return write!(f, "error {}", self.0);
        };
        // SAFETY: `fi_strerror` returns a static text for every number.
        let text = unsafe { std::ffi::CStr::from_ptr((library.strerror)(self.0)) };
        write!(f, "{} ({})", text.to_string_lossy(), self.0)
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Errno {}

/// A call of libfabric failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call}: {errno}")]
pub struct CallError {
    /// Its name, as in the man pages.
    pub call: &'static str,
    /// What it returned.
    pub errno: Errno,
}

/// Why a fabric could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no libfabric, or an old one.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// No provider of that name offers what Tandem needs here.
    #[error("no usable libfabric provider {wanted:?} here; available: {}", available.join(", "))]
    NoProvider {
        /// What was asked for.
        wanted: String,
        /// Names that would do.
        available: Vec<String>,
    },
    /// The provider offers what is needed, and does not do it.
    #[error("libfabric's {provider} is not used: {why}")]
    Unfit {
        /// libfabric's name.
        provider: String,
        /// Why not.
        why: &'static str,
    },
    /// RDMA is required, and this provider moves bytes with the CPU.
    #[error("provider {wanted:?} (libfabric's {provider:?}) is software, and RDMA is required")]
    NotRdma {
        /// What was asked for.
        wanted: String,
        /// libfabric's name of it.
        provider: String,
    },
    /// An option is outside its range.
    #[error("fabric option {option} is out of range: want {want}")]
    Option {
        /// Which.
        option: &'static str,
        /// What it may be.
        want: String,
    },
    /// A call failed.
    #[error("provider {provider:?}: {error}")]
    Call {
        /// libfabric's name of it.
        provider: String,
        /// What failed.
        error: CallError,
    },
    /// The arena cannot be registered: NICs limit how large a region may be, and systems how much
    /// memory may be pinned.
    #[error(
        "libfabric's {provider} cannot register an arena of {bytes} bytes: {errno} (the NIC may take no region \
         so large: lower kv_memory or raise tensor_parallel; memory that may be locked: {locked}, `ulimit -l`)"
    )]
    Register {
        /// libfabric's provider.
        provider: String,
        /// The arena's bytes.
        bytes: usize,
        /// What it said.
        errno: Errno,
        /// The limit of locked memory.
        locked: String,
    },
    /// The completion queue of an endpoint cannot be so long.
    #[error(
        "libfabric's {provider} opens no completion queue of {entries} entries: {errno} (lower \
         completion_entries or in_flight_writes in [fabric])"
    )]
    Queue {
        /// libfabric's provider.
        provider: String,
        /// Asked for.
        entries: usize,
        /// What it said.
        errno: Errno,
    },
    /// The provider has no such NIC.
    #[error("libfabric's {provider} has no NIC {nic:?} here; there are: {}", available.join(", "))]
    NoNic {
        /// Asked for.
        nic: String,
        /// libfabric's provider.
        provider: String,
        /// Domains that it has.
        available: Vec<String>,
    },
    /// The system refused a thread, a descriptor or a CPU.
    #[error("cannot start the fabric thread: {0}")]
    System(#[from] std::io::Error),
}

/// Why an operation of an open fabric failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FabricError {
    /// The fabric was shut down, or its thread has died.
    #[error("the fabric is closed")]
    Closed,
    /// No such endpoint, or it was closed.
    #[error("no fabric endpoint {}", .0.0)]
    UnknownEndpoint(EndpointId),
    /// The address is of this very process, which `shm` does not survive (see [`crate::shm`]).
    #[error("shm cannot connect a process with itself")]
    SameProcess,
    /// The endpoint failed earlier; close it.
    #[error("the fabric endpoint {} has failed: {error}", endpoint.0)]
    Failed {
        /// Which.
        endpoint: EndpointId,
        /// Of what.
        error: String,
    },
    /// The flow's id is in use.
    #[error("flow {} is open already", .0.0)]
    FlowInUse(FlowId),
    /// A peer without NICs, or with too many.
    #[error("a peer of {0} NICs; 1 to {MAX_NICS} can be used")]
    Nics(usize),
    /// The remote region wraps around, is not named for each of the peer's NICs, or its key is longer than this provider's keys.
    #[error("the remote region is not one that this provider can address")]
    Region,
    /// More was given back than was ever taken.
    #[error("the queue of released slots is full: slots were released twice")]
    ReleaseQueueFull,
    /// libfabric refused.
    #[error(transparent)]
    Call(#[from] CallError),
}

/// Why a slot could not be armed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArmError {
    /// The fabric is closed, or has no such inbox.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// All slots are in use: try again when a flow has ended.
    #[error(transparent)]
    NoSlot(#[from] NoSlot),
    /// More pieces than the inbox's completion queue has entries: this flow never fits.
    #[error(
        "{pieces} pieces are more than the {entries} entries of an inbox's completion queue: raise \
         completion_entries in [fabric], or page_tokens"
    )]
    TooMany {
        /// Wanted.
        pieces: u64,
        /// Of the queue.
        entries: u64,
    },
    /// The pieces that are awaited leave too few entries of the inbox's completion queue: try again
    /// when a flow of this peer has ended.
    #[error("the inbox's completion queue has room for {free} more pieces, not for {pieces}")]
    NoRoom {
        /// Wanted.
        pieces: u64,
        /// Left.
        free: u64,
    },
    /// A flow of nothing needs no slot.
    #[error("a flow of no pieces needs no slot")]
    Nothing,
}

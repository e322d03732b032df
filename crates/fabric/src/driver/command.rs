//! What other threads ask of the fabric's thread.

use tandem_core::immediate::Immediate;
use tandem_core::ledger::Armed;
use tandem_core::{EndpointId, TransferId};
use tokio::sync::oneshot::Sender;

use crate::error::{ArmError, FabricError};

/// An endpoint on which one peer may write into this process's arena.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inbox {
    /// Names it here.
    pub endpoint: EndpointId,
    /// Names it at the peer, for [`crate::Fabric::open_outbox`]: at most 512 bytes.
    pub address: Vec<u8>,
}

/// Memory of a peer, as its [`crate::FabricInfo`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteRegion {
    /// Its `base`.
    pub base: u64,
    /// Its `len`, in bytes.
    pub len: u64,
    /// Its `key`.
    pub key: u64,
}

/// A write from the own arena into a transfer's remote region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    /// What it belongs to.
    pub transfer: TransferId,
    /// Bytes from the start of the own arena.
    pub local_offset: u64,
    /// Bytes from the start of the remote region.
    pub remote_offset: u64,
    /// Bytes, at least 1: a write of none never completes on `shm`.
    pub len: u32,
    /// Goes into the target's completion queue.
    pub immediate: Immediate,
}

/// On the queue of the watcher, in the order in which it was pushed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Push {
    Write(Write),
    Seal(TransferId),
}

/// On the queue of rare things.
#[derive(Debug)]
pub(crate) enum Control {
    OpenInbox(Sender<Result<Inbox, FabricError>>),
    OpenOutbox(Vec<u8>, Sender<Result<EndpointId, FabricError>>),
    Close(EndpointId, Option<Sender<Result<(), FabricError>>>),
    Arm(EndpointId, u32, Sender<Result<Armed, ArmError>>),
    OpenTransfer(
        TransferId,
        EndpointId,
        RemoteRegion,
        Sender<Result<(), FabricError>>,
    ),
    Stop(TransferId, Sender<()>),
    Shutdown(Sender<()>),
}

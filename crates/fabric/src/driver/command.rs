//! What other threads ask of the fabric's thread.

use tandem_core::immediate::Immediate;
use tandem_core::ledger::Armed;
use tandem_core::{EndpointId, FlowId};
use tokio::sync::oneshot::Sender;

use crate::error::{ArmError, FabricError};

/// An endpoint on which one peer may write into this process's arena.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inbox {
    /// Names it here.
    pub endpoint: EndpointId,
    /// Name it at the peer, for [`crate::Fabric::open_outbox`]: one for each NIC, at most 512 bytes
    /// each.
    pub addresses: Vec<Vec<u8>>,
}

/// How one NIC names an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionKey {
    /// Address of the arena's first byte: virtual, or 0 where regions are addressed by offset.
    pub base: u64,
    /// The region's key.
    pub key: u64,
}

/// Memory of a peer, as its [`crate::FabricInfo::region`] says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteRegion {
    /// Its bytes.
    pub len: u64,
    /// How each of the peer's NICs names it, in the order of an inbox's addresses.
    pub keys: Vec<RegionKey>,
}

/// A write from the own arena into a flow's remote region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    /// What it belongs to.
    pub flow: FlowId,
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
    Seal(FlowId),
}

/// On the queue of rare things.
#[derive(Debug)]
pub(crate) enum Control {
    OpenInbox(Sender<Result<Inbox, FabricError>>),
    OpenOutbox(Vec<Vec<u8>>, Sender<Result<EndpointId, FabricError>>),
    Close(EndpointId, Option<Sender<Result<(), FabricError>>>),
    Arm(EndpointId, u64, Sender<Result<Armed, ArmError>>),
    OpenFlow(
        FlowId,
        EndpointId,
        RemoteRegion,
        Sender<Result<(), FabricError>>,
    ),
    Stop(FlowId, Sender<()>),
    Shutdown(Sender<()>),
}

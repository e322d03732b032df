//! What may happen next.

use tandem_core::{EndpointId, FlowId, SequenceId, TransferId, WorkerRole};

use crate::names::Attempt;
use crate::wire::WriteName;

/// One step of somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A client's request comes.
    Submit(u8),
    /// The gateway's door hears of the time.
    DoorTick,
    /// The gateway hears that a worker is lost.
    Left(WorkerRole, u8),
    /// A worker registers at the gateway.
    Join(WorkerRole, u8),
    /// A decode worker reports its free pages.
    Report(u8),
    /// A request for a lease arrives.
    Generate(Attempt),
    /// A decode worker hears that the gateway wants no more of a request.
    Cancel(Attempt),
    /// The gateway hears that the decode worker, or the stream to it, is lost.
    AskLost(Attempt),
    /// A client gives up.
    ClientLeaves(u8),
    /// The stream between the gateway and a decode worker breaks.
    BreakGenerate(Attempt),

    /// The fabric waits for a transfer.
    Arm(u8, u16),
    /// It does not.
    ArmFails(u8, u16),
    /// The decode task hears of it.
    Armed(u8, u16),
    /// An inbox is closed, and the decode task hears of it.
    Fence(u8, u8, u8),
    /// The decode task hears the next event of a shard's fabric.
    Inbound(u8, u16),
    /// The decode task hears of the time.
    DecodeTick(u8),
    /// A generating sequence ends by its own course.
    Finish(u8, SequenceId),
    /// The engine lets go of a cancelled one.
    LetGo(u8, SequenceId),
    /// The engine fails one.
    DecodeFails(u8, SequenceId),
    /// An inbox is of no more use.
    InboxFails(u8, EndpointId),
    /// A peer gone wrong writes the immediate of another's transfer into its own inbox.
    Stray(u8, u16, EndpointId, Attempt),

    /// The decode worker reaches the prefill worker, and hands the prompt over.
    Connect(Attempt),
    /// It does not reach it, or wants no more.
    NotConnected(Attempt),
    /// The prefill worker reads the next word of a stream.
    ToPrefill(Attempt),
    /// The decode worker reads the reply.
    ToDecode(Attempt),
    /// The stream breaks.
    BreakDispatch(Attempt),
    /// The decode worker hears that it broke.
    DecodeHears(Attempt),
    /// The prefill worker hears that it broke, or that nobody reads its answers.
    PrefillHears(Attempt),

    /// The ways of a transfer are opened.
    Open(u8, TransferId),
    /// They cannot be.
    OpenFails(u8, TransferId),
    /// The prefill task hears of it.
    Opened(u8, TransferId),
    /// The watcher hands out the next write of a transfer, and the fabric posts it.
    Post(u8, TransferId),
    /// The transport does not take it.
    PostFails(u8, TransferId),
    /// The watcher stops a transfer, and the prefill task hears of it.
    StopWatch(u8, TransferId),
    /// The fabric stops a flow.
    StopFlow(u8, FlowId),
    /// An outbox is closed.
    CloseOutbox(u8, EndpointId),
    /// The outboxes of one of the transfers that wait for it are closed, and the prefill task hears.
    SourceFence(u8, u8),
    /// The prefill task hears the next event of a shard's fabric.
    Outbound(u8, u16),
    /// The prefill task hears of the time.
    PrefillTick(u8),
    /// A prompt is computed.
    Computed(u8, SequenceId),
    /// The engine lets go of a cancelled prompt.
    Dropped(u8, SequenceId),
    /// The engine fails a prompt.
    PrefillFails(u8, SequenceId),
    /// An outbox is of no more use.
    OutboxFails(u8, EndpointId),

    /// A write's immediate is read; its bytes landed before.
    Count(WriteName),
    /// A write completes well: its bytes have landed.
    Complete(WriteName),
    /// A write completes in error. It may land later all the same.
    Break(WriteName),

    /// A process dies.
    Crash(WorkerRole, u8),
    /// It is started again.
    Restart(WorkerRole, u8),
}

impl Action {
    pub(crate) const fn is_tick(&self) -> bool {
        matches!(
            self,
            Self::DoorTick | Self::DecodeTick(_) | Self::PrefillTick(_)
        )
    }

    /// Whether this happens in the end if nothing else does. The others are mishaps, which need not
    /// happen at all.
    #[must_use]
    pub const fn must_happen(&self) -> bool {
        !matches!(
            self,
            Self::ClientLeaves(_)
                | Self::BreakGenerate(_)
                | Self::ArmFails(..)
                | Self::DecodeFails(..)
                | Self::InboxFails(..)
                | Self::Stray(..)
                | Self::BreakDispatch(_)
                | Self::OpenFails(..)
                | Self::PostFails(..)
                | Self::PrefillFails(..)
                | Self::OutboxFails(..)
                | Self::Break(_)
                | Self::Crash(..)
                | Self::Restart(..)
        )
    }
}

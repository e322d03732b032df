//! Rules that are broken on purpose, around the core and never in it.

/// One broken rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// A writer that was asked to stop and has not answered in time is taken for one that has.
    FreeOnTimeout,
    /// The generation of an immediate is not looked at.
    CountWithoutGeneration,
    /// The endpoint that an immediate came in at is not looked at.
    EndpointNotChecked,
    /// A prefill worker confirms a cancel before its writes have drained.
    AckBeforeDrain,
    /// The first error of a transfer is reported while its other writes are in flight.
    ErrorWhileSiblingsInFlight,
    /// Source pages are let go when the prompt is computed, with writes in flight.
    SourceUnpinnedEarly,
    /// A slot is released when its request fails, and used again with the generation it had.
    SlotReusedAtOnce,
    /// A peer counts as fenced when its key is revoked; its endpoint stays open.
    RegionCloseAsFence,
    /// A transfer of which writes broke off is reported as one that has drained.
    UnsettledTakenForFailed,
    /// The decode worker's engine is made ready at the first shard's last piece.
    ReadyAtFirstShard,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::FreeOnTimeout,
        Self::CountWithoutGeneration,
        Self::EndpointNotChecked,
        Self::AckBeforeDrain,
        Self::ErrorWhileSiblingsInFlight,
        Self::SourceUnpinnedEarly,
        Self::SlotReusedAtOnce,
        Self::RegionCloseAsFence,
        Self::UnsettledTakenForFailed,
        Self::ReadyAtFirstShard,
    ];
}

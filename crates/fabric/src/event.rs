//! What the fabric reports by itself.

use std::time::Instant;

use tandem_core::EndpointId;
use tandem_core::immediate::SlotKey;
use tandem_core::ledger::Ended;

/// Something happened.
#[derive(Clone, Debug)]
pub enum FabricEvent {
    /// Every piece that the slot was armed for is in memory. Once per armed slot. May still be
    /// queued when the slot is released: a key that is not waited for is to be ignored.
    Full {
        /// Which slot.
        armed: SlotKey,
        /// The inbox it was armed for.
        endpoint: EndpointId,
    },
    /// More pieces arrived than the slot was armed for: the peer broke the protocol, and its
    /// flow must fail. Once per armed slot; it may follow a `Full`.
    Overfull {
        /// Which slot.
        armed: SlotKey,
        /// The inbox it was armed for.
        endpoint: EndpointId,
        /// Pieces that have arrived.
        received: u64,
        /// Pieces that should have.
        expected: u64,
    },
    /// A flow has drained: nothing of it will be posted, no completion of it is outstanding.
    FlowEnded(FlowEnded),
    /// An endpoint is of no more use: a write was refused for too long, its queue overran, or an
    /// inbound write broke off. Once per endpoint; close it. Its flows end when their
    /// outstanding writes complete, or with the close.
    EndpointFailed {
        /// Which.
        endpoint: EndpointId,
        /// In libfabric's words.
        error: String,
    },
}

/// The end of an outbound flow.
#[derive(Clone, Debug)]
pub struct FlowEnded {
    /// Counted by the ledger.
    pub ended: Ended,
    /// Whether the target's side acknowledged every write that was posted (delivery complete), so
    /// that none of it can land any more. Only then may the target be told so. Where false (a
    /// write completed in error, or the outbox was closed with writes outstanding) bytes may still
    /// wait in a socket or a queue, and only closing the target's inbox makes its pages safe.
    pub settled: bool,
    /// The first error, in libfabric's words or of the check that refused a write.
    pub error: Option<String>,
    /// When the first write was posted.
    pub first_post: Option<Instant>,
    /// When the last completion came.
    pub last_completion: Option<Instant>,
}

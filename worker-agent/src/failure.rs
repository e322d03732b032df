//! One table: who is to blame for what, and whether another pair may do better.

use tandem_core::decode::{Failure, Refusal};
use tandem_wire::proto;
use tandem_wire::proto::failure::Blame;
use tandem_wire::proto::refusal::Reason;

/// A refusal for the wire.
pub(crate) fn refusal(why: &Refusal) -> proto::Refusal {
    let reason = match why {
        Refusal::NoRoom(_) => Reason::NoRoom,
        Refusal::NeverFits(_) => Reason::NeverFits,
        Refusal::Busy(_) => Reason::Busy,
        Refusal::Invalid(_) => Reason::Invalid,
        Refusal::Mismatch(_) => Reason::Mismatch,
        Refusal::Stopping => Reason::Stopping,
        Refusal::StalePeer => Reason::StalePeer,
    };
    proto::Refusal {
        reason: reason.into(),
        message: why.to_string(),
    }
}

/// A peer's refusal.
pub(crate) fn read_refusal(refusal: proto::Refusal) -> Refusal {
    let reason = refusal.reason();
    let message = refusal.message;
    match reason {
        Reason::NoRoom => Refusal::NoRoom(message),
        Reason::NeverFits => Refusal::NeverFits(message),
        Reason::Busy | Reason::Unspecified => Refusal::Busy(message),
        Reason::Invalid => Refusal::Invalid(message),
        Reason::Mismatch => Refusal::Mismatch(message),
        Reason::Stopping => Refusal::Stopping,
        Reason::StalePeer => Refusal::StalePeer,
    }
}

/// A failure for the wire.
pub(crate) fn failure(why: &Failure) -> proto::Failure {
    let (blame, code, retry_elsewhere) = match why {
        Failure::Cancelled => (Blame::Client, "cancelled", false),
        Failure::Deadline(_) => (Blame::Gateway, "deadline_exceeded", false),
        Failure::PrefillRefused(Refusal::Invalid(_)) => (Blame::Gateway, "invalid", false),
        Failure::PrefillRefused(_) => (Blame::Prefill, "prefill_refused", true),
        Failure::PrefillFailed(_) => (Blame::Prefill, "prefill_failed", true),
        Failure::PrefillLost(_) => (Blame::Prefill, "prefill_lost", true),
        Failure::Fabric(_) => (Blame::Fabric, "transfer_failed", true),
        Failure::Engine(_) => (Blame::Decode, "engine_failed", true),
    };
    proto::Failure {
        blame: blame.into(),
        code: code.into(),
        message: why.to_string(),
        retry_elsewhere,
    }
}

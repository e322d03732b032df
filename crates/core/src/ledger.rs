//! Transfer accounting, both ends. The thread that owns the completion queues owns these.
//!
//! - [`InboundLedger`] (decode side) counts immediates until a transfer is full.
//! - [`OutboundLedger`] (prefill side) counts posted and completed writes until a transfer has
//!   drained.

mod inbound;
mod outbound;

pub use inbound::{Armed, Counted, InboundLedger, NoSlot, Stale};
pub use outbound::{Ended, OutboundLedger, Posting, Refused};

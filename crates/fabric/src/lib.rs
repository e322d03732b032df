//! Safe one-sided transfers over libfabric.
//!
//! Three levels: raw bindings (`libfabric_sys`), owning types that only one thread may use
//! (`safe`), and a thread (`driver`) that owns all of them and both ledgers of `tandem-core`. The
//! process talks to it through [`Fabric`] and [`Pusher`] and hears from it through
//! [`FabricEvents`].
//!
//! **An endpoint per peer.** The receiver opens an *inbox* for each peer, the sender an *outbox*;
//! each has, on every NIC of the device, an endpoint with its own completion queue and address
//! vector, all in that NIC's domain, whose only memory region is the arena. Closing an inbox is the fence: after it nothing of that peer lands, and no
//! other peer notices.
//!
//! What must hold:
//!
//! - no write is posted that reaches outside the arena or the region that the peer named;
//! - a flow is reported as ended once, after its last completion or with its endpoint;
//! - every write carries an immediate, and only immediates say what has arrived;
//! - the thread waits for nobody, and every queue is bounded.
//!
//! Not run for want of hardware: `verbs` and `efa`. Not supported: providers that demand
//! `FI_MR_ENDPOINT` (`cxi`), where a region serves a single endpoint, and those that demand
//! `FI_RX_CQ_DATA` (`efa-direct` on older devices), where immediates consume receive buffers.

mod cpu;
mod credit;
mod describe;
mod driver;
mod error;
mod event;
mod handle;
mod info;
mod open;
mod options;
mod provider;
mod pusher;
mod safe;
mod shared;
pub mod shm;
mod stats;
mod wake;

pub mod bench;

pub use cpu::pin;
pub use credit::QUEUED_WRITES;
pub use describe::{Choice, ProviderFacts, Providers, describe_providers};
pub use driver::command::{Inbox, RegionKey, RemoteRegion, Write};
pub use error::{ArmError, CallError, Errno, FabricError, OpenError};
pub use event::{FabricEvent, FlowEnded};
pub use handle::{Fabric, FabricEvents};
pub use info::{FabricInfo, NicInfo, wire};
pub use libfabric_sys::{LIBRARY_VARIABLE, LoadError, Version};
pub use options::{FabricOptions, IdlePolicy, MAX_COMPLETION_ENTRIES, MAX_NICS};
pub use provider::{Probe, Provider, available_providers, is_software, load, probe};
pub use pusher::Pusher;
pub use stats::{Counter, FabricStats, NicStats};
pub use tandem_core::immediate::{Immediate, SlotKey};
pub use tandem_core::ledger::{Armed, Ended};

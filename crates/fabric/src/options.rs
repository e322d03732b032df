//! What a fabric is opened with.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use tandem_core::immediate::SLOTS;

/// How a [`crate::Fabric`] is opened.
#[derive(Clone, Debug)]
pub struct FabricOptions {
    /// The file to load libfabric from. A process loads one: the first that is asked for. Default
    /// `None`: the file that the variable [`crate::LIBRARY_VARIABLE`] names, or else
    /// `libfabric.so.1`.
    pub library: Option<PathBuf>,
    /// `tcp`, `shm`, `verbs`, `efa`, or libfabric's exact name such as `net`. Default `tcp`,
    /// the native one, which libfabric before 1.18 calls `net`. Not `tcp;ofi_rxm` of 1.17, unless
    /// for measurements: it can die of SIGSEGV when a session breaks off.
    pub provider: String,
    /// Refuse providers that move bytes with the CPU. Default false.
    pub require_rdma: bool,
    /// Which NICs to use, 1 to [`MAX_NICS`]: libfabric's names of domains, `None` for the first that
    /// the provider offers. On software providers a NIC is one more set of endpoints on the same
    /// interface. Default one, the first.
    pub nics: Vec<Option<String>>,
    /// Local address, for providers whose addresses are sockets'. Default 127.0.0.1; `shm` and
    /// `efa` take none.
    pub bind: Option<IpAddr>,
    /// Pins the thread to this CPU. Default: not pinned.
    pub cpu: Option<usize>,
    /// Writes that one outbox has in flight at most. Own credit, since some providers accept
    /// without limit. Default 64, at least 1; less where the provider's transmit queue is shorter.
    pub in_flight_writes: u32,
    /// Entries of an inbox's completion queue, on each NIC, and so the pieces that may be awaited
    /// there at once: nothing protects a queue from overrun, so [`crate::Fabric::arm`] refuses what
    /// could overrun it. 1 to [`MAX_COMPLETION_ENTRIES`]. Default `None`: 65,536 on hardware; on software providers, whose
    /// queues grow by themselves, 1024 to begin with and no bound but the slots'. (An outbox's queue
    /// is twice its window, which bounds what it gets.)
    pub completion_entries: Option<usize>,
    /// Inbound flows at once, 1 to 4096. Default 1024.
    pub slots: u16,
    /// How long a write may be refused with `FI_EAGAIN` while nothing completes, before its outbox
    /// counts as failed. Default 10 s.
    pub post_timeout: Duration,
    /// When the thread stops spinning.
    pub idle: IdlePolicy,
    /// For tests: delays and reorders writes, completions and immediates, at random from this seed.
    /// Default none.
    pub disorder: Option<u64>,
}

/// Entries of a completion queue, at most.
pub const MAX_COMPLETION_ENTRIES: usize = 1 << 24;
/// NICs of one device, at most.
pub const MAX_NICS: usize = 4;

impl Default for FabricOptions {
    fn default() -> Self {
        Self {
            library: None,
            provider: "tcp".into(),
            require_rdma: false,
            nics: vec![None],
            bind: Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            cpu: None,
            in_flight_writes: 64,
            completion_entries: None,
            slots: SLOTS / 4,
            post_timeout: Duration::from_secs(10),
            idle: IdlePolicy::default(),
            disorder: None,
        }
    }
}

/// Spin, then wait: a thread that only spins takes its core from whoever it waits for, a thread
/// that only waits adds a wake-up to every write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdlePolicy {
    /// Spins for this long after the last activity. Default 50 µs.
    pub spin: Duration,
    /// The same while a flow is open or a slot is armed, so that more is to come. Default 50 µs.
    pub open_spin: Duration,
    /// Where the provider has no descriptor to wait on, or one that tells nothing: the shortest sleep
    /// between two looks. Sleeps grow with the silence. Default 50 µs.
    pub first_sleep: Duration,
    /// The longest such sleep while writes are in flight or awaited. Default 1 ms.
    pub busy_sleep: Duration,
    /// The longest such sleep while none is. Whoever calls ends it at once. Default 20 ms.
    pub idle_sleep: Duration,
}

impl Default for IdlePolicy {
    fn default() -> Self {
        Self {
            spin: Duration::from_micros(50),
            open_spin: Duration::from_micros(50),
            first_sleep: Duration::from_micros(50),
            busy_sleep: Duration::from_millis(1),
            idle_sleep: Duration::from_millis(20),
        }
    }
}

impl IdlePolicy {
    /// For a thread with a core to itself: it spins while a flow is open or a slot is armed, until
    /// nothing has moved for a second (a peer or an engine that hangs must not heat a core for ever).
    #[must_use]
    pub fn dedicated() -> Self {
        Self {
            open_spin: Duration::from_secs(1),
            ..Self::default()
        }
    }
}

//! What the two processes tell each other.

use serde::{Deserialize, Serialize};

use super::BenchError;
use super::case::Case;
use crate::driver::command::{RegionKey, RemoteRegion};

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Subject {
    Engine,
    Bare,
    Tcp,
    EngineLatency,
    BareLatency,
    /// An inbox with one armed slot, for writes that another part of the program posts.
    Target {
        /// Pieces until the slot is full.
        expected: u64,
    },
}

/// One message.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) enum Word {
    /// Sender: get ready for this.
    Prepare {
        case: Case,
        subject: Subject,
        /// Whether to check what arrived.
        verify: bool,
        /// For writes in both directions.
        back: Option<Invitation>,
    },
    /// Receiver: write here.
    Ready(Invitation),
    /// Sender: the timed part comes.
    Begin,
    /// Receiver: its clock runs.
    Begun,
    /// Receiver: the part's count is full.
    Full,
    /// Sender: all completions are in.
    Done,
    /// Receiver: processor seconds since `Begun`.
    Spent(f64),
    /// Sender: no more.
    End,
    /// Either: it failed.
    Failed(String),
}

/// Where to write to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Invitation {
    /// One for each NIC.
    pub(super) addresses: Vec<Vec<u8>>,
    /// The arena's base and key, for each NIC.
    pub(super) keys: Vec<(u64, u64)>,
    /// The arena's bytes.
    pub(super) len: u64,
    /// Keys of the armed slots, for the engine.
    pub(super) slots: Vec<u32>,
    /// For TCP.
    pub(super) port: u16,
}

impl Invitation {
    pub(super) fn region(&self) -> RemoteRegion {
        let name = |&(base, key)| RegionKey { base, key };
        RemoteRegion {
            len: self.len,
            keys: self.keys.iter().map(name).collect(),
        }
    }

    /// Whether it names as many NICs and bytes as the case has, so that nothing of it is trusted
    /// further than that.
    pub(super) fn check(&self, case: &Case) -> Result<(), BenchError> {
        let nics = usize::from(case.nics);
        let fits = self.addresses.len() == nics
            && self.keys.len() == nics
            && self.addresses.iter().all(|a| a.len() <= 512)
            && self.len == case.arena_bytes() as u64
            && self
                .keys
                .iter()
                .all(|k| k.0.checked_add(self.len).is_some());
        if fits {
            return Ok(());
        }
        Err(BenchError::Protocol(
            "an invitation that does not fit the case".into(),
        ))
    }
}

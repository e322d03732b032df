//! A type for each identity, so that none is mistaken for another.

use std::fmt;
use std::sync::Arc;

/// A worker's name, unique in its fleet: `prefill-0`, `decode-1`. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(Arc<str>);

/// Why a text is no worker id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("worker id {0:?}: want 1 to 63 letters, digits, '-', '_' or '.'")]
pub struct InvalidWorkerId(pub String);

impl WorkerId {
    /// Takes 1 to 63 letters, digits, `-`, `_` or `.`, so that it can stand in a metric label, a
    /// file name and a certificate.
    pub fn new(name: impl Into<String>) -> Result<Self, InvalidWorkerId> {
        let name = name.into();
        let fits = (1..=63).contains(&name.len())
            && name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
        if fits {
            Ok(Self(name.into()))
        } else {
            Err(InvalidWorkerId(name))
        }
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a worker does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WorkerRole {
    /// Computes prompts and pushes their KV pages to decode workers.
    Prefill,
    /// Receives KV pages and generates tokens.
    Decode,
    /// Does both on the same pages, without a transfer.
    Both,
}

impl WorkerRole {
    /// Whether this worker can compute prompts for others or for itself.
    #[must_use]
    pub const fn prefills(self) -> bool {
        matches!(self, Self::Prefill | Self::Both)
    }

    /// Whether this worker can generate tokens.
    #[must_use]
    pub const fn decodes(self) -> bool {
        matches!(self, Self::Decode | Self::Both)
    }

    /// As written in configuration, labels and messages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Prefill => "prefill",
            Self::Decode => "decode",
            Self::Both => "both",
        }
    }
}

impl fmt::Display for WorkerRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One life of a worker's process: random, drawn by the process when it starts. A restarted worker
/// keeps its [`WorkerId`] and has a new incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u64);

/// One client request, unique over all gateways: random, drawn by the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u128);

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// One sequence in one engine, counted up by the agent; never used twice in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SequenceId(pub u64);

/// All writes of one request from one worker; counted up by the prefill agent; never used twice in
/// a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransferId(pub u64);

/// All writes of one transfer from one source shard to one target shard; counted up by the prefill
/// agent; never used twice in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(pub u64);

/// A fabric endpoint of this process, counted up by the fabric; never used twice in a process.
/// Every peer has its own, so that closing it fences that peer and no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndpointId(pub u64);

/// The number of a KV page in a worker's arena, from 0. The same number names the page in every
/// layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageIndex(pub u32);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_id_is_safe_in_labels_and_file_names() {
        assert_eq!(WorkerId::new("decode-1").unwrap().as_str(), "decode-1");
        for bad in ["", "a b", "../x", "a\"b", &"x".repeat(64)] {
            assert!(WorkerId::new(bad).is_err(), "{bad:?}");
        }
    }
}

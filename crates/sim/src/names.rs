//! Short names for what the model tells apart.

use std::fmt;

use tandem_core::decode::Peer;
use tandem_core::{Incarnation, RequestId, WorkerId, WorkerRole};

/// One life of a worker's process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Life {
    /// Which worker of its role.
    pub worker: u8,
    /// Which of its lives, from 1.
    pub number: u8,
}

impl Life {
    pub(crate) fn first(worker: usize) -> Self {
        Self {
            worker: worker as u8,
            number: 1,
        }
    }

    pub(crate) const fn index(self) -> usize {
        self.worker as usize
    }

    pub(crate) const fn next(self) -> Self {
        Self {
            worker: self.worker,
            number: self.number + 1,
        }
    }

    pub(crate) fn incarnation(self) -> Incarnation {
        Incarnation(self.number.into())
    }

    /// As the core names it.
    pub(crate) fn peer(self, role: WorkerRole) -> Peer {
        Peer {
            worker: worker_id(role, self.index()),
            incarnation: self.incarnation(),
        }
    }

    /// Reads [`Life::peer`].
    pub(crate) fn of(peer: &Peer) -> Self {
        Self {
            worker: index_of(&peer.worker) as u8,
            number: peer.incarnation.0 as u8,
        }
    }
}

impl fmt::Debug for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.worker, self.number)
    }
}

pub(crate) fn worker_id(role: WorkerRole, index: usize) -> WorkerId {
    let id = WorkerId::new(format!("{}{index}", &role.as_str()[..1]));
    id.expect("a letter and a number are a worker id")
}

pub(crate) fn index_of(worker: &WorkerId) -> usize {
    let index = worker.as_str()[1..].parse();
    index.expect("worker ids of the model end in a number")
}

/// One lease asked for: a request, and how many were asked for it before.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attempt {
    /// Which request, from 1.
    pub request: u8,
    /// Which try, from 1.
    pub number: u8,
}

impl Attempt {
    pub(crate) fn id(self) -> RequestId {
        RequestId(self.request.into())
    }
}

impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r{}.{}", self.request, self.number)
    }
}

//! What the gateway knows of each configured worker: for request tasks, metrics and the status page.
//!
//! Written by the worker's own session only. No entry outlives its connection but as a line that
//! says why there is none.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use tandem_core::WorkerId;
use tandem_core::fleet::WorkerFacts;
use tandem_core::layout::WorkerLayout;
use tandem_wire::{Connection, proto};

/// How the gateway stands with a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Being dialled for the first time, or again after it was lost.
    Connecting,
    /// Nobody answers, and why.
    Unreachable(String),
    /// It may not join, and why.
    Refused(String),
    /// In the pool.
    Ready,
    /// In the pool, and takes no new requests.
    Stopping,
}

impl State {
    /// As the status page shows it.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Connecting => "connecting".to_owned(),
            Self::Unreachable(why) => format!("unreachable: {why}"),
            Self::Refused(why) => format!("refused: {why}"),
            Self::Ready => "ready".to_owned(),
            Self::Stopping => "stopping".to_owned(),
        }
    }
}

/// What a worker said of itself.
#[derive(Clone, Debug)]
pub(crate) struct Introduction {
    pub(crate) facts: WorkerFacts,
    pub(crate) provider: proto::Provider,
}

/// One configured address.
#[derive(Clone, Debug)]
pub(crate) struct Seat {
    pub(crate) state: State,
    /// What is known of the worker, also after it was lost or refused.
    pub(crate) worker: Option<Arc<Introduction>>,
    /// Its latest report, for as long as it is connected.
    pub(crate) load: Option<proto::Load>,
}

/// A worker that requests can be sent to.
#[derive(Clone, Debug)]
pub(crate) struct Reachable {
    pub(crate) connection: Connection,
    pub(crate) address: SocketAddr,
    pub(crate) incarnation: tandem_core::Incarnation,
    pub(crate) layout: Arc<WorkerLayout>,
}

/// All configured workers.
#[derive(Debug, Default)]
pub(crate) struct Roster {
    seats: DashMap<SocketAddr, Seat>,
    reachable: DashMap<WorkerId, Reachable>,
}

impl Roster {
    /// An address is configured from now on.
    pub(crate) fn add(&self, address: SocketAddr) {
        self.seats.entry(address).or_insert(Seat {
            state: State::Connecting,
            worker: None,
            load: None,
        });
    }

    /// An address is not configured any more, and its session has ended.
    pub(crate) fn remove(&self, address: SocketAddr) {
        self.seats.remove(&address);
    }

    /// All seats, in the order of their addresses.
    pub(crate) fn seats(&self) -> BTreeMap<SocketAddr, Seat> {
        self.seats
            .iter()
            .map(|seat| (*seat.key(), seat.value().clone()))
            .collect()
    }

    /// A connected worker.
    pub(crate) fn reachable(&self, worker: &WorkerId) -> Option<Reachable> {
        self.reachable
            .get(worker)
            .map(|entry| entry.value().clone())
    }

    /// A worker introduced itself. `false` where one of that name is connected already.
    pub(crate) fn introduce(&self, worker: Arc<Introduction>, reachable: Reachable) -> bool {
        let address = reachable.address;
        let name = worker.facts.worker.clone();
        let free = match self.reachable.entry(name) {
            Entry::Occupied(_) => false,
            Entry::Vacant(entry) => {
                entry.insert(reachable);
                true
            }
        };
        self.change(address, |seat| seat.worker = Some(worker));
        free
    }

    /// A worker in the pool reported.
    pub(crate) fn report(&self, address: SocketAddr, load: proto::Load) {
        self.change(address, |seat| {
            seat.state = if load.stopping {
                State::Stopping
            } else {
                State::Ready
            };
            seat.load = Some(load);
        });
    }

    /// The connection with a worker that had introduced itself has ended.
    pub(crate) fn leave(&self, worker: &WorkerId) {
        self.reachable.remove(worker);
    }

    /// Who is or was there.
    pub(crate) fn worker(&self, address: SocketAddr) -> Option<WorkerId> {
        let seat = self.seats.get(&address)?;
        Some(seat.worker.as_ref()?.facts.worker.clone())
    }

    /// There is no connection, and this is why.
    pub(crate) fn absent(&self, address: SocketAddr, state: State) {
        self.change(address, |seat| {
            seat.state = state;
            seat.load = None;
        });
    }

    fn change(&self, address: SocketAddr, change: impl FnOnce(&mut Seat)) {
        if let Some(mut seat) = self.seats.get_mut(&address) {
            change(&mut seat);
        }
    }
}

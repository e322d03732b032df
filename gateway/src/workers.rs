//! One task for each configured worker: it dials, registers, listens to the worker's reports, and
//! dials again.
//!
//! What must hold: a worker is in the pool only while its session runs, and both the roster and the
//! door hear of the session's end. Every wait of a session is bounded.

mod session;

use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use rand::Rng;
use tandem_wire::Endpoint;
use tandem_wire::task::{Task, spawn};
use tokio::sync::watch;

use crate::roster::State;

pub(crate) use session::{Ended, Party};

/// First and longest pause between two tries to connect; it doubles in between.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// A worker that may not join is asked again so often: it may have been replaced.
const REFUSED_PAUSE: Duration = Duration::from_secs(2);

/// What the configuration wants of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// It belongs to the fleet.
    Stay,
    /// It does not any more: nothing new, and then the end.
    Leave,
    /// Its task has ended for that.
    Gone,
}

/// The sessions with all configured workers.
#[derive(Debug)]
pub(crate) struct Workers {
    party: Party,
    /// Whether addresses of version 6 can be dialled.
    dials_v6: bool,
    kept: tokio::sync::Mutex<HashMap<SocketAddr, Kept>>,
    _dial_in: Task<()>,
}

#[derive(Debug)]
struct Kept {
    wish: watch::Sender<Wish>,
    _task: Task<()>,
}

/// Workers that the gateway's socket cannot reach.
#[derive(Debug, thiserror::Error)]
#[error(
    "[gateway] workers: {0} is an address of version 6, and the gateway was started with none of these: \
     restart it"
)]
pub(crate) struct Undiallable(SocketAddr);

impl Workers {
    /// Nobody is dialled yet. `local` is where the endpoint is bound.
    pub(crate) fn new(party: Party, local: SocketAddr) -> Self {
        let dial_in = spawn("dial-in", turn_away(party.endpoint.clone()));
        Self {
            party,
            dials_v6: local.is_ipv6(),
            kept: tokio::sync::Mutex::default(),
            _dial_in: dial_in,
        }
    }

    /// Whether [`Workers::follow`] can do what it is asked for.
    pub(crate) fn check(&self, addresses: &[SocketAddr]) -> Result<(), Undiallable> {
        let odd = addresses.iter().find(|a| a.is_ipv6() && !self.dials_v6);
        odd.map_or(Ok(()), |address| Err(Undiallable(*address)))
    }

    /// Keeps a session with each of these, and lets the others leave: they get nothing new, and their
    /// sessions end with their last request.
    pub(crate) async fn follow(&self, addresses: &[SocketAddr]) {
        let mut kept = self.kept.lock().await;
        kept.retain(|_, kept| *kept.wish.borrow() != Wish::Gone);
        for address in addresses {
            let stays = kept.get(address).is_some_and(|kept| {
                // One that is about to leave stays, unless it has just left.
                kept.wish
                    .send_if_modified(|wish| replace(wish, Wish::Leave, Wish::Stay));
                *kept.wish.borrow() == Wish::Stay
            });
            if stays {
                continue;
            }
            self.party.roster.add(*address);
            let wish = watch::Sender::new(Wish::Stay);
            let task = spawn("worker", keep(self.party.clone(), *address, wish.clone()));
            kept.insert(*address, Kept { wish, _task: task });
        }
        for (address, kept) in kept.iter() {
            if !addresses.contains(address) {
                kept.wish
                    .send_if_modified(|wish| replace(wish, Wish::Stay, Wish::Leave));
            }
        }
    }
}

/// Whether it was `from` and is `to` now.
fn replace(wish: &mut Wish, from: Wish, to: Wish) -> bool {
    let is = *wish == from;
    if is {
        *wish = to;
    }
    is
}

/// The local address from which all of `workers` can be dialled.
pub(crate) fn local_address(workers: &[SocketAddr]) -> SocketAddr {
    // A socket of version 6 reaches addresses of version 4 too.
    if workers.iter().any(SocketAddr::is_ipv6) {
        (Ipv6Addr::UNSPECIFIED, 0).into()
    } else {
        (Ipv4Addr::UNSPECIFIED, 0).into()
    }
}

/// Workers do not dial gateways.
async fn turn_away(endpoint: Endpoint) {
    while let Some(incoming) = endpoint.accept().await {
        drop(incoming);
    }
}

async fn keep(party: Party, address: SocketAddr, wish: watch::Sender<Wish>) {
    let mut pause = PAUSES.0;
    let mut last_word = String::new();
    loop {
        let ended = session::run(&party, address, wish.subscribe()).await;
        let wait = match &ended {
            Ended::Unreachable(_) => {
                let wait = pause;
                pause = (pause * 2).min(PAUSES.1);
                wait
            }
            Ended::Refused(_) => REFUSED_PAUSE,
            Ended::Lost { .. } => {
                pause = PAUSES.0;
                pause
            }
            Ended::Removed => {
                // Whoever wants it back by now finds it there, or gone: never half gone.
                if wish.send_if_modified(|wish| {
                    let leaves = replace(wish, Wish::Leave, Wish::Gone);
                    if leaves {
                        party.roster.remove(address);
                    }
                    leaves
                }) {
                    tracing::info!(%address, "worker removed");
                    return;
                }
                Duration::ZERO
            }
            Ended::Closed => return,
        };
        let word = match (&ended, party.roster.worker(address)) {
            (Ended::Unreachable(why), Some(worker)) => {
                format!("worker {worker} unreachable: {why}")
            }
            _ => ended.to_string(),
        };
        // The same word every two seconds helps nobody; but one that had joined is lost each time anew.
        if word != last_word || matches!(ended, Ended::Lost { .. }) {
            tracing::warn!(%address, "{word}");
        }
        last_word = word;
        party.roster.absent(address, state(ended));
        let mut leaves = wish.subscribe();
        tokio::select! {
            () = tokio::time::sleep(jittered(wait)) => {}
            () = session::asked_to_leave(&mut leaves) => {}
        }
    }
}

fn state(ended: Ended) -> State {
    match ended {
        Ended::Unreachable(why) => State::Unreachable(why),
        Ended::Refused(why) => State::Refused(why),
        Ended::Lost { .. } | Ended::Removed | Ended::Closed => State::Connecting,
    }
}

/// Between three quarters of `pause` and all of it, so that gateways do not dial in step.
fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(rand::rng().random_range(0.75..=1.0))
}

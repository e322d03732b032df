//! One task for each configured worker: it dials, registers, listens to the worker's reports, and
//! dials again.
//!
//! What must hold: a worker is in the pool only while its session runs, and both the roster and the
//! door hear of the session's end. Every wait of a session is bounded.

mod session;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rand::Rng;
use tandem_core::Incarnation;
use tandem_wire::Endpoint;
use tandem_wire::task::{Task, spawn};

use crate::door::Door;
use crate::roster::{Roster, State};

pub(crate) use session::{Ended, Party};

/// First and longest pause between two tries to connect; it doubles in between.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// A worker that may not join is asked again so often: it may have been replaced.
const REFUSED_PAUSE: Duration = Duration::from_secs(2);

/// Starts a task for each address, and one that lets nobody dial in. They end when their handles are
/// dropped.
pub(crate) fn start(
    addresses: &[SocketAddr],
    endpoint: &Endpoint,
    name: &str,
    door: &Door,
    roster: &Arc<Roster>,
) -> Vec<Task<()>> {
    let party = Party {
        endpoint: endpoint.clone(),
        name: name.to_owned(),
        incarnation: Incarnation(rand::random()),
        door: door.clone(),
        roster: Arc::clone(roster),
    };
    let mut tasks: Vec<_> = addresses
        .iter()
        .map(|address| spawn("worker", keep(party.clone(), *address)))
        .collect();
    tasks.push(spawn("dial-in", turn_away(endpoint.clone())));
    tasks
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

async fn keep(party: Party, address: SocketAddr) {
    let mut pause = PAUSES.0;
    let mut last_word = String::new();
    loop {
        let ended = session::run(&party, address).await;
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
            Ended::Closed => return,
        };
        let word = ended.to_string();
        // The same word every two seconds helps nobody.
        if word != last_word {
            tracing::warn!(%address, "{word}");
        }
        last_word = word;
        party.roster.absent(address, state(ended));
        tokio::time::sleep(jittered(wait)).await;
    }
}

fn state(ended: Ended) -> State {
    match ended {
        Ended::Unreachable(why) => State::Unreachable(why),
        Ended::Refused(why) => State::Refused(why),
        Ended::Lost { .. } | Ended::Closed => State::Connecting,
    }
}

/// Between three quarters of `pause` and all of it, so that gateways do not dial in step.
fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(rand::rng().random_range(0.75..=1.0))
}

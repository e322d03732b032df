//! One request's way through the fleet: a pair, a lease, and the decode worker's messages.
//!
//! What must hold: every wait ends at the request's deadline (I6); on whatever way the request ends,
//! the decode worker is told so and the door too.

mod farewell;
mod replies;
mod stream;

use std::time::Duration;

use bytes::Bytes;
use tandem_core::WorkerId;
use tandem_core::front_door::{Again, Rejection};
use tandem_core::pairing::Pair;
use tandem_wire::proto;
use tandem_wire::proto::generate_reply::Kind;
use tandem_wire::proto::refusal::Reason;
use tokio::time::{Instant, timeout_at};

use crate::api::error::ApiError;
use crate::api::request::Ask;
use crate::door::{Answer, Closed, RETRY_AFTER, Ticket};
use crate::journal::Journal;
use crate::roster::{Reachable, Roster};

pub(crate) use farewell::Farewells;
pub(crate) use stream::WorkerStream;

/// Before a pair is asked again that refused for another reason than room; it doubles each time.
const ELSEWHERE_PAUSE: Duration = Duration::from_millis(20);
/// The door keeps deadlines itself and says why; this waits a little longer for its word.
const DOOR_GRACE: Duration = Duration::from_millis(250);

/// What requests need of the gateway.
pub(crate) struct Fleet<'a> {
    pub(crate) roster: &'a Roster,
    pub(crate) farewells: &'a Farewells,
}

/// One message of an answer.
#[derive(Debug)]
pub(crate) enum Event {
    Token(proto::Token),
    Finished(proto::Finished),
}

/// A request whose lease is granted.
#[derive(Debug)]
pub(crate) struct Generation {
    stream: WorkerStream,
    deadline: Instant,
    timeout: Duration,
    // Dropped after the stream: the worker hears of the end first.
    _ticket: Ticket,
}

/// Finds a pair that takes the request on.
pub(crate) async fn begin(
    fleet: Fleet<'_>,
    ticket: Ticket,
    ask: &Ask,
    new_tokens: u32,
    timeout: (Instant, Duration),
    journal: &mut Journal,
) -> Result<Generation, ApiError> {
    let (deadline, whole) = timeout;
    let prompt = u32::try_from(ask.tokens.len()).unwrap_or(u32::MAX);
    journal.queued();
    let mut answer = wait(ticket.submit(prompt, new_tokens, deadline), timeout).await?;
    let mut pause = ELSEWHERE_PAUSE;
    let mut last = None;
    loop {
        let pair = answer.map_err(|why| turned_away(&why, last))?;
        journal.paired(&pair);
        let asked = reserve(&fleet, &pair, &ticket, ask, new_tokens, deadline);
        let no = match timeout_at(deadline, asked).await {
            Err(_) => return Err(ApiError::timeout(whole.as_secs_f32())),
            Ok(Ok(stream)) => {
                ticket.reserved().await;
                journal.reserved();
                return Ok(Generation {
                    stream,
                    deadline,
                    timeout: whole,
                    _ticket: ticket,
                });
            }
            Ok(Err(NotReserved::Failed(error))) => return Err(error),
            Ok(Err(NotReserved::Refused(again, message))) => (again, message),
        };
        let (again, message) = no;
        tracing::debug!(request = %ticket.request(), decode = %pair.decode, ?again, message,
            "not taken on");
        if again == Again::Elsewhere {
            let _ = timeout_at(deadline, tokio::time::sleep(pause)).await;
            pause *= 2;
        }
        last = Some(again);
        answer = wait(ticket.refused(again, message), timeout).await?;
    }
}

/// Waits for the door's word.
async fn wait(
    answer: impl Future<Output = Result<Answer, Closed>>,
    (deadline, whole): (Instant, Duration),
) -> Result<Answer, ApiError> {
    match timeout_at(deadline + DOOR_GRACE, answer).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(closed)) => Err(ApiError::busy(
            "stopping",
            format!("{closed}."),
            RETRY_AFTER,
        )),
        Err(_) => Err(ApiError::timeout(whole.as_secs_f32())),
    }
}

fn turned_away(why: &Rejection, last: Option<Again>) -> ApiError {
    match (why, last) {
        (Rejection::Refused(message), Some(Again::Never)) => ApiError::bad(
            "request_refused",
            format!("The worker refuses the request: {message}."),
        ),
        _ => ApiError::rejection(why, RETRY_AFTER),
    }
}

enum NotReserved {
    /// Nothing was started.
    Refused(Again, String),
    /// It was taken on, and failed.
    Failed(ApiError),
}

/// Asks the decode worker of `pair` for the lease.
async fn reserve(
    fleet: &Fleet<'_>,
    pair: &Pair,
    ticket: &Ticket,
    ask: &Ask,
    new_tokens: u32,
    deadline: Instant,
) -> Result<WorkerStream, NotReserved> {
    let elsewhere = |message: String| NotReserved::Refused(Again::Elsewhere, message);
    let find = |worker: &WorkerId| {
        let gone = || elsewhere(format!("{worker} has just left"));
        fleet.roster.reachable(worker).ok_or_else(gone)
    };
    let decode = find(&pair.decode)?;
    let prefill = pair
        .prefill
        .as_ref()
        .map(|worker| Ok(peer(worker, &find(worker)?)))
        .transpose()?;
    let generate = proto::Generate {
        request: tandem_wire::convert::request_bytes(ticket.request()),
        tokens: ask.tokens.to_vec(),
        generated: 0,
        sampling: Some(ask.sampling.clone()),
        stop: Some(proto::Stop {
            max_tokens: new_tokens,
            ..ask.stop.clone()
        }),
        prefill,
        time_left_ms: time_left_ms(deadline),
        cache_salt: Bytes::new(),
    };
    let lost = |error: tandem_wire::ChannelError| elsewhere(format!("{}: {error}", pair.decode));
    let farewells = fleet.farewells.clone();
    let mut stream = WorkerStream::open(&decode.connection, generate, farewells)
        .await
        .map_err(lost)?;
    match stream.next().await.map_err(lost)? {
        Kind::Reserved(_) => Ok(stream),
        Kind::Refused(refusal) => Err(NotReserved::Refused(
            again(refusal.reason()),
            refusal.message,
        )),
        Kind::Failed(failure) => Err(NotReserved::Failed(ApiError::failure(
            &failure,
            RETRY_AFTER,
        ))),
        Kind::Started(_) | Kind::Token(_) | Kind::Finished(_) => Err(elsewhere(format!(
            "{} answers without a lease",
            pair.decode
        ))),
    }
}

fn peer(worker: &WorkerId, reachable: &Reachable) -> proto::Peer {
    proto::Peer {
        worker: worker.to_string(),
        incarnation: reachable.incarnation.0,
        address: reachable.address.to_string(),
        geometry: Some(proto::Geometry::from(&*reachable.layout)),
    }
}

/// At least 1: a worker takes 0 for a deadline that has passed.
fn time_left_ms(deadline: Instant) -> u64 {
    let left = deadline.saturating_duration_since(Instant::now());
    u64::try_from(left.as_millis()).unwrap_or(u64::MAX).max(1)
}

/// What a refusal means for the next try.
const fn again(reason: Reason) -> Again {
    match reason {
        Reason::NoRoom => Again::WhenRoom,
        Reason::Busy
        | Reason::StalePeer
        | Reason::Mismatch
        | Reason::Stopping
        | Reason::Unspecified => Again::Elsewhere,
        Reason::NeverFits | Reason::Invalid => Again::Never,
    }
}

impl Generation {
    /// The next message of the answer. Cancel-safe.
    pub(crate) async fn next(&mut self, journal: &mut Journal) -> Result<Event, ApiError> {
        loop {
            let reply = match timeout_at(self.deadline, self.stream.next()).await {
                Ok(Ok(reply)) => reply,
                Ok(Err(error)) => {
                    let message = format!("The decode worker was lost: {error}.");
                    return Err(ApiError::worker("decode_lost", message));
                }
                Err(_) => return Err(ApiError::timeout(self.timeout.as_secs_f32())),
            };
            match reply {
                Kind::Started(started) => journal.started(&started),
                Kind::Token(token) => {
                    journal.token();
                    return Ok(Event::Token(token));
                }
                Kind::Finished(finished) => return Ok(Event::Finished(finished)),
                Kind::Failed(failure) => return Err(ApiError::failure(&failure, RETRY_AFTER)),
                Kind::Reserved(_) | Kind::Refused(_) => {
                    let message = "The decode worker sent a message that makes no sense here.";
                    return Err(ApiError::worker("protocol_error", message));
                }
            }
        }
    }
}

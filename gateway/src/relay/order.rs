//! What a request needs wherever it is served, and the search for a pair that serves it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tandem_core::WorkerId;
use tandem_core::front_door::{Again, Blame, Rejection};
use tandem_core::pairing::Pair;
use tandem_text::TextModel;
use tandem_wire::proto;
use tandem_wire::proto::generate_reply::Kind;
use tandem_wire::proto::refusal::Reason;
use tokio::time::{Instant, timeout_at};

use super::{Farewells, WorkerStream};
use crate::api::error::ApiError;
use crate::door::{Answer, Closed, Rejected, Ticket};
use crate::metrics::Metrics;
use crate::requests::Way;
use crate::roster::{Reachable, Roster};

/// Before a pair is asked again that refused for another reason than room; it doubles each time.
const ELSEWHERE_PAUSE: Duration = Duration::from_millis(20);
/// The door keeps deadlines itself and says why; this waits a little longer for its word.
const DOOR_GRACE: Duration = Duration::from_millis(250);

/// One request's, until it ends.
pub(super) struct Order {
    pub(super) roster: Arc<Roster>,
    pub(super) farewells: Farewells,
    pub(super) metrics: Arc<Metrics>,
    pub(super) text: Arc<TextModel>,
    pub(super) way: Way,
    pub(super) deadline: Instant,
    pub(super) timeout: Duration,
    /// As the next worker is asked: the prompt, then the tokens that have come.
    pub(super) generate: proto::Generate,
    pub(super) ticket: Ticket,
}

/// A pair that was asked.
pub(super) struct Tried {
    pub(super) pair: Pair,
    pub(super) asked: Instant,
}

/// What the decode worker that granted the lease says.
pub(super) struct Found {
    pub(super) stream: WorkerStream,
}

/// A failure after which another pair may do better.
pub(super) struct Setback {
    pub(super) blame: Blame,
    /// What the client is told where none does.
    pub(super) error: ApiError,
}

enum NotReserved {
    /// Nothing was started.
    Refused(Again, String),
    /// It was taken on, and failed.
    Failed(proto::Failure),
}

impl Order {
    /// Finds a pair for a request that has just come. `tried` is the pair that was asked last.
    pub(super) async fn first(
        &self,
        submitted: impl Future<Output = Result<Answer, Closed>>,
        tried: &mut Option<Tried>,
    ) -> Result<Found, ApiError> {
        let answer = self.wait(submitted).await?;
        self.seek(answer, None, tried).await
    }

    /// Finds another pair after a setback.
    pub(super) async fn again(
        &self,
        setback: Setback,
        tried: &mut Option<Tried>,
    ) -> Result<Found, ApiError> {
        let answer = self.set_back(&setback).await?;
        self.seek(answer, Some(setback.error), tried).await
    }

    /// Asks pairs until one has granted the lease. `setback`: what the client is told where none does.
    async fn seek(
        &self,
        mut answer: Answer,
        mut setback: Option<ApiError>,
        tried: &mut Option<Tried>,
    ) -> Result<Found, ApiError> {
        let mut pause = ELSEWHERE_PAUSE;
        let mut last = None;
        loop {
            let pair = match answer {
                Ok(pair) => pair,
                Err(rejected) => {
                    let own = || self.turned_away(&rejected, last);
                    return Err(setback.unwrap_or_else(own));
                }
            };
            *tried = Some(Tried {
                pair: pair.clone(),
                asked: Instant::now(),
            });
            self.way.asked(&pair);
            let asked = self.reserve(&pair);
            match timeout_at(self.deadline, asked).await {
                Err(_) => return Err(self.late()),
                Ok(Ok((stream, pages))) => {
                    self.way.reserved(pages);
                    self.ticket.reserved().await;
                    return Ok(Found { stream });
                }
                Ok(Err(NotReserved::Failed(failure))) => {
                    let next = Setback::of(&failure)?;
                    answer = self.set_back(&next).await?;
                    setback = Some(next.error);
                }
                Ok(Err(NotReserved::Refused(again, message))) => {
                    tracing::debug!(request = %self.ticket.request(), decode = %pair.decode,
                        ?again, message, "not taken on");
                    self.way.not_taken(&message);
                    if again == Again::Elsewhere {
                        let _ = timeout_at(self.deadline, tokio::time::sleep(pause)).await;
                        pause *= 2;
                    }
                    last = Some(again);
                    answer = self.wait(self.ticket.refused(again, message)).await?;
                }
            }
        }
    }

    /// Asks the door for another pair.
    async fn set_back(&self, setback: &Setback) -> Result<Answer, ApiError> {
        let generated = self.generate.generated;
        self.way.not_taken(&setback.error.code);
        tracing::debug!(request = %self.ticket.request(), blame = setback.blame.as_str(),
            code = setback.error.code, generated, "failed");
        let answer = self
            .wait(self.ticket.failed(setback.blame, generated))
            .await?;
        if answer.is_ok() {
            self.metrics.admission.moved(setback.blame, generated > 0);
        }
        Ok(answer)
    }

    /// Waits for the door's word.
    async fn wait(
        &self,
        answer: impl Future<Output = Result<Answer, Closed>>,
    ) -> Result<Answer, ApiError> {
        match timeout_at(self.deadline + DOOR_GRACE, answer).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(closed)) => Err(closed.into()),
            Err(_) => Err(self.late()),
        }
    }

    pub(super) fn late(&self) -> ApiError {
        ApiError::timeout(self.timeout.as_secs_f32())
    }

    fn turned_away(&self, rejected: &Rejected, last: Option<Again>) -> ApiError {
        let why = &rejected.why;
        self.metrics.admission.rejected(self.ticket.class(), why);
        self.way.turned_away(&why.to_string());
        match (why, last) {
            (Rejection::Refused(message), Some(Again::Never)) => ApiError::bad(
                "request_refused",
                format!("The worker refuses the request: {message}."),
            ),
            _ => ApiError::rejection(why, rejected.retry_after),
        }
    }

    /// Asks the decode worker of `pair` for the lease, and learns how many pages it has.
    async fn reserve(&self, pair: &Pair) -> Result<(WorkerStream, u32), NotReserved> {
        let elsewhere = |message: String| NotReserved::Refused(Again::Elsewhere, message);
        let find = |worker: &WorkerId| {
            let gone = || elsewhere(format!("{worker} has just left"));
            self.roster.reachable(worker).ok_or_else(gone)
        };
        let decode = find(&pair.decode)?;
        let prefill = pair
            .prefill
            .as_ref()
            .map(|worker| Ok(peer(worker, &find(worker)?)))
            .transpose()?;
        let generate = proto::Generate {
            prefill,
            time_left_ms: time_left_ms(self.deadline),
            ..self.generate.clone()
        };
        let lost =
            |error: tandem_wire::ChannelError| elsewhere(format!("{}: {error}", pair.decode));
        let farewells = self.farewells.clone();
        let mut stream = WorkerStream::open(&decode.connection, generate, farewells)
            .await
            .map_err(lost)?;
        match stream.next().await.map_err(lost)? {
            Kind::Reserved(reserved) => Ok((stream, reserved.pages)),
            Kind::Refused(refusal) => Err(NotReserved::Refused(
                again(refusal.reason()),
                refusal.message,
            )),
            Kind::Failed(failure) => Err(NotReserved::Failed(failure)),
            Kind::Started(_) | Kind::Token(_) | Kind::Finished(_) => Err(elsewhere(format!(
                "{} answers without a lease",
                pair.decode
            ))),
        }
    }
}

impl Setback {
    /// A worker's failure, where another pair may do better; what the client is told where not.
    pub(super) fn of(failure: &proto::Failure) -> Result<Self, ApiError> {
        use proto::failure::Blame as Theirs;
        let error = ApiError::failure(failure);
        let blame = match failure.blame() {
            _ if !failure.retry_elsewhere => return Err(error),
            Theirs::Prefill => Blame::Prefill,
            Theirs::Decode => Blame::Decode,
            Theirs::Fabric => Blame::Fabric,
            Theirs::Client | Theirs::Gateway | Theirs::Unspecified => return Err(error),
        };
        Ok(Self { blame, error })
    }
}

/// The request as its first worker is asked.
pub(super) fn generate(
    ticket: &Ticket,
    ask: &crate::api::request::Ask,
    new_tokens: u32,
) -> proto::Generate {
    proto::Generate {
        request: tandem_wire::convert::request_bytes(ticket.request()),
        tokens: ask.tokens.to_vec(),
        generated: 0,
        sampling: Some(ask.sampling.clone()),
        stop: Some(proto::Stop {
            max_tokens: new_tokens,
            ..ask.stop.clone()
        }),
        prefill: None,
        time_left_ms: 0,
        cache_salt: Bytes::new(),
        trace: String::new(),
        trace_state: String::new(),
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

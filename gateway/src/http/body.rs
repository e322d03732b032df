//! Reading a request's body, inflated where it is gzip'ed, up to the limit.

use std::error::Error;
use std::io;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, EXPECT, ORIGIN};
use http::{HeaderMap, Request, StatusCode};
use http_body::Body;
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use tokio::task::yield_now;
use tokio::time::{Duration, Instant, timeout_at};

use super::http1::Refusal;
use super::inflate::{Inflate, InflateError, STEP};
use super::pace::{Pace, Paced};
use super::room::{BodyRoom, Held, NoRoom};
use crate::api::error::{ApiError, RETRY_AFTER};

/// What is over the limit is read and thrown away for so long: a client that is still writing when
/// the connection closes never sees the reply.
const DISCARD: Duration = Duration::from_secs(5);

/// Every request's body, whatever it came over.
pub(crate) type RequestBody = UnsyncBoxBody<Bytes, io::Error>;

/// A body of hyper's, which has to come at some pace.
pub(crate) fn incoming(body: Incoming, pace: Pace) -> RequestBody {
    Paced::new(body.map_err(io_error), pace).boxed_unsync()
}

/// What the socket said where it did, which hyper keeps inside.
fn io_error(error: hyper::Error) -> io::Error {
    let mut source = error.source();
    while let Some(inner) = source {
        if let Some(inner) = inner.downcast_ref::<io::Error>() {
            return match refusal(inner) {
                Some(refusal) => io::Error::new(inner.kind(), refusal),
                None => io::Error::new(inner.kind(), error),
            };
        }
        source = inner.source();
    }
    io::Error::other(error)
}

fn refusal(error: &io::Error) -> Option<Refusal> {
    error.get_ref()?.downcast_ref::<Refusal>().copied()
}

/// The whole body, which is JSON; 503 where the bodies of all clients take too much, 413 where it is over `limit` bytes, whatever its headers say.
pub(crate) async fn read(
    request: Request<RequestBody>,
    limit: u64,
    deadline: Instant,
) -> Result<Bytes, ApiError> {
    let (head, mut body) = request.into_parts();
    let gzip = is_gzip(&head.headers)?;
    json(&head.headers)?;
    // A client that waits for our word before it sends the body gets the reply instead.
    let announced = body.size_hint().lower();
    if announced > limit {
        if !waits(&head.headers) {
            discard(&mut body, deadline).await;
        }
        return Err(ApiError::too_large(limit));
    }
    let room = head.extensions.get::<Arc<BodyRoom>>();
    // A request that came by no layer has all the room that it may take.
    let mut held = room.map_or_else(|| BodyRoom::new(limit).hold(), BodyRoom::hold);
    let collecting = async {
        if gzip {
            inflate(&mut body, limit, &mut held).await
        } else {
            collect(&mut body, limit, &mut held).await
        }
    };
    match timeout_at(deadline, collecting).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(NotRead::TooLarge)) => {
            discard(&mut body, deadline).await;
            Err(ApiError::too_large(limit))
        }
        Ok(Err(NotRead::NoRoom)) => {
            let message = "Too many request bodies are being read.".to_owned();
            Err(ApiError::busy("overloaded", message, RETRY_AFTER))
        }
        Ok(Err(NotRead::Gzip(why))) => {
            discard(&mut body, deadline).await;
            let message = format!("The body is not what its Content-Encoding says, gzip: {why}.");
            Err(ApiError::bad("invalid_encoding", message))
        }
        Ok(Err(NotRead::Broken(error))) => Err(broken(&error)),
        Err(_) => Err(ApiError::body("The body did not come in time.")),
    }
}

fn broken(error: &io::Error) -> ApiError {
    if let Some(refusal) = refusal(error) {
        return refusal.error();
    }
    ApiError::body(match error.kind() {
        io::ErrorKind::TimedOut => format!("The body came too slowly: {error}."),
        _ => format!("The body broke off: {error}."),
    })
}

/// Whether the body is gzip'ed; refused where it is anything else. `deflate` stands for two different
/// forms, and nobody needs it.
fn is_gzip(headers: &HeaderMap) -> Result<bool, ApiError> {
    let mut gzip = false;
    let values = headers.get_all(CONTENT_ENCODING).iter();
    let names = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    for name in names.map(<[u8]>::trim_ascii) {
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        if (is("gzip") || is("x-gzip")) && !gzip {
            gzip = true;
        } else if !is("identity") && !name.is_empty() {
            return Err(ApiError {
                status: StatusCode::UNSUPPORTED_MEDIA_TYPE,
                ..ApiError::bad(
                    "unsupported_encoding",
                    "The body's Content-Encoding is not understood: want gzip, or none.",
                )
            });
        }
    }
    Ok(gzip)
}

/// Refuses what says of itself that it is something else than JSON. What says nothing is JSON; so is a form
/// but a page's, since `curl -d` calls everything one.
fn json(headers: &HeaderMap) -> Result<(), ApiError> {
    let Some(value) = headers.get(CONTENT_TYPE) else {
        return Ok(());
    };
    let kind = value.to_str().unwrap_or("?");
    let kind = kind
        .split(';')
        .next()
        .unwrap_or(kind)
        .trim()
        .to_ascii_lowercase();
    let form = kind == "application/x-www-form-urlencoded" && !headers.contains_key(ORIGIN);
    if form || kind.is_empty() || kind == "application/json" || kind.ends_with("+json") {
        return Ok(());
    }
    let shown: String = kind.chars().take(64).collect();
    let message = format!("The body's Content-Type is {shown}: want application/json, or none.");
    Err(ApiError {
        status: StatusCode::UNSUPPORTED_MEDIA_TYPE,
        ..ApiError::bad("unsupported_media_type", message)
    })
}

fn waits(headers: &HeaderMap) -> bool {
    headers
        .get(EXPECT)
        .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

/// Why there is no body.
enum NotRead {
    TooLarge,
    NoRoom,
    Gzip(String),
    Broken(io::Error),
}

impl From<InflateError> for NotRead {
    fn from(error: InflateError) -> Self {
        match error {
            InflateError::TooLarge => Self::TooLarge,
            InflateError::Malformed(why) => Self::Gzip(why),
        }
    }
}

impl From<NoRoom> for NotRead {
    fn from(NoRoom: NoRoom) -> Self {
        Self::NoRoom
    }
}

/// The next bytes; `None` at the end.
async fn data(body: &mut RequestBody) -> Result<Option<Bytes>, NotRead> {
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame.map_err(NotRead::Broken)?.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

async fn collect(body: &mut RequestBody, limit: u64, held: &mut Held) -> Result<Bytes, NotRead> {
    let mut collected = BytesMut::new();
    while let Some(data) = data(body).await? {
        let length = (collected.len() + data.len()) as u64;
        if length > limit {
            return Err(NotRead::TooLarge);
        }
        held.grow(length)?;
        collected.extend_from_slice(&data);
    }
    Ok(collected.freeze())
}

/// Gives way to others after each step: a few bytes may be worth a lot of work.
async fn inflate(body: &mut RequestBody, limit: u64, held: &mut Held) -> Result<Bytes, NotRead> {
    let mut inflate = Inflate::new(limit);
    let mut compressed = 0;
    while let Some(data) = data(body).await? {
        compressed += data.len() as u64;
        if compressed > limit {
            return Err(NotRead::TooLarge);
        }
        for step in data.chunks(STEP) {
            inflate.write(step)?;
            held.grow(inflate.kept())?;
            yield_now().await;
        }
    }
    Ok(inflate.finish()?.into())
}

async fn discard(body: &mut RequestBody, deadline: Instant) {
    let until = deadline.min(Instant::now() + DISCARD);
    let rest = async { while let Some(Ok(_)) = body.frame().await {} };
    let _ = timeout_at(until, rest).await;
}

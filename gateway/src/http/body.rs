//! Reading a request's body, up to the limit.

use bytes::{Bytes, BytesMut};
use http::header::EXPECT;
use http::{HeaderMap, Request};
use http_body::Body;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::{Duration, Instant, timeout_at};

use crate::api::error::ApiError;

/// What is over the limit is read and thrown away for so long: a client that is still writing when
/// the connection closes never sees the reply.
const DISCARD: Duration = Duration::from_secs(5);

/// The whole body; 413 where it is over `limit` bytes, whatever its headers say.
pub(crate) async fn read(
    request: Request<Incoming>,
    limit: u64,
    deadline: Instant,
) -> Result<Bytes, ApiError> {
    let (head, mut body) = request.into_parts();
    // A client that waits for our word before it sends the body gets the reply instead.
    let announced = body.size_hint().lower();
    if announced > limit {
        if !waits(&head.headers) {
            discard(&mut body, deadline).await;
        }
        return Err(ApiError::too_large(limit));
    }
    match timeout_at(deadline, collect(&mut body, limit)).await {
        Ok(Ok(Some(bytes))) => Ok(bytes),
        Ok(Ok(None)) => {
            discard(&mut body, deadline).await;
            Err(ApiError::too_large(limit))
        }
        Ok(Err(error)) => Err(ApiError::body(format!("The body broke off: {error}."))),
        Err(_) => Err(ApiError::body("The body did not come in time.")),
    }
}

fn waits(headers: &HeaderMap) -> bool {
    headers
        .get(EXPECT)
        .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

/// `None` where there is more than `limit`.
async fn collect(body: &mut Incoming, limit: u64) -> Result<Option<Bytes>, hyper::Error> {
    let mut collected = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else {
            continue;
        };
        if (collected.len() + data.len()) as u64 > limit {
            return Ok(None);
        }
        collected.extend_from_slice(&data);
    }
    Ok(Some(collected.freeze()))
}

async fn discard(body: &mut Incoming, deadline: Instant) {
    let until = deadline.min(Instant::now() + DISCARD);
    let rest = async { while let Some(Ok(_)) = body.frame().await {} };
    let _ = timeout_at(until, rest).await;
}

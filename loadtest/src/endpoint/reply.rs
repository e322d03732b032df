//! An answer: its head, and its body as it comes.

use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use super::HttpError;
use super::connection::Connection;
use super::shared::Seat;

/// What an answer comes over.
pub(super) enum Carrier {
    /// A connection of its own.
    Own(Connection),
    /// A stream of one that others use too. Held for its drop.
    Shared(#[expect(dead_code, reason = "dropped with the reply, which frees the seat")] Seat),
}

/// An answer whose head has come.
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// When there was a connection to send the request on.
    pub(crate) connected: Instant,
    body: Incoming,
    carrier: Carrier,
    ended: bool,
}

impl Reply {
    pub(super) fn new(
        response: http::Response<Incoming>,
        connected: Instant,
        carrier: Carrier,
    ) -> Self {
        let (parts, body) = response.into_parts();
        Self {
            status: parts.status,
            headers: parts.headers,
            connected,
            body,
            carrier,
            ended: false,
        }
    }

    /// The next piece of the body; `None` at its end.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, HttpError> {
        loop {
            let frame = self.body.frame();
            let frame = match &mut self.carrier {
                Carrier::Own(connection) => connection.driver().during(frame).await,
                Carrier::Shared(_) => frame.await,
            };
            match frame.transpose()? {
                None => {
                    self.ended = true;
                    return Ok(None);
                }
                // What is no data are trailers.
                Some(frame) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    /// The rest of the body, up to a limit.
    pub(crate) async fn rest(&mut self, limit: usize) -> Result<Vec<u8>, HttpError> {
        let mut bytes = Vec::new();
        while let Some(piece) = self.next().await? {
            bytes.extend_from_slice(&piece);
            if bytes.len() > limit {
                return Err(HttpError::TooLong(limit));
            }
        }
        Ok(bytes)
    }

    /// Its connection, where another request may use it.
    pub(super) fn into_connection(self) -> Option<Connection> {
        match self.carrier {
            Carrier::Own(connection) if self.ended => connection.still_open(),
            _ => None,
        }
    }
}

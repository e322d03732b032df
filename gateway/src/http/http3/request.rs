//! One request over HTTP/3, and its answer.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use h3::error::{Code, StreamError};
use h3::server::{RequestResolver, RequestStream};
use http::header::{CONTENT_LENGTH, HeaderValue};
use http::{HeaderMap, Method, Request, Response};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::time::{Instant, timeout};
use tower::ServiceExt;

use super::resets::Ended;
use super::streams::{self, Recv, Stopped, Streams, Valve};
use crate::http::catch::CaughtBody;
use crate::http::connection::ConnectionLimits;
use crate::http::http1::Refusal;
use crate::http::layers::Answers;
use crate::http::link::Link;
use crate::http::pace::Paced;
use crate::http::reply::Body;

/// What all requests of a connection share.
#[derive(Clone)]
pub(super) struct Edge<S> {
    pub(super) service: S,
    pub(super) link: Arc<Link>,
    pub(super) limits: ConnectionLimits,
}

/// Answers it. Ends when its client has the answer or wants it no longer.
pub(super) async fn answer<S: Answers>(
    resolver: RequestResolver<streams::Connection, Bytes>,
    streams: Arc<Streams>,
    edge: Edge<S>,
) -> Ended {
    let limits = edge.limits;
    let begun = Instant::now();
    let taken_back = || Ended::TakenBack(begun.elapsed());
    let resolved = timeout(limits.patience.head, resolver.resolve_request()).await;
    let Ok(Ok((request, stream))) = resolved else {
        return taken_back();
    };
    let (open, _) = edge.link.ask();
    let Some((mut stopped, valve)) = streams.take(stream.send_id().into_inner()) else {
        return taken_back();
    };
    let (mut send, recv) = stream.split();
    let is_head = request.method() == Method::HEAD;
    let (mut request, refusal) = read(request, recv, valve, limits);
    if let Some(refusal) = refusal {
        request.extensions_mut().insert(refusal);
    }
    let reply = tokio::select! {
        reply = edge.service.clone().oneshot(request) => reply,
        // What the service holds for the request goes with it.
        () = &mut stopped => return taken_back(),
    };
    let Ok(reply) = reply;
    if write(reply, is_head, &mut send, &mut stopped, limits)
        .await
        .is_ok()
    {
        drop(open);
        // Until the client has acknowledged it: the connection may end when no request is open.
        let _ = timeout(limits.write_timeout, stopped).await;
    }
    Ended::Answered
}

/// The request as the layers see it, and what is wrong with its head.
fn read(
    request: Request<()>,
    recv: RequestStream<Recv, Bytes>,
    valve: Arc<Valve>,
    limits: ConnectionLimits,
) -> (Request<crate::http::body::RequestBody>, Option<Refusal>) {
    let headers = request.headers();
    let (announced, refusal) = match announced(headers) {
        Err(refusal) => (None, Some(refusal)),
        Ok(announced) => (announced, limits.head.refuse_fields(headers)),
    };
    valve.given();
    let body = RecvBody {
        recv,
        valve,
        announced,
        received: 0,
    };
    let body = Paced::new(body, limits.pace).boxed_unsync();
    (request.map(|()| body), refusal)
}

fn announced(headers: &HeaderMap) -> Result<Option<u64>, Refusal> {
    let mut values = headers.get_all(CONTENT_LENGTH).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(Refusal::TwoLengths);
    }
    let digits = value.as_bytes().iter().all(u8::is_ascii_digit);
    let length = value.to_str().ok().filter(|_| digits);
    let length = length.and_then(|text| text.parse().ok());
    length.map(Some).ok_or(Refusal::ContentLength)
}

/// The answer is not out, and the stream says so.
struct Broken;

impl From<StreamError> for Broken {
    fn from(_: StreamError) -> Self {
        Self
    }
}

async fn write(
    reply: Response<Body>,
    is_head: bool,
    send: &mut RequestStream<streams::Answer<Bytes>, Bytes>,
    stopped: &mut Stopped,
    limits: ConnectionLimits,
) -> Result<(), Broken> {
    let (mut head, body) = reply.into_parts();
    if let Some(length) = body.size_hint().exact() {
        let length = HeaderValue::from(length);
        head.headers.entry(CONTENT_LENGTH).or_insert(length);
    }
    timeout(
        limits.write_timeout,
        send.send_response(Response::from_parts(head, ())),
    )
    .await
    .map_err(|_| Broken)??;
    if !is_head {
        write_body(body, send, stopped, limits).await?;
    }
    Ok(send.finish().await?)
}

async fn write_body(
    body: Body,
    send: &mut RequestStream<streams::Answer<Bytes>, Bytes>,
    stopped: &mut Stopped,
    limits: ConnectionLimits,
) -> Result<(), Broken> {
    let mut body = CaughtBody::new(body);
    loop {
        let frame = tokio::select! {
            frame = body.frame() => frame,
            () = &mut *stopped => return Err(Broken),
        };
        match frame {
            None => return Ok(()),
            Some(Err(_)) => {
                send.stop_stream(Code::H3_INTERNAL_ERROR);
                return Err(Broken);
            }
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    timeout(limits.write_timeout, send.send_data(data))
                        .await
                        .map_err(|_| Broken)??;
                }
            }
        }
    }
}

/// A request's body.
struct RecvBody {
    recv: RequestStream<Recv, Bytes>,
    valve: Arc<Valve>,
    announced: Option<u64>,
    received: u64,
}

impl RecvBody {
    /// What h3 has goes before what it has to read.
    fn poll_data(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, StreamError>> {
        for open in [false, true] {
            self.valve.set(open);
            if let Poll::Ready(data) = self.recv.poll_recv_data(context) {
                let data = data?.map(|mut data| data.copy_to_bytes(data.remaining()));
                return Poll::Ready(Ok(data));
            }
        }
        Poll::Pending
    }
}

impl http_body::Body for RecvBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let data = ready!(self.poll_data(context)).map_err(io::Error::other)?;
        self.valve.given();
        let received = self.received + data.as_ref().map_or(0, |data| data.len() as u64);
        self.received = received;
        let wrong = |announced: u64| match data {
            Some(_) => received > announced,
            None => received != announced,
        };
        if self.announced.is_some_and(wrong) {
            let error = io::Error::new(io::ErrorKind::InvalidData, Refusal::BodyLength);
            return Poll::Ready(Some(Err(error)));
        }
        Poll::Ready(data.map(|data| Ok(Frame::data(data))))
    }

    fn size_hint(&self) -> SizeHint {
        self.announced
            .map(|announced| SizeHint::with_exact(announced.saturating_sub(self.received)))
            .unwrap_or_default()
    }
}

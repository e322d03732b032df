//! A layer that refuses what no path needs to see: requests over the bounds of heads, whatever they
//! came over, and those that stand in for bytes that are none.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::{Either, Ready, ready};
use http::header::EXPECT;
use http::{Request, Response, StatusCode};
use tower::{Layer, Service};

use super::http1::{HeadLimits, Refusal};
use super::reply::{self, Body};
use super::room::BodyRoom;
use crate::api::error::ApiError;

/// Makes [`Bounded`].
#[derive(Clone, Debug)]
pub(crate) struct BoundsLayer {
    pub(crate) limits: HeadLimits,
    /// Which bodies share.
    pub(crate) room: Arc<BodyRoom>,
}

impl<S> Layer<S> for BoundsLayer {
    type Service = Bounded<S>;

    fn layer(&self, inner: S) -> Bounded<S> {
        Bounded {
            inner,
            limits: self.limits,
            room: Arc::clone(&self.room),
        }
    }
}

/// Lets through to `inner` what is within the bounds.
#[derive(Clone, Debug)]
pub(crate) struct Bounded<S> {
    inner: S,
    limits: HeadLimits,
    room: Arc<BodyRoom>,
}

impl<S, A> Service<Request<A>> for Bounded<S>
where
    S: Service<Request<A>, Response = Response<Body>, Error = Infallible>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Either<S::Future, Ready<Result<Response<Body>, Infallible>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<A>) -> Self::Future {
        request.extensions_mut().insert(Arc::clone(&self.room));
        match refused(&request, self.limits) {
            None => Either::Left(self.inner.call(request)),
            Some(error) => Either::Right(ready(Ok(reply::error(&error)))),
        }
    }
}

fn refused<A>(request: &Request<A>, limits: HeadLimits) -> Option<ApiError> {
    if let Some(refusal) = request.extensions().get::<Refusal>() {
        return Some(refusal.error());
    }
    let path = request.uri().path_and_query();
    if path.is_some_and(|path| path.as_str().len() > limits.uri) {
        return Some(Refusal::UriTooLong(limits.uri).error());
    }
    if request.headers().len() > limits.headers {
        return Some(Refusal::TooManyHeaders(limits.headers).error());
    }
    let expect = request.headers().get(EXPECT)?;
    if expect.as_bytes().eq_ignore_ascii_case(b"100-continue") {
        return None;
    }
    Some(ApiError {
        status: StatusCode::EXPECTATION_FAILED,
        ..ApiError::bad(
            "expectation_failed",
            "Expect: want 100-continue, which is all that is understood here.",
        )
    })
}

//! A layer that answers 500 where a request makes the gateway panic, and a body that breaks off where
//! its writing does. Other requests go on.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use tower::{Layer, Service};

use super::reply::{self, Body};
use crate::api::error::ApiError;

/// Makes [`Caught`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct CatchLayer;

impl<S> Layer<S> for CatchLayer {
    type Service = Caught<S>;

    fn layer(&self, inner: S) -> Caught<S> {
        Caught { inner }
    }
}

/// Lets no panic of `inner` out.
#[derive(Clone, Debug)]
pub(crate) struct Caught<S> {
    inner: S,
}

impl<S, A> Service<Request<A>> for Caught<S>
where
    S: Service<Request<A>, Response = Response<Body>, Error = Infallible>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = CatchPanic<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        CatchPanic {
            inner: Some(Box::pin(self.inner.call(request))),
        }
    }
}

/// Polls `inner` until it ends or panics. All that a request shares with others is behind channels
/// and locks that no request code panics under, so nothing is left half-changed.
pub(crate) struct CatchPanic<F> {
    inner: Option<Pin<Box<F>>>,
}

impl<F> Future for CatchPanic<F>
where
    F: Future<Output = Result<Response<Body>, Infallible>>,
{
    type Output = Result<Response<Body>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(inner) = &mut self.inner else {
            return Poll::Pending;
        };
        match catch_unwind(AssertUnwindSafe(|| inner.as_mut().poll(context))) {
            Ok(poll) => poll,
            Err(_) => {
                // The panic's message and place are on standard error already.
                tracing::error!("a request made the gateway panic");
                self.inner = None;
                let error = ApiError::internal("The gateway failed on this request.");
                Poll::Ready(Ok(reply::error(&error)))
            }
        }
    }
}

/// Breaks off where `body` panics: the client must not take what it got for all.
#[derive(Debug)]
pub(crate) struct CaughtBody<B> {
    /// `None` after a panic.
    body: Option<B>,
}

impl<B> CaughtBody<B> {
    pub(crate) const fn new(body: B) -> Self {
        Self { body: Some(body) }
    }
}

impl<B> http_body::Body for CaughtBody<B>
where
    B: http_body::Body<Data = Bytes, Error = io::Error> + Unpin,
{
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let Some(body) = &mut self.body else {
            return Poll::Ready(None);
        };
        match catch_unwind(AssertUnwindSafe(|| Pin::new(body).poll_frame(context))) {
            Ok(poll) => poll,
            Err(_) => {
                tracing::error!("an answer made the gateway panic");
                self.body = None;
                Poll::Ready(Some(Err(io::Error::other("the answer broke off"))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_some_and(B::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(SizeHint::new, B::size_hint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::{BodyExt, StreamBody};
    use tower::{ServiceExt, service_fn};

    #[tokio::test]
    async fn a_panic_is_answered() {
        let panics = service_fn(|_: Request<()>| async {
            if true {
                panic!("as this test wants it");
            }
            Ok::<_, Infallible>(reply::json(http::StatusCode::OK, &serde_json::Value::Null))
        });
        let reply = CatchLayer
            .layer(panics)
            .oneshot(Request::new(()))
            .await
            .unwrap();
        assert_eq!(reply.status().as_u16(), 500);
    }
    #[tokio::test]
    async fn a_panic_in_a_body_breaks_it_off() {
        let mut pieces = 0;
        let body = StreamBody::new(futures_util::stream::poll_fn(move |_| {
            pieces += 1;
            assert!(pieces < 3, "as this test wants it");
            Poll::Ready(Some(Ok::<_, io::Error>(Frame::data(Bytes::from_static(
                b"a",
            )))))
        }));
        let mut body = CaughtBody::new(body);
        for _ in 0..2 {
            assert!(body.frame().await.unwrap().is_ok());
        }
        assert!(body.frame().await.unwrap().is_err());
        assert!(body.frame().await.is_none());
    }
}

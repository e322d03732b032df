//! A layer that answers 500 where a request makes the gateway panic. Other requests go on.

use std::convert::Infallible;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response};
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

#[cfg(test)]
mod tests {
    use super::*;
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
}

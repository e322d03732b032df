//! A layer that counts replies by endpoint and status, and requests whose client left before one.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use tower::{Layer, Service};

use super::target::Target;
use crate::metrics::Metrics;

/// nginx's code for a client that left.
const CLIENT_GONE: u16 = 499;

/// Makes [`Observed`].
#[derive(Clone)]
pub(crate) struct ObserveLayer {
    pub(crate) metrics: Arc<Metrics>,
}

impl<S> Layer<S> for ObserveLayer {
    type Service = Observed<S>;

    fn layer(&self, inner: S) -> Observed<S> {
        Observed {
            inner,
            metrics: Arc::clone(&self.metrics),
        }
    }
}

/// Counts what `inner` replies.
#[derive(Clone)]
pub(crate) struct Observed<S> {
    inner: S,
    metrics: Arc<Metrics>,
}

impl<S, A, B> Service<Request<A>> for Observed<S>
where
    S: Service<Request<A>, Response = Response<B>>,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = Counted<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let endpoint = Target::of(request.uri().path()).label();
        let count = Count {
            metrics: Arc::clone(&self.metrics),
            endpoint,
            code: CLIENT_GONE,
        };
        Counted {
            inner: Box::pin(self.inner.call(request)),
            count,
        }
    }
}

/// Counts when it is dropped.
struct Count {
    metrics: Arc<Metrics>,
    endpoint: &'static str,
    code: u16,
}

impl Drop for Count {
    fn drop(&mut self) {
        self.metrics.reply(self.endpoint, self.code);
    }
}

/// Learns the reply's status.
pub(crate) struct Counted<F> {
    inner: Pin<Box<F>>,
    count: Count,
}

impl<F, B, E> Future for Counted<F>
where
    F: Future<Output = Result<Response<B>, E>>,
{
    type Output = Result<Response<B>, E>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let reply = ready!(self.inner.as_mut().poll(context));
        if let Ok(response) = &reply {
            self.count.code = response.status().as_u16();
        }
        Poll::Ready(reply)
    }
}

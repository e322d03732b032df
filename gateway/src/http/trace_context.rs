//! A layer that gives every request its place in a trace: in that of the client's `traceparent`, where
//! there is a valid one, else in a new one. Every reply says which.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use tandem_telemetry::{Spans, TraceContext};
use tower::{Layer, Service};

const PARENT: HeaderName = HeaderName::from_static("traceparent");
const STATE: HeaderName = HeaderName::from_static("tracestate");

/// Makes [`Traced`].
#[derive(Clone, Debug)]
pub(crate) struct TraceLayer {
    pub(crate) spans: Spans,
}

impl<S> Layer<S> for TraceLayer {
    type Service = Traced<S>;

    fn layer(&self, inner: S) -> Traced<S> {
        Traced {
            inner,
            spans: self.spans.clone(),
        }
    }
}

/// Places requests before `inner` sees them: among their extensions is a [`TraceContext`].
#[derive(Clone, Debug)]
pub(crate) struct Traced<S> {
    inner: S,
    spans: Spans,
}

impl<S, A, B> Service<Request<A>> for Traced<S>
where
    S: Service<Request<A>, Response = Response<B>>,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = Told<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<A>) -> Self::Future {
        let headers = request.headers();
        let state = state(headers);
        let trace = TraceContext::begin(parent(headers), state.as_deref(), self.spans.sampler());
        let parent = HeaderValue::try_from(trace.traceparent()).ok();
        request.extensions_mut().insert(trace);
        Told {
            inner: Box::pin(self.inner.call(request)),
            parent,
        }
    }
}

/// The only one: of two nobody knows which is right.
fn parent(headers: &HeaderMap) -> Option<&str> {
    let mut all = headers.get_all(PARENT).iter();
    let first = all.next()?;
    first.to_str().ok().filter(|_| all.next().is_none())
}

/// A list may stand in several headers.
fn state(headers: &HeaderMap) -> Option<String> {
    let all = headers.get_all(STATE).iter();
    let all: Result<Vec<&str>, _> = all.map(|value| value.to_str()).collect();
    all.ok()
        .filter(|all| !all.is_empty())
        .map(|all| all.join(","))
}

/// Puts the place on the reply.
pub(crate) struct Told<F> {
    inner: Pin<Box<F>>,
    parent: Option<HeaderValue>,
}

impl<F, B, E> Future for Told<F>
where
    F: Future<Output = Result<Response<B>, E>>,
{
    type Output = Result<Response<B>, E>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut reply = ready!(self.inner.as_mut().poll(context));
        if let (Ok(response), Some(parent)) = (&mut reply, self.parent.take()) {
            response.headers_mut().insert(PARENT, parent);
        }
        Poll::Ready(reply)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;
    use tower::{ServiceExt, service_fn};

    const ONE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    const OTHER: &str = "00-11111111111111111111111111111111-2222222222222222-01";

    /// What the service inside sees, and what the reply says.
    async fn exchange(headers: &[(HeaderName, &str)]) -> (TraceContext, String) {
        let inner = service_fn(|request: Request<()>| async move {
            let trace = request.extensions().get::<TraceContext>().cloned();
            Ok::<_, Infallible>(Response::new(trace.unwrap()))
        });
        let mut request = Request::new(());
        for (name, value) in headers {
            let value = HeaderValue::from_str(value).unwrap();
            request.headers_mut().append(name, value);
        }
        let layer = TraceLayer {
            spans: Spans::default(),
        };
        let reply = layer.layer(inner).oneshot(request).await.unwrap();
        let said = reply.headers()[PARENT].to_str().unwrap().to_owned();
        (reply.into_body(), said)
    }

    #[tokio::test]
    async fn a_request_and_its_reply_are_of_the_clients_trace() {
        let headers = [(PARENT, ONE), (STATE, "a=1"), (STATE, "b=2")];
        let (trace, said) = exchange(&headers).await;
        assert_eq!(trace.trace_id(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(trace.tracestate(), "a=1,b=2");
        assert_eq!(said, trace.traceparent());
    }

    #[tokio::test]
    async fn two_parents_are_none() {
        let (trace, said) = exchange(&[(PARENT, ONE), (PARENT, OTHER)]).await;
        assert_eq!(trace.parent(), None);
        assert_eq!(said, trace.traceparent());
        assert!(!said.contains("4bf92f") && !said.contains("1111111111"));
    }
}

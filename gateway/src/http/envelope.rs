//! A layer that tells errors in the form of the API that was asked: Anthropic's clients know another
//! one than OpenAI's. It knows the path alone, so it does so for whatever refuses a request.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::header::CONTENT_LENGTH;
use http::{HeaderName, Request, Response};
use tower::{Layer, Service};

use super::reply::{self, Body};
use super::request_id::RequestName;
use super::target::Target;
use crate::api::anthropic::error;
use crate::api::error::ApiError;

/// Anthropic's name for `x-request-id`.
const HEADER: HeaderName = HeaderName::from_static("request-id");

/// Makes [`Enveloped`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct EnvelopeLayer;

impl<S> Layer<S> for EnvelopeLayer {
    type Service = Enveloped<S>;

    fn layer(&self, inner: S) -> Enveloped<S> {
        Enveloped { inner }
    }
}

/// Rewrites the errors of `inner`.
#[derive(Clone, Debug)]
pub(crate) struct Enveloped<S> {
    inner: S,
}

impl<S, A> Service<Request<A>> for Enveloped<S>
where
    S: Service<Request<A>, Response = Response<Body>>,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Envelope<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let anthropics = Target::is_anthropics(request.uri().path());
        let name = request.extensions().get::<RequestName>().cloned();
        Envelope {
            inner: Box::pin(self.inner.call(request)),
            name: name.filter(|_| anthropics),
        }
    }
}

/// Waits for the reply.
pub(crate) struct Envelope<F> {
    inner: Pin<Box<F>>,
    /// Of a request to Anthropic's API.
    name: Option<RequestName>,
}

impl<F, E> Future for Envelope<F>
where
    F: Future<Output = Result<Response<Body>, E>>,
{
    type Output = Result<Response<Body>, E>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let reply = ready!(self.inner.as_mut().poll(context));
        Poll::Ready(match &self.name {
            Some(name) => reply.map(|reply| rewrite(reply, name)),
            None => reply,
        })
    }
}

fn rewrite(mut reply: Response<Body>, name: &RequestName) -> Response<Body> {
    if let Some(error) = reply.extensions_mut().remove::<ApiError>() {
        let value = error::json(&error, Some(&name.text()));
        let mut headers = std::mem::take(reply.headers_mut());
        headers.remove(CONTENT_LENGTH);
        reply = reply::json(error::status(&error), &value);
        reply.headers_mut().extend(headers);
    }
    reply.headers_mut().insert(HEADER, name.value());
    reply
}

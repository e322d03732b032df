//! A layer for the headers that every reply has.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::header::{ALT_SVC, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use http::{Request, Response, Version};
use tower::{Layer, Service};

/// Makes [`ReplyHeaders`].
#[derive(Clone, Debug)]
pub(crate) struct ReplyHeadersLayer {
    /// Where else the same is served, by HTTP/3.
    alternative: Option<HeaderValue>,
}

impl ReplyHeadersLayer {
    /// `http3` is the port, where HTTP/3 is served.
    pub(crate) fn new(http3: Option<u16>) -> Self {
        let value = |port| HeaderValue::try_from(format!("h3=\":{port}\"; ma=3600")).ok();
        Self {
            alternative: http3.and_then(value),
        }
    }
}

impl<S> Layer<S> for ReplyHeadersLayer {
    type Service = ReplyHeaders<S>;

    fn layer(&self, inner: S) -> ReplyHeaders<S> {
        ReplyHeaders {
            inner,
            alternative: self.alternative.clone(),
        }
    }
}

/// Puts them on what `inner` replies.
#[derive(Clone, Debug)]
pub(crate) struct ReplyHeaders<S> {
    inner: S,
    alternative: Option<HeaderValue>,
}

impl<S, A, B> Service<Request<A>> for ReplyHeaders<S>
where
    S: Service<Request<A>, Response = Response<B>>,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = WithHeaders<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let told = request.version() == Version::HTTP_3;
        let alternative = self.alternative.clone().filter(|_| !told);
        WithHeaders {
            inner: Box::pin(self.inner.call(request)),
            alternative,
        }
    }
}

/// Puts them on the reply.
#[derive(Debug)]
pub(crate) struct WithHeaders<F> {
    inner: Pin<Box<F>>,
    alternative: Option<HeaderValue>,
}

impl<F, B, E> Future for WithHeaders<F>
where
    F: Future<Output = Result<Response<B>, E>>,
{
    type Output = Result<Response<B>, E>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut reply = ready!(self.inner.as_mut().poll(context));
        if let Ok(response) = &mut reply {
            let headers = response.headers_mut();
            // JSON that holds what a model said must not be taken for a page.
            headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
            if let Some(alternative) = self.alternative.take() {
                headers.insert(ALT_SVC, alternative);
            }
        }
        Poll::Ready(reply)
    }
}

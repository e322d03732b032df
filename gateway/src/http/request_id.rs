//! A layer that names every request: by the client's `x-request-id` where it is fit, else by one of
//! ours. The name is on every reply.

use std::future::Future;
use std::task::{Context, Poll};

use http::{HeaderName, HeaderValue, Request, Response};
use tower::{Layer, Service};

const HEADER: HeaderName = HeaderName::from_static("x-request-id");
/// A longer one is not taken over.
const LONGEST: usize = 128;

/// A request's name, among its extensions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestName(HeaderValue);

impl RequestName {
    /// The client's, where it is fit to stand in a log line.
    fn given(headers: &http::HeaderMap) -> Option<Self> {
        let value = headers.get(HEADER)?;
        let fits = (1..=LONGEST).contains(&value.len())
            && value.as_bytes().iter().all(u8::is_ascii_graphic);
        fits.then(|| Self(value.clone()))
    }

    fn drawn() -> Self {
        let text = format!("req-{:032x}", rand::random::<u128>());
        Self(HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("req")))
    }

    pub(crate) fn value(&self) -> HeaderValue {
        self.0.clone()
    }

    pub(crate) fn text(&self) -> String {
        self.0.to_str().unwrap_or_default().to_owned()
    }
}

/// Makes [`RequestIds`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestIdLayer;

impl<S> Layer<S> for RequestIdLayer {
    type Service = RequestIds<S>;

    fn layer(&self, inner: S) -> RequestIds<S> {
        RequestIds { inner }
    }
}

/// Names requests before `inner` sees them.
#[derive(Clone, Debug)]
pub(crate) struct RequestIds<S> {
    inner: S,
}

impl<S, A, B> Service<Request<A>> for RequestIds<S>
where
    S: Service<Request<A>, Response = Response<B>>,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = Named<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<A>) -> Self::Future {
        let name = RequestName::given(request.headers()).unwrap_or_else(RequestName::drawn);
        request.extensions_mut().insert(name.clone());
        Named {
            inner: Box::pin(self.inner.call(request)),
            name,
        }
    }
}

/// Puts the name on the reply.
#[derive(Debug)]
pub(crate) struct Named<F> {
    inner: std::pin::Pin<Box<F>>,
    name: RequestName,
}

impl<F, B, E> Future for Named<F>
where
    F: Future<Output = Result<Response<B>, E>>,
{
    type Output = Result<Response<B>, E>;

    fn poll(mut self: std::pin::Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut reply = std::task::ready!(self.inner.as_mut().poll(context));
        if let Ok(response) = &mut reply {
            response.headers_mut().insert(HEADER, self.name.0.clone());
        }
        Poll::Ready(reply)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_short_visible_name_is_taken_over() {
        let given = |value: &str| {
            let mut headers = http::HeaderMap::new();
            headers.insert(HEADER, HeaderValue::try_from(value).unwrap());
            RequestName::given(&headers)
        };
        assert_eq!(given("abc-1").unwrap().text(), "abc-1");
        for bad in ["", "a b", "é", &"x".repeat(129)] {
            assert_eq!(given(bad), None, "{bad:?}");
        }
        assert!(given(&"x".repeat(128)).is_some());
        assert_eq!(RequestName::drawn().text().len(), 36);
    }
}

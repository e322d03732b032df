//! A layer for scripts of other origins' pages, by the Fetch standard.
//!
//! Stands before authentication: a browser asks without a key whether it may send one. Cookies and
//! client certificates are never allowed, so a page can do no more than what it has a key for.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, HeaderValue, ORIGIN, VARY,
};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use tandem_config::CorsOrigins;
use tower::{Layer, Service};

use super::reply::Body;

const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, OPTIONS");
/// What scripts may read beside the few that they always may.
const EXPOSED: HeaderValue =
    HeaderValue::from_static("x-request-id, request-id, retry-after, traceparent");
/// Seconds for which a browser need not ask again.
const MAX_AGE: HeaderValue = HeaderValue::from_static("7200");
/// Where a browser names none.
const HEADERS: HeaderValue =
    HeaderValue::from_static("authorization, content-type, x-api-key, x-request-id");

/// Makes [`Cors`].
#[derive(Clone, Debug)]
pub(crate) struct CorsLayer {
    origins: Arc<CorsOrigins>,
}

impl CorsLayer {
    pub(crate) fn new(origins: CorsOrigins) -> Self {
        Self {
            origins: Arc::new(origins),
        }
    }
}

impl<S> Layer<S> for CorsLayer {
    type Service = Cors<S>;

    fn layer(&self, inner: S) -> Cors<S> {
        Cors {
            inner,
            origins: Arc::clone(&self.origins),
        }
    }
}

/// Answers browsers' questions, and lets the pages of known origins read what `inner` replies.
#[derive(Clone, Debug)]
pub(crate) struct Cors<S> {
    inner: S,
    origins: Arc<CorsOrigins>,
}

impl<S, A> Service<Request<A>> for Cors<S>
where
    S: Service<Request<A>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        if *self.origins == CorsOrigins::None {
            return Box::pin(self.inner.call(request));
        }
        let allowed = allowed(&self.origins, request.headers());
        let asks = request.method() == Method::OPTIONS
            && request
                .headers()
                .contains_key(ACCESS_CONTROL_REQUEST_METHOD)
            && request.headers().contains_key(ORIGIN);
        if asks {
            let reply = preflight(allowed, request.headers());
            return Box::pin(std::future::ready(Ok(reply)));
        }
        let reply = self.inner.call(request);
        Box::pin(async move {
            let mut reply = reply.await?;
            let headers = reply.headers_mut();
            headers.append(VARY, HeaderValue::from_static("origin"));
            if let Some(origin) = allowed {
                headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
                headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
            }
            Ok(reply)
        })
    }
}

/// What the reply says is allowed; `None` where the request's origin is not.
fn allowed(origins: &CorsOrigins, headers: &HeaderMap) -> Option<HeaderValue> {
    let origin = headers.get(ORIGIN)?;
    match origins {
        CorsOrigins::Any => Some(HeaderValue::from_static("*")),
        _ => knows(origins, origin.as_bytes()).then(|| origin.clone()),
    }
}

/// Whether scripts of that origin's pages may ask.
pub(super) fn knows(origins: &CorsOrigins, origin: &[u8]) -> bool {
    match origins {
        CorsOrigins::None => false,
        CorsOrigins::Any => true,
        CorsOrigins::These(known) => known.iter().any(|known| known.as_bytes() == origin),
    }
}

/// All headers that a script asks for are allowed: clients' libraries have many of their own.
fn preflight(allowed: Option<HeaderValue>, asked: &HeaderMap) -> Response<Body> {
    let body = Empty::new().map_err(|never: Infallible| match never {});
    let mut reply = Response::new(body.boxed_unsync());
    *reply.status_mut() = StatusCode::NO_CONTENT;
    let headers = reply.headers_mut();
    let vary = "origin, access-control-request-method, access-control-request-headers";
    headers.insert(VARY, HeaderValue::from_static(vary));
    if let Some(origin) = allowed {
        let wanted = asked.get(ACCESS_CONTROL_REQUEST_HEADERS).cloned();
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, wanted.unwrap_or(HEADERS));
        headers.insert(ACCESS_CONTROL_MAX_AGE, MAX_AGE);
    }
    reply
}

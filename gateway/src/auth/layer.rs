//! A layer that lets a request in whose key is known, names its caller, and takes the key away.

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, Request, Response};
use tower::{Layer, Service};

use super::gate::{Gate, Rules};
use super::refusal::Refused;
use crate::app::unix_seconds;
use crate::caller::Caller;
use crate::http::reply::Body;

const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// Makes [`Guarded`].
#[derive(Clone)]
pub(crate) struct AuthLayer {
    pub(crate) gate: Arc<Gate>,
}

impl<S> Layer<S> for AuthLayer {
    type Service = Guarded<S>;

    fn layer(&self, inner: S) -> Guarded<S> {
        Guarded {
            inner,
            gate: Arc::clone(&self.gate),
        }
    }
}

/// Lets requests in to `inner`.
#[derive(Clone)]
pub(crate) struct Guarded<S> {
    inner: S,
    gate: Arc<Gate>,
}

impl<S, A> Service<Request<A>> for Guarded<S>
where
    S: Service<Request<A>, Response = Response<Body>, Error = Infallible>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answered<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<A>) -> Self::Future {
        let admitted = admit(&self.gate.rules(), request.uri().path(), request.headers());
        let headers = request.headers_mut();
        headers.remove(AUTHORIZATION);
        headers.remove(X_API_KEY);
        match admitted {
            Ok(caller) => {
                request.extensions_mut().insert(caller);
                Answered::Inner(Box::pin(self.inner.call(request)))
            }
            Err(refused) => {
                let reply = refused.reply();
                Answered::Refused(ready(Ok(reply)))
            }
        }
    }
}

/// An answer of `inner`, or a refusal.
pub(crate) enum Answered<F> {
    Inner(Pin<Box<F>>),
    Refused(Ready<Result<Response<Body>, Infallible>>),
}

impl<F: Future<Output = Result<Response<Body>, Infallible>>> Future for Answered<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        match &mut *self {
            Self::Inner(inner) => inner.as_mut().poll(context),
            Self::Refused(reply) => Pin::new(reply).poll(context),
        }
    }
}

fn admit(rules: &Rules, path: &str, headers: &HeaderMap) -> Result<Caller, Refused> {
    let needs_none = match path {
        "/health" | "/ready" => true,
        "/metrics" => rules.open_metrics(),
        _ => false,
    };
    if needs_none || matches!(rules, Rules::Open) {
        return Rules::Open.admit(None, 0);
    }
    rules.admit(shown_credential(headers)?, unix_seconds())
}

/// The key that the headers show, in OpenAI's way or else in Anthropic's.
pub(crate) fn shown_credential(headers: &HeaderMap) -> Result<Option<&str>, Refused> {
    if let Some(value) = only(headers, &AUTHORIZATION)? {
        let (scheme, key) = value.split_once(' ').ok_or(Refused::Malformed)?;
        let fits = scheme.eq_ignore_ascii_case("bearer");
        return Some(key.trim())
            .filter(|_| fits)
            .ok_or(Refused::Malformed)
            .map(Some);
    }
    only(headers, &X_API_KEY).map(|value| value.map(str::trim))
}

/// The value of a header that may be there once: of two, someone between may have read the other.
fn only<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<Option<&'h str>, Refused> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(Refused::Malformed);
    }
    value.to_str().map(Some).map_err(|_| Refused::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn shown(headers: &[(&'static str, &str)]) -> Result<Option<String>, Refused> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        shown_credential(&map).map(|shown| shown.map(str::to_owned))
    }

    #[test]
    fn a_key_is_shown_in_either_way_and_once() {
        assert_eq!(shown(&[]), Ok(None));
        assert_eq!(
            shown(&[("authorization", "Bearer k")]),
            Ok(Some("k".into()))
        );
        assert_eq!(
            shown(&[("authorization", "bearer  k ")]),
            Ok(Some("k".into()))
        );
        assert_eq!(shown(&[("x-api-key", "k")]), Ok(Some("k".into())));
        let both = [("x-api-key", "a"), ("authorization", "Bearer b")];
        assert_eq!(shown(&both), Ok(Some("b".into())));
        for bad in [
            &[("authorization", "Basic dTpw")][..],
            &[("authorization", "k")],
            &[("authorization", "Bearer a"), ("authorization", "Bearer b")],
            &[("x-api-key", "a"), ("x-api-key", "a")],
            &[("x-api-key", "\u{e9}")],
        ] {
            assert_eq!(shown(bad), Err(Refused::Malformed), "{bad:?}");
        }
    }

    #[test]
    fn some_paths_are_open_to_all() {
        let none = HeaderMap::new();
        let closed = Rules::Keys(super::super::gate::Ring::default());
        for path in ["/health", "/ready"] {
            assert!(admit(&closed, path, &none).is_ok(), "{path}");
        }
        for path in [
            "/metrics",
            "/v1/models",
            "/health/",
            "//health",
            "/tandem/status",
            "/nowhere",
        ] {
            assert_eq!(admit(&closed, path, &none), Err(Refused::Missing), "{path}");
        }
        assert!(admit(&Rules::Open, "/v1/models", &none).is_ok());
    }
}

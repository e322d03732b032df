//! A layer against pages of other sites, where no key is asked for.
//!
//! A browser stands inside of what the loopback guards: a page may have it send requests here, by this
//! address or by a name of its own that it resolves to it (DNS rebinding). It always says where the page is
//! from (`Origin`) with what could change anything, and always for which name it asks (`Host`).

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::{Either, Ready, ready};
use http::header::{HOST, ORIGIN};
use http::uri::Authority;
use http::{HeaderMap, HeaderName, Request, Response, Uri};
use tandem_config::{CorsOrigins, HttpConfig};
use tower::{Layer, Service};

use super::cors::knows;
use super::reply::{self, Body};
use crate::api::error::ApiError;
use crate::auth::Gate;

/// Makes [`Guarded`].
#[derive(Clone)]
pub(crate) struct ForeignLayer {
    pub(crate) gate: Arc<Gate>,
    pub(crate) homes: Arc<Homes>,
}

impl<S> Layer<S> for ForeignLayer {
    type Service = Guarded<S>;

    fn layer(&self, inner: S) -> Guarded<S> {
        Guarded {
            inner,
            layer: self.clone(),
        }
    }
}

/// Lets through to `inner` what no page of another site had sent.
#[derive(Clone)]
pub(crate) struct Guarded<S> {
    inner: S,
    layer: ForeignLayer,
}

impl<S, A> Service<Request<A>> for Guarded<S>
where
    S: Service<Request<A>, Response = Response<Body>, Error = Infallible>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Either<S::Future, Ready<Result<Response<Body>, Infallible>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        // Probes ask by any name, and learn nothing that matters.
        let open = matches!(request.uri().path(), "/health" | "/ready");
        let refused = if open || self.layer.gate.rules().asks_for_keys() {
            None
        } else {
            self.layer.homes.refuse(request.uri(), request.headers())
        };
        match refused {
            None => Either::Left(self.inner.call(request)),
            Some(error) => Either::Right(ready(Ok(reply::error(&error)))),
        }
    }
}

/// Whose pages may ask, and by which names.
#[derive(Clone, Debug)]
pub(crate) struct Homes {
    origins: CorsOrigins,
    hosts: Vec<String>,
    /// Whether other names are refused.
    named: bool,
}

impl Homes {
    /// Of a listener on the loopback, or elsewhere.
    pub(crate) fn new(config: &HttpConfig, loopback: bool) -> Self {
        Self {
            origins: config.cors_origins.clone(),
            hosts: config.hosts.clone(),
            named: loopback || !config.hosts.is_empty(),
        }
    }

    fn refuse(&self, uri: &Uri, headers: &HeaderMap) -> Option<ApiError> {
        if self.origins == CorsOrigins::Any {
            return None;
        }
        let host = text(headers, HOST);
        // From HTTP/2 on the target has it.
        let names = [host, uri.authority().map(Authority::as_str)];
        let mut said = names.into_iter().flatten();
        let stranger = said.find(|name| self.named && !self.is_home(name));
        if let Some(stranger) = stranger {
            let message = format!(
                "This gateway asks for no key, and so answers requests for its own address and localhost \
                 only, not for {}: name the host in [http] hosts, or ask for keys ([auth]).",
                shown(name_of(stranger))
            );
            return Some(ApiError::forbidden("foreign_host", message));
        }
        let origin = text(headers, ORIGIN)?;
        let site = origin.split_once("://").map(|(_, site)| site);
        let own = site.is_some() && names.contains(&site);
        if own || knows(&self.origins, origin.as_bytes()) {
            return None;
        }
        let message = format!(
            "This gateway asks for no key, and so answers no page of {}: name the origin in [http] \
             cors_origins, or ask for keys ([auth]).",
            shown(origin)
        );
        Some(ApiError::forbidden("foreign_origin", message))
    }

    fn is_home(&self, authority: &str) -> bool {
        let name = name_of(authority).to_ascii_lowercase();
        // Of HTTP/1.0, and no browser's.
        name.is_empty() || is_local(authority) || self.hosts.contains(&name)
    }
}

/// Whether that names no more than this machine, whoever resolves it: an address, which nobody resolves, or
/// `localhost`.
pub(crate) fn is_local(authority: &str) -> bool {
    let name = name_of(authority);
    let name = name.strip_suffix('.').unwrap_or(name);
    let label = name.rsplit('.').next().unwrap_or(name);
    name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok()
        || label.eq_ignore_ascii_case("localhost")
}

/// Without the port.
fn name_of(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => authority,
    }
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name).map(|value| value.to_str().unwrap_or("?"))
}

fn shown(text: &str) -> String {
    text.chars().take(128).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn homes(origins: CorsOrigins, hosts: &[&str], loopback: bool) -> Homes {
        let config = HttpConfig {
            cors_origins: origins,
            hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
            ..HttpConfig::default()
        };
        Homes::new(&config, loopback)
    }

    fn code(homes: &Homes, uri: &str, headers: &[(HeaderName, &str)]) -> Option<String> {
        let headers = headers.iter().map(|(n, v)| (n.clone(), v.parse().unwrap()));
        let refused = homes.refuse(&uri.parse().unwrap(), &headers.collect());
        refused.map(|error| error.code)
    }

    #[test]
    fn a_name_that_others_resolve_is_refused_on_the_loopback() {
        let own = homes(CorsOrigins::None, &["tandem.internal"], true);
        let host = |name| code(&own, "/v1/models", &[(HOST, name)]);
        for name in [
            "127.0.0.1:8080",
            "[::1]:8080",
            "localhost:8080",
            "LOCALHOST",
            "a.localhost",
            "10.0.0.1",
            "",
            "Tandem.Internal:80",
            "localhost.",
        ] {
            assert_eq!(host(name), None, "{name}");
        }
        for name in [
            "evil.example:8080",
            "localhost.evil.example",
            "1.2.3.4.evil.example",
            "internal",
        ] {
            assert_eq!(host(name).as_deref(), Some("foreign_host"), "{name}");
        }
        // From HTTP/2 on the target says it; beside it, both count.
        assert_eq!(code(&own, "http://localhost:1/v1/models", &[]), None);
        let page = [(ORIGIN, "http://localhost:1")];
        assert_eq!(code(&own, "http://localhost:1/v1/models", &page), None);
        let both = [(HOST, "localhost")];
        let foreign = code(&own, "http://evil.example/v1/models", &both);
        assert_eq!(foreign.as_deref(), Some("foreign_host"));
    }

    #[test]
    fn elsewhere_any_name_does_until_some_are_named() {
        let open = homes(CorsOrigins::None, &[], false);
        assert_eq!(code(&open, "/", &[(HOST, "gateway.example")]), None);
        let named = homes(CorsOrigins::None, &["gateway.example"], false);
        assert_eq!(code(&named, "/", &[(HOST, "gateway.example")]), None);
        let other = code(&named, "/", &[(HOST, "evil.example")]);
        assert_eq!(other.as_deref(), Some("foreign_host"));
    }

    #[test]
    fn a_page_of_another_site_is_refused_unless_it_is_known() {
        let known = CorsOrigins::These(vec!["https://chat.example".to_owned()]);
        let own = homes(known, &[], true);
        let from =
            |homes: &Homes, origin| code(homes, "/", &[(HOST, "localhost:8080"), (ORIGIN, origin)]);
        assert_eq!(from(&own, "http://localhost:8080"), None);
        assert_eq!(from(&own, "https://chat.example"), None);
        for origin in [
            "https://evil.example",
            "null",
            "http://localhost:9",
            "localhost:8080",
        ] {
            assert_eq!(
                from(&own, origin).as_deref(),
                Some("foreign_origin"),
                "{origin}"
            );
        }
        let any = homes(CorsOrigins::Any, &[], true);
        assert_eq!(from(&any, "null"), None);
        assert_eq!(code(&any, "/", &[(HOST, "evil.example")]), None);
    }
}

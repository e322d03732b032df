//! The status page: three files that are part of the program, so that nothing is fetched from outside.
//!
//! They hold nothing of the fleet, and need no key: what they show they ask this listener for.

use http::header::{CONTENT_SECURITY_POLICY, HeaderValue};
use http::{Method, Response, StatusCode};

use crate::api::error::ApiError;
use crate::http::reply::{self, Body};

/// The page may talk to its own listener only.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The file of that path; `None` where it is none of them.
pub(super) fn file(method: &Method, path: &str) -> Option<Result<Response<Body>, ApiError>> {
    let (kind, text) = match path {
        "/" => ("text/html; charset=utf-8", include_str!("page/page.html")),
        "/page.css" => ("text/css; charset=utf-8", include_str!("page/page.css")),
        "/page.js" => (
            "text/javascript; charset=utf-8",
            include_str!("page/page.js"),
        ),
        _ => return None,
    };
    if method != Method::GET && method != Method::HEAD {
        return Some(Err(ApiError::method("GET, HEAD")));
    }
    let mut response = reply::text(StatusCode::OK, kind, text.to_owned());
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(
        "x-content-type-options",
        HeaderValue::from_static("nosniff"),
    );
    headers.insert("referrer-policy", HeaderValue::from_static("no-referrer"));
    Some(Ok(response))
}

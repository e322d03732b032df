//! Replies that are there as a whole.

use std::io;

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use serde_json::Value;

use crate::api::error::ApiError;

/// Every reply's body. An error ends the connection: the client must not take it for complete.
pub(crate) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// A JSON reply.
pub(crate) fn json(status: StatusCode, value: &Value) -> Response<Body> {
    text(status, "application/json", value.to_string())
}

/// A reply of some type.
pub(crate) fn text(status: StatusCode, kind: &'static str, text: String) -> Response<Body> {
    let body = Full::new(Bytes::from(text))
        .map_err(|never| match never {})
        .boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

/// An error's reply.
pub(crate) fn error(error: &ApiError) -> Response<Body> {
    let mut response = json(error.status, &error.json());
    let headers = response.headers_mut();
    if let Some(after) = error.retry_after {
        headers.insert(RETRY_AFTER, HeaderValue::from(after));
    }
    if let Some(allow) = error.allow {
        headers.insert(ALLOW, HeaderValue::from_static(allow));
    }
    // For who tells it in another form.
    response.extensions_mut().insert(error.clone());
    response
}

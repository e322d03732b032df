//! Errors in Anthropic's form.

use http::StatusCode;
use serde_json::{Value, json};

use crate::api::error::ApiError;

/// Anthropic's status for a service that has no room, which its clients try again.
const OVERLOADED: u16 = 529;

/// The status that its clients know.
pub(crate) fn status(error: &ApiError) -> StatusCode {
    if error.status == StatusCode::SERVICE_UNAVAILABLE {
        return StatusCode::from_u16(OVERLOADED).unwrap_or(error.status);
    }
    error.status
}

/// Its word for it.
fn kind(error: &ApiError) -> &'static str {
    match error.status.as_u16() {
        401 => "authentication_error",
        403 => "permission_error",
        404 | 501 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        503 => "overloaded_error",
        408 | 504 => "timeout_error",
        400..=499 => "invalid_request_error",
        _ => "api_error",
    }
}

/// The body of a reply, and the data of an event.
pub(crate) fn json(error: &ApiError, request_id: Option<&str>) -> Value {
    let message = match &error.param {
        Some(param) if !error.message.contains(param.as_str()) => {
            format!("{param}: {}", error.message)
        }
        _ => error.message.clone(),
    };
    json!({
        "type": "error",
        "error": {"type": kind(error), "message": message},
        "request_id": request_id,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_status_has_its_word() {
        for (error, status, word) in [
            (ApiError::missing("model"), 400, "invalid_request_error"),
            (ApiError::no_model("x"), 404, "not_found_error"),
            (ApiError::method("POST"), 405, "invalid_request_error"),
            (ApiError::too_large(1), 413, "request_too_large"),
            (ApiError::internal("x"), 500, "api_error"),
            (ApiError::worker("x", "x"), 502, "api_error"),
            (
                ApiError::busy("x", "x", Duration::ZERO),
                529,
                "overloaded_error",
            ),
            (ApiError::timeout(1.0), 504, "timeout_error"),
        ] {
            assert_eq!(super::status(&error).as_u16(), status);
            assert_eq!(json(&error, None)["error"]["type"], word);
        }
    }

    #[test]
    fn the_field_that_is_to_blame_is_named() {
        let error = ApiError::value("messages", "It is bad.");
        assert_eq!(
            json(&error, Some("r"))["error"]["message"],
            "messages: It is bad."
        );
    }
}

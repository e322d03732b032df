//! What a client is told when its request fails: one table from cause to status, type and code.

use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};
use tandem_core::front_door::Rejection;
use tandem_text::TemplateError;
use tandem_wire::proto;
use tandem_wire::proto::failure::Blame;

use crate::door::Closed;

/// Told to clients whose failure says nothing of when another try may do.
pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(1);

/// An error in OpenAI's form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    /// OpenAI's `type`.
    pub(crate) kind: &'static str,
    /// A short name that does not change.
    pub(crate) code: String,
    pub(crate) message: String,
    /// The field that is to blame.
    pub(crate) param: Option<String>,
    /// Whole seconds after which another try may do.
    pub(crate) retry_after: Option<u32>,
    /// For 405: what is allowed.
    pub(crate) allow: Option<&'static str>,
}

impl ApiError {
    fn new(status: StatusCode, kind: &'static str, code: &str, message: impl Into<String>) -> Self {
        Self {
            status,
            kind,
            code: code.to_owned(),
            message: message.into(),
            param: None,
            retry_after: None,
            allow: None,
        }
    }

    /// The request makes no sense; `code` says in which way.
    pub(crate) fn bad(code: &str, message: impl Into<String>) -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            "invalid_request_error",
            code,
            message,
        )
    }

    /// The field `param` has a value that it may not have.
    pub(crate) fn value(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self::bad("invalid_value", message).with_param(param)
    }

    /// The field `param` is of another type than `want`.
    pub(crate) fn kind_of(param: impl Into<String>, want: &str, found: &Value) -> Self {
        let param = param.into();
        let message = format!(
            "Invalid type for '{param}': expected {want}, but got {}.",
            type_of(found)
        );
        Self::bad("invalid_type", message).with_param(param)
    }

    /// The field `param` has to be there.
    pub(crate) fn missing(param: &str) -> Self {
        let message = format!("Missing required parameter: '{param}'.");
        Self::bad("missing_required_parameter", message).with_param(param)
    }

    /// OpenAI knows the field, Tandem does not do what it asks for.
    pub(crate) fn unsupported(param: impl Into<String>, what: &str) -> Self {
        let param = param.into();
        let message = format!("Unsupported parameter: '{param}'{what}.");
        Self::bad("unsupported_parameter", message).with_param(param)
    }

    /// Nobody knows the field.
    pub(crate) fn unknown(param: impl Into<String>) -> Self {
        let param = shown(&param.into());
        Self::bad(
            "unknown_parameter",
            format!("Unknown parameter: '{param}'."),
        )
        .with_param(param)
    }

    /// No model of that name is served.
    pub(crate) fn no_model(model: &str) -> Self {
        let shown: String = model.chars().take(128).collect();
        let message = format!("The model '{shown}' does not exist.");
        Self::new(
            StatusCode::NOT_FOUND,
            "invalid_request_error",
            "model_not_found",
            message,
        )
        .with_param("model")
    }

    /// No response is stored, so none can be found.
    pub(crate) fn no_response(id: &str) -> Self {
        let shown: String = id.chars().take(128).collect();
        let message = format!("Response with id '{shown}' not found: responses are not stored.");
        let status = StatusCode::NOT_FOUND;
        Self::new(status, "invalid_request_error", "not_found", message)
    }

    /// Nothing is served under that path.
    pub(crate) fn no_path(path: &str) -> Self {
        let shown: String = path.chars().take(128).collect();
        let message = format!("Nothing is served at {shown}.");
        Self::new(
            StatusCode::NOT_FOUND,
            "invalid_request_error",
            "unknown_url",
            message,
        )
    }

    /// A path of an API that others serve.
    pub(crate) fn not_implemented(path: &str) -> Self {
        let shown: String = path.chars().take(128).collect();
        let message = format!("Tandem generates text; {shown} is not served.");
        let status = StatusCode::NOT_IMPLEMENTED;
        Self::new(status, "invalid_request_error", "not_implemented", message)
    }

    /// The path is served, by another method.
    pub(crate) fn method(allow: &'static str) -> Self {
        let status = StatusCode::METHOD_NOT_ALLOWED;
        let message = format!("This path takes {allow} only.");
        let error = Self::new(
            status,
            "invalid_request_error",
            "method_not_allowed",
            message,
        );
        Self {
            allow: Some(allow),
            ..error
        }
    }

    /// Nobody knows who asks.
    pub(crate) fn unauthorized(message: impl Into<String>) -> Self {
        let status = StatusCode::UNAUTHORIZED;
        Self::new(status, "invalid_request_error", "invalid_api_key", message)
    }

    /// Whoever asks may not do that.
    pub(crate) fn forbidden(code: &str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "permission_error", code, message)
    }

    /// The key is for other models.
    pub(crate) fn model_not_allowed(model: &str) -> Self {
        let message = format!("This API key may not use the model '{model}'.");
        Self::forbidden("model_not_allowed", message).with_param("model")
    }

    /// There is nothing of that name.
    pub(crate) fn not_found(code: &str, message: impl Into<String>) -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "invalid_request_error",
            code,
            message,
        )
    }

    /// The body is over the limit.
    pub(crate) fn too_large(limit: u64) -> Self {
        let message = format!("The request body is over the limit of {limit} bytes.");
        let status = StatusCode::PAYLOAD_TOO_LARGE;
        Self::new(
            status,
            "invalid_request_error",
            "request_too_large",
            message,
        )
    }

    /// The client broke off, or sent its body too slowly.
    pub(crate) fn body(message: impl Into<String>) -> Self {
        let status = StatusCode::REQUEST_TIMEOUT;
        Self::new(status, "invalid_request_error", "incomplete_body", message)
    }

    /// It could not be done in time.
    pub(crate) fn timeout(seconds: f32) -> Self {
        let message = format!("The request did not end within its {seconds} s.");
        Self::new(
            StatusCode::GATEWAY_TIMEOUT,
            "server_error",
            "timeout",
            message,
        )
    }

    /// Nothing is wrong with the request: not now.
    pub(crate) fn busy(code: &str, message: impl Into<String>, retry_after: Duration) -> Self {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        let error = Self::new(status, "server_error", code, message);
        Self {
            retry_after: Some(whole_seconds(retry_after)),
            ..error
        }
    }

    /// A worker failed it.
    pub(crate) fn worker(code: &str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_GATEWAY, "server_error", code, message)
    }

    /// The gateway failed it.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        Self::new(status, "server_error", "internal_error", message)
    }

    pub(crate) fn with_param(self, param: impl Into<String>) -> Self {
        Self {
            param: Some(shown(&param.into())),
            ..self
        }
    }

    /// The caller uses more than it may.
    fn limited(message: impl Into<String>, retry_after: Duration) -> Self {
        let status = StatusCode::TOO_MANY_REQUESTS;
        let error = Self::new(status, "rate_limit_error", "rate_limit_exceeded", message);
        Self {
            retry_after: Some(whole_seconds(retry_after)),
            ..error
        }
    }

    /// Why the door turned a request away, and when another try may do.
    pub(crate) fn rejection(why: &Rejection, retry_after: Option<Duration>) -> Self {
        let message = sentence(&why.to_string());
        let after = retry_after.unwrap_or(RETRY_AFTER);
        match why {
            Rejection::NoWorker(_) => Self::busy("no_worker", message, after),
            Rejection::QueueFull(_) => Self::busy("queue_full", message, after),
            Rejection::Displaced => Self::busy("displaced", message, after),
            Rejection::TooLate { .. } => Self::busy("overloaded", message, after),
            Rejection::Promise(_) => Self::busy("too_late", message, after),
            Rejection::Waited => Self::busy("queue_timeout", message, after),
            Rejection::Refused(_) => Self::busy("workers_refused", message, after),
            Rejection::NotAgain => Self::busy("workers_failed", message, after),
            Rejection::Limited { exceeded, .. } if !exceeded.never => Self::limited(message, after),
            Rejection::Limited { .. } | Rejection::NeverFits { .. } => {
                Self::bad("request_too_large", message).with_param("max_tokens")
            }
        }
    }

    /// What a worker said when it failed a request.
    pub(crate) fn failure(failure: &proto::Failure) -> Self {
        let code = if failure.code.is_empty() {
            "worker_failed"
        } else {
            &failure.code
        };
        let message = sentence(&failure.message);
        match failure.blame() {
            Blame::Client => Self::bad(code, message),
            _ if failure.code == "deadline_exceeded" => Self::new(
                StatusCode::GATEWAY_TIMEOUT,
                "server_error",
                "timeout",
                message,
            ),
            Blame::Gateway => Self {
                code: code.to_owned(),
                ..Self::internal(message)
            },
            _ if failure.retry_elsewhere => Self::busy(code, message, RETRY_AFTER),
            Blame::Prefill | Blame::Decode | Blame::Fabric | Blame::Unspecified => {
                Self::worker(code, message)
            }
        }
    }

    /// Why messages, in the field `param`, could not be rendered.
    pub(crate) fn template(error: &TemplateError, param: &str) -> Self {
        let message = sentence(&error.to_string());
        match error {
            TemplateError::TimeNotGiven => Self::internal(message),
            TemplateError::None => Self::bad("no_chat_template", message),
            TemplateError::Reserved(_) => Self::value("chat_template_kwargs", message),
            TemplateError::NotAnArray
            | TemplateError::Malformed { .. }
            | TemplateError::UnsupportedPart { .. }
            | TemplateError::Refused(_)
            | TemplateError::OutOfFuel
            | TemplateError::Failed(_) => Self::value(param, message),
        }
    }

    /// The body of a reply, and of an event in a stream.
    pub(crate) fn json(&self) -> Value {
        json!({"error": {
            "message": self.message,
            "type": self.kind,
            "param": self.param,
            "code": self.code,
        }})
    }
}

/// Characters of what a client sent that an error repeats.
const SHOWN: usize = 256;

/// The beginning of a name that a client may have chosen.
fn shown(name: &str) -> String {
    name.chars().take(SHOWN).collect()
}

impl From<Closed> for ApiError {
    fn from(closed: Closed) -> Self {
        Self::busy("stopping", format!("{closed}."), RETRY_AFTER)
    }
}

/// Rounded up: 0 would invite a storm.
fn whole_seconds(time: Duration) -> u32 {
    u32::try_from(time.as_millis().div_ceil(1000))
        .unwrap_or(u32::MAX)
        .max(1)
}

/// With a capital at its head and a full stop at its end.
fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    let Some(first) = chars.next() else {
        return "No reason was given.".to_owned();
    };
    let word = text.split_whitespace().next().unwrap_or_default();
    // A field's name is written as it is.
    let mut sentence = match word.contains('_') {
        true => text.to_owned(),
        false => first.to_uppercase().chain(chars).collect(),
    };
    if !sentence.ends_with(['.', '!', '?']) {
        sentence.push('.');
    }
    sentence
}

const fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tandem_core::admission::{Allowance, Exceeded};

    #[test]
    fn a_callers_own_limits_are_429_and_what_is_over_them_alone_is_400() {
        let limited = |never| Rejection::Limited {
            scope: "tenant",
            exceeded: Exceeded {
                what: Allowance::TokensPerMinute,
                allowed: 60,
                wait: None,
                never,
            },
        };
        let error = ApiError::rejection(&limited(false), Some(Duration::from_millis(20_001)));
        assert_eq!((error.status.as_u16(), error.retry_after), (429, Some(21)));
        assert_eq!(
            error.message,
            "This tenant's limit of 60 tokens per minute is reached."
        );
        let error = ApiError::rejection(&limited(true), None);
        assert_eq!((error.status.as_u16(), error.retry_after), (400, None));
    }

    #[test]
    fn an_error_has_all_four_members() {
        let json = ApiError::missing("model").json();
        let error = json["error"].as_object().unwrap();
        assert_eq!(error.len(), 4);
        assert_eq!(error["param"], "model");
        assert_eq!(
            ApiError::no_path("/x").json()["error"]["param"],
            Value::Null
        );
    }

    #[test]
    fn who_is_to_blame_decides_the_status() {
        let failure = |blame: Blame, code: &str, retry_elsewhere| proto::Failure {
            blame: blame.into(),
            code: code.into(),
            message: "it broke".into(),
            retry_elsewhere,
        };
        let status = |f: &proto::Failure| ApiError::failure(f).status.as_u16();
        assert_eq!(status(&failure(Blame::Client, "x", false)), 400);
        assert_eq!(status(&failure(Blame::Gateway, "x", false)), 500);
        assert_eq!(
            status(&failure(Blame::Gateway, "deadline_exceeded", false)),
            504
        );
        assert_eq!(status(&failure(Blame::Fabric, "x", false)), 502);
        let again = failure(Blame::Prefill, "prefill_lost", true);
        assert_eq!(status(&again), 503);
        let error = ApiError::failure(&again);
        assert_eq!(error.message, "It broke.");
        assert_eq!(error.retry_after, Some(1));
    }

    #[test]
    fn what_can_never_fit_is_the_clients_to_mend_and_what_may_later_says_when() {
        let error = ApiError::rejection(&Rejection::NeverFits { needed: 9, most: 8 }, None);
        assert_eq!((error.status.as_u16(), error.retry_after), (400, None));
        let error = ApiError::rejection(&Rejection::NoWorker("decode"), None);
        assert_eq!((error.status.as_u16(), error.retry_after), (503, Some(1)));
        let late = Rejection::TooLate {
            wait: Duration::from_millis(3500),
            allowed: Duration::from_secs(2),
        };
        let error = ApiError::rejection(&late, Some(Duration::from_millis(1500)));
        assert_eq!((error.status.as_u16(), error.retry_after), (503, Some(2)));
        assert!(error.message.contains("3.5 s") && error.message.contains("2.0 s"));
    }
}
